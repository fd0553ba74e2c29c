"""Empty operands, and a result so large that a 32-bit product of its sizes is zero."""

import itertools

import pytest

from conformance.cases.scenarios import scenario, where
from conformance.execution.window import whole_in_panels, window_of
from conformance.kernels.catalogue import catalogue
from conformance.machine import device_memory
from conformance.problems import DTYPES, Layout, mm
from conformance.records import Reason

#: Bytes of device memory for a result of 65536 by 65536 in fp16, its sentinel and panels of both.
WHOLE_RESULT = 20 << 30

#: Every set of dimensions that are 0.
EMPTY = ["".join(names) for count in (1, 2, 3) for names in itertools.combinations("MNK", count)]


@scenario(where(persistent=False), empty=EMPTY, static=[False, True], configs=2)
def test_empty(conform, recorder, kernel, target, dtype, config, empty, static):
    """K == 0 gives zeros plus the bias in every element; M or N == 0 gives an empty result and launches nothing."""
    run = conform(kernel, _problem(kernel, dtype, empty), config=config, target=target, static=static)
    _judge_result(recorder, run, empty)


@scenario(
    where(persistent=True), empty=EMPTY, tma_store=[False, True], rotate={"descriptors": ["device", "host"]}, configs=2
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
    launched = 0 not in run.plan.grid
    recorder.verdict("launch", launched == (problem.M * problem.N > 0), f"grid {run.plan.grid}")
    for name, out in run.trial.outputs.items():
        shape = tuple(out.shape) == problem.output.shape and out.shape[-2:] == (problem.M, problem.N)
        recorder.verdict(f"shape/{name}", shape, f"{tuple(out.shape)}, ({problem.M}, {problem.N}) is required")
        recorder.verdict(f"dtype/{name}", out.dtype == DTYPES[problem.output_dtype], str(out.dtype))
        if "K" in empty and problem.bias is None:
            recorder.verdict(f"zeros/{name}", not out.double().any(), "every element is zero")
    recorder.verdict("stride", problem.output.strides[-2:] == (problem.N + 16 if problem.N else 17, 1), "as asked")


@pytest.mark.parametrize("persistent", [False, True], ids=["mm", "mm_persistent_tma"])
def test_result_of_65536_by_65536(harness, recorder, persistent):
    """M * N is 2**32, zero in 32 bits: every element is written. Without a device only the first, two
    middle and the last programs run, and touch only their own memory."""
    kernel = next(filter(where(operation="mm", persistent=persistent), catalogue().values()))
    problem = mm(65536, 65536, 32, "fp16", layout_b=Layout("col"))
    config = kernel.configs[1] if persistent else kernel.configs[-2]
    if isinstance(harness.executor, Reason):
        recorder.not_run(harness.executor)
    if harness.executor.on_device:
        reason = device_memory.shortage(WHOLE_RESULT)
        if reason is not None:
            recorder.not_run(reason)
    target = harness.first_target(kernel)
    recorder.set(kernel=kernel, problem=problem, config=config, target=target, executor=harness.executor.name)
    with recorder.timed("run"):
        judge = whole_in_panels if harness.executor.on_device else window_of
        launch = (kernel, problem, config, target, harness.executor)
        for verdict in harness.run(lambda: list(judge(*launch, seed=harness.settings.seed)), WHOLE_RESULT):
            recorder.verdict(verdict.check, verdict.passed, verdict.text)
