"""The sweep over config spaces: device times, estimates of shared memory, and the verdict on spills."""

from __future__ import annotations

import functools
import statistics
import warnings
from importlib.resources import files
from typing import TYPE_CHECKING, Any

from conformance.execution.compile.kernel_figures import over_memory
from conformance.heuristics.configs import AnyConfig, Config, shared_memory
from conformance.inputs.fills import random_tensors
from conformance.judging.conform import launches_to_compile
from conformance.kernels.kernel import Kernel, NotApplicable
from conformance.machine.gpus import NotAlone
from conformance.problems import Problem, itemsize
from conformance.records import Check, CheckKind, Status, Verdict
from conformance.reporting.sweep import sized
from conformance.targets import Target

if TYPE_CHECKING:
    from conformance.execution.compile.compilation import Artefact
    from conformance.judging.harness import Harness

_SPILLS = str(Check(CheckKind.SPILLS))

#: Allocations of the operands of one timed problem: where they lie changes the time of some kernels. On an H200 one mm
#: takes between 54.0 and 59.9 us with one place, and between 56.0 and 59.6 us with four.
PLACES = 4
#: Bytes that they take at most, unless one alone takes more.
PLACES_BYTES = 2 << 30


def measure(harness: Harness, kernel: Kernel, dtype: str, config: AnyConfig, target: Target) -> dict[str, Any]:
    """Times the kernel's timed problem on the device. Returns what the record keeps under "observed": the problem's id,
    microseconds of each run and their median, and which device it was; or the reason why the config was not timed."""
    from conformance.execution.device.executor import DeviceExecutor

    problem = kernel.timed(dtype)
    try:
        plan = kernel.plan(problem, config, target, config.in_variant(kernel.timed_variant()), estimated=False)
    except NotApplicable as refusal:
        return {"run": {"problem": problem.id, "refused": str(refusal.reason)}}
    for compilation in [harness.pool.submit(*launch) for launch in launches_to_compile(plan).values()]:
        result = compilation.result()
        if result.status is not Status.PASS:
            raise result.failure(f"{problem.id}, which is timed")
        if result.artefact is not None and (excess := over_memory(result.artefact.resources, target)):
            return {"run": {"problem": problem.id, "refused": "; ".join(excess)}}
    assert isinstance(harness.executor, DeviceExecutor)
    with harness.together():  # to make the tensors takes the device, too
        device = harness.executor.device
        launches = [kernel.launch(plan, random_tensors(problem, device)) for _ in range(_places(problem))]
        for launch in launches:
            harness.executor.run(launch)  # the first loads it while others go on
    try:
        times = harness.executor.microseconds(launches, alone=harness.turns.timing())
    except NotAlone as error:
        return {"run": {"problem": problem.id, "refused": str(error)}}
    samples = [round(sample, 3) for sample in times]
    run = {"problem": problem.id, "us": round(statistics.median(samples), 3), "samples_us": samples}
    return {"run": {**run, "device": harness.executor.identity}}


def _places(problem: Problem) -> int:
    size = sum(operand.span * itemsize(operand.dtype) for operand in problem.tensors)
    return max(1, min(PLACES, PLACES_BYTES // max(size, 1)))


def estimates(kernel: Kernel, problem: Problem, config: AnyConfig, target: Target) -> dict[str, Any]:
    """Bytes of shared memory per block as the heuristics and the kernel estimate them, for the record's "observed".
    Without the heuristics' number for a config of attention, and without the kernel's if it estimates none."""
    estimated: dict[str, Any] = {}
    if isinstance(config, Config):
        estimated["heuristics"] = shared_memory(config, itemsize(problem.dtype))
    plan = kernel.draft(problem, config, target, config.in_variant(kernel.example_variant()))
    if kernel.refusal(plan) is None and (by_kernel := kernel.shared_memory(plan)) is not None:
        estimated["kernel"] = by_kernel
    return {"shared_memory_estimate": estimated} if estimated else {}


@functools.cache
def _declared() -> frozenset[str]:
    """Lines of the data file: kernel, dtype, config (and size) and target of each case that is known to spill."""
    text = files("conformance.data").joinpath("declared_spills.txt").read_text()
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))


@functools.cache
def _targets_with_declarations() -> frozenset[str]:
    return frozenset(line.split()[-1] for line in _declared())


class SpillsNotDeclared(UserWarning):
    """Spills on a target fail no case, because no file declares which of them are known."""


def spill_key(kernel: Kernel, dtype: str, config: AnyConfig, target: Target, size: str = "") -> str:
    """The line that declares the spills of a case; ``size`` is that of a row that a problem selects."""
    return f"{kernel.name} {dtype} {sized(config.id, size)} {target.id}"


def spill_verdict(
    kernel: Kernel,
    dtype: str,
    config: AnyConfig,
    target: Target,
    artefact: Artefact,
    *,
    size: str = "",
    judged: bool = True,
) -> Verdict:
    """The verdict on the registers that the main launch spills; ``size`` is that of a row that a problem selects.

    It fails if ``judged`` is true and the target has declared spills, of which this is none; a third-party kernel
    may declare its own, which alone count for it. On a target without
    declared spills it passes and warns (:class:`SpillsNotDeclared`). A binary that cannot be read fails if ``judged``.
    """
    used = artefact.resources
    if used.source == "metadata":
        return Verdict(_SPILLS, not judged, "not known: no cuobjdump reads the binary; set TRITON_CUOBJDUMP_PATH")
    if not used.spills:
        return Verdict(_SPILLS, True, "no register is spilled")
    text = f"{used.spills} {used.spill_unit} per thread spilled"
    own = kernel.declared_spills
    if spill_key(kernel, dtype, config, target, size) in (_declared() if own is None else own):
        return Verdict(_SPILLS, True, f"{text}, declared")
    if target.id not in _targets_with_declarations() | {line.split()[-1] for line in own or ()}:
        place = "conformance/data/declared_spills.txt" if own is None else f"the declared_spills of {kernel.name}"
        warnings.warn(
            f"spills are not declared for target {target.id}: its cases spill registers and pass. Declare them with "
            f"'conformance sweep --spills' in {place}",
            SpillsNotDeclared,
            stacklevel=2,
        )
        return Verdict(_SPILLS, True, f"{text}; spills are not declared for target {target.id}: none is a fault")
    return Verdict(_SPILLS, not judged, f"{text}, not declared")
