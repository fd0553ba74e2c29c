"""Races: one launch made a thousand times, over more programs than multiprocessors, while other work disturbs it.

The other suites launch each fill twice on a device that has nothing else to do. A race of two programs may then give
the same result for months. Here a second stream multiplies and copies meanwhile, so that programs begin and end in
another order each time.
"""

import dataclasses
import functools
import math

from conformance.cases.each_kernel import each_dtype
from conformance.cases.unrolled import within_limit
from conformance.execution.compile.kernel_figures import over_memory
from conformance.execution.trial.fill_groups import fills_for
from conformance.execution.trial.repeated_trials import LAUNCHES, second_stream, stressed
from conformance.execution.trial.trial import place
from conformance.inputs.fills import random_tensors
from conformance.judging.conform import compile_plan, launches_to_compile
from conformance.judging.harness import faults_explained, need_device
from conformance.kernels.kernel import NotApplicable
from conformance.records import ExecutorName, Reason, ReasonCode

#: The kernels of the default tier, with one dtype each.
SAMPLE = ("mm_persistent_tma", "attention")
#: Parts into which a kernel splits K, or the keys, that has too few programs otherwise.
PARTS = 64


def shown(kernel, tier):
    """The dtypes with which a tier shows a kernel."""
    if tier in ("full", "exhaustive"):
        return kernel.dtype_names()
    return kernel.dtype_names()[:1] if tier == "default" and kernel.name in SAMPLE else []


def stressed_plan(kernel, dtype, targets):
    """Returns the plan of the problem that is timed. The config is in the middle of those that compile soon and that
    give more programs than multiprocessors. If there are none, the problem has more parts, or any config is taken.
    Raises NotApplicable with the first refusal."""
    refusals: list[NotApplicable] = []
    for target in targets:
        plans = [
            plan
            for parts in (None, PARTS)
            for config in sorted(kernel.configs, key=lambda config: config.tile)
            if (plan := taken(kernel, dtype, config, target, parts, refusals)) is not None
        ]
        most = target.limits.multiprocessors or 0
        chosen = [plan for plan in plans if kernel.persistent or math.prod(plan.grid) > most] or plans
        if chosen:
            return chosen[len(chosen) // 2]
    raise refusals[0]


def taken(kernel, dtype, config, target, parts, refusals):
    """The plan with one config, in as many ``parts`` if they are given; None if it does not compile soon or the kernel
    refuses it, which ``refusals`` then has."""
    problem, variant = kernel.timed(dtype), config.in_variant(kernel.timed_variant())
    if parts is not None:
        variant = dataclasses.replace(variant, splits=parts)
    if not within_limit(kernel, problem, config, kernel.configs):
        return None
    try:
        return kernel.plan(problem, config, target, variant)
    except NotApplicable as error:
        refusals.append(error)
        return None


def tensors_of(kernel, plan, device, seed):
    """Returns operands and outputs on the device, with random values. A kernel that promises no equal bits gets those
    of an exact fill, for which they are equal. None if it has none."""
    contract = kernel.contract(plan, ExecutorName.DEVICE)
    if contract.deterministic:
        return random_tensors(plan.problem, device, seed)
    fill = next((fill for fill in fills_for(plan.problem, contract, seed) if fill.method == "exact"), None)
    if fill is None:
        return None
    inputs = {name: values.to(device) for name, values in fill.inputs.items()}
    return {name: placed.view for name, placed in place(plan.problem, inputs, 0, device).items()}


@each_dtype(shown)
def test_thousand_launches(harness, recorder, kernel, dtype):
    """Every launch leaves the bits of the first."""
    recorder.set(kernel=kernel, problem=kernel.timed(dtype), target=harness.targets[0])
    need_device(harness, recorder, "launches during other work")
    try:
        plan = stressed_plan(kernel, dtype, harness.targets)
    except NotApplicable as error:
        recorder.not_applicable(error.reason)
    recorder.set(config=plan.config, target=plan.target, options={"variant": plan.variant.id})
    jobs = launches_to_compile(plan).items()
    compiled = compile_plan(recorder, {name: harness.pool.submit(*job) for name, job in jobs})
    if compiled is not None and (excess := over_memory(compiled.main.resources, plan.target)):
        recorder.not_applicable(Reason(ReasonCode.SHARED_MEMORY, plan.config.id, "; ".join(excess)))
    executor = harness.executor
    recorder.set(executor=executor.name, observed={"grid": plan.grid})

    def stress():
        tensors = tensors_of(kernel, plan, executor.device, harness.settings.seed)
        if tensors is None:
            return None
        outputs = {output.name: tensors[output.name] for output in plan.problem.outputs}
        with second_stream(executor.device, harness.settings.seed) as beside:
            launch = functools.partial(launched, executor, kernel, plan, tensors)
            return stressed(launch, outputs, beside, LAUNCHES * harness.settings.repeats)

    with recorder.timed("run"), faults_explained(harness, recorder, kernel, plan, None):
        verdict = harness.run(stress)
    if verdict is None:
        detail = "its contract promises equal bits of exact fills alone, and the problem has none"
        recorder.not_applicable(Reason(ReasonCode.PRECISION, "deterministic", detail))
    recorder.add(verdict)


def launched(executor, kernel, plan, tensors):
    """Makes one launch, with memory of its own for what lies between its steps; nothing waits for it."""
    executor.start(kernel.launch(plan, tensors))
