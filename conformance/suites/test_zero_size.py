"""Empty operands, and a result so large that a 32-bit product of its sizes is zero."""

import itertools

from conformance.cases.each_kernel import each_kernel, first_plan
from conformance.cases.scenarios import scenario, where
from conformance.execution.device.window import whole_in_panels, window_of
from conformance.execution.interpreter.executor import InterpreterUnsupported
from conformance.kernels.kernel import NotApplicable
from conformance.machine import device_state
from conformance.problems import DTYPES, Layout, itemsize
from conformance.records import Reason, ReasonCode

#: Bytes of device memory for a result of 65536 by 65536 in fp16, its sentinel and panels of both.
WHOLE_RESULT = 20 << 30

#: Every set of dimensions that are 0.
EMPTY = ["".join(names) for count in (1, 2, 3) for names in itertools.combinations("MNK", count)]


@scenario(where(descriptors=False), empty=EMPTY, rotate={"static": [False, True]}, configs=2)
def test_empty(conform, recorder, kernel, target, dtype, config, empty, static):
    """K == 0 gives zeros plus the bias in every element; M or N == 0 gives an empty result. Nothing is launched for
    outputs without elements."""
    run = conform(kernel, _problem(kernel, dtype, empty), config=config, target=target, static=static)
    _judge_result(recorder, run, empty)


@scenario(
    where(descriptors=True),
    empty=EMPTY,
    rotate={"tma_store": [False, True], "descriptors": ["device", "host"]},
    configs=2,
)
def test_empty_descriptors(conform, recorder, kernel, target, dtype, config, empty, tma_store, descriptors):
    """The same, and no descriptor is built over an operand that is empty."""
    problem = _problem(kernel, dtype, empty)
    run = conform(kernel, problem, config=config, target=target, tma_store=tma_store, descriptors=descriptors, sms=3)
    _judge_result(recorder, run, empty)


def _problem(kernel, dtype, empty):
    sizes = {name: 0 if name in empty else size for name, size in (("M", 208), ("N", 240), ("K", 192))}
    return kernel.problem(dtype, **sizes, layout_out=Layout(pad=16))


def _judge_result(recorder, run, empty):
    problem = run.plan.problem
    launched, has_elements = 0 not in run.plan.grid, any(0 not in output.shape for output in problem.outputs)
    recorder.verdict("launch", launched == has_elements, f"grid {run.plan.grid}")
    for name, out in run.trial.outputs.items():
        shape = tuple(out.shape) == problem.output.shape and out.shape[-2:] == (problem.M, problem.N)
        recorder.verdict(f"shape/{name}", shape, f"{tuple(out.shape)}, ({problem.M}, {problem.N}) is required")
        recorder.verdict(f"dtype/{name}", out.dtype == DTYPES[problem.output_dtype], str(out.dtype))
        if "K" in empty and problem.bias is None:
            recorder.verdict(f"zeros/{name}", not out.double().any(), "every element is zero")
    recorder.verdict("stride", problem.output.strides[-2:] == (problem.N + 16 if problem.N else 17, 1), "as asked")


@each_kernel(where(operation="mm"))
def test_result_of_65536_by_65536(harness, recorder, kernel):
    """M * N is 2**32, zero in 32 bits: every element is written. Without a device only the first, two
    middle and the last programs run, and touch only their own memory."""
    dtype = "fp16" if "fp16" in kernel.dtypes else kernel.dtypes[0]
    problem = kernel.problem(dtype, 65536, 65536, 32, layout_b=Layout("col"))
    recorder.set(kernel=kernel, problem=problem)
    recorder.proves_at_most("interpreted", "without a device only some programs are run", without_device=True)
    if isinstance(harness.executor, Reason):
        recorder.not_run(harness.executor)
    size = WHOLE_RESULT * itemsize(problem.output_dtype) // 2
    if harness.executor.on_device:
        reason = device_state.shortage(size)
        if reason is not None:
            recorder.not_run(reason)
    elif not kernel.knows_tiles:
        detail = (
            f"which program of {kernel.name} computes which tile is not known: without a device too many would run. "
            "The kernel may define tile_of()"
        )
        recorder.not_run(Reason(ReasonCode.NO_DEVICE, "tiles", detail))
    try:
        targets = dict.fromkeys((harness.first_target(kernel), *harness.targets))
        plan = first_plan(kernel, problem, targets, first=1 if kernel.persistent else -2)
    except NotApplicable as refusal:
        recorder.not_applicable(refusal.reason)
    recorder.set(config=plan.config, target=plan.target, executor=harness.executor.name)
    with recorder.timed("run"):
        judge = whole_in_panels if harness.executor.on_device else window_of
        launch = (kernel, problem, plan.config, plan.target, harness.executor)
        try:
            verdicts = harness.run(lambda: list(judge(*launch, seed=harness.settings.seed)), size)
        except InterpreterUnsupported as error:
            recorder.not_run(error.reason)
    for verdict in verdicts:
        recorder.verdict(verdict.check, verdict.passed, verdict.text)
