"""Measures what it gains to tune one product for several numbers of rows and to choose the kernel at run time.

Inductor compiles a product with a dynamic M for one M, its *size hint*. The tables are scaled to it, and the configs
are timed with it. With ``multi_kernel_hints`` it does so for several hints, and the fastest kernel serves each M. Here
the same is done with the harness's own mm. For each hint the configs of the table "mm" are timed at M = hint, and the
winners at each M of a grid. All times of a size are taken in turn within one run, so that a drift of the clock moves
them all. Nothing is asserted.
"""

from __future__ import annotations

import functools
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from conformance import targets
from conformance.benchmark import Timed, launch_all
from conformance.execution.compile.compilation import CompilePool, CompileRequest
from conformance.execution.device.executor import DeviceExecutor
from conformance.families.gemm.problem import Gemm, mm
from conformance.heuristics.lookup import for_target
from conformance.inputs.fills import random_tensors
from conformance.kernels import catalogue
from conformance.kernels.kernel import NotApplicable, Plan, Variant
from conformance.records import Status
from conformance.targets import Target

#: The hints of PyTorch's pull request 156628, which brought several kernels for one product.
HINTS = (64, 256, 4096)

#: The numbers of rows at which the kernels are compared: those of the same pull request. The hints are among them.
SIZES = tuple(range(64, 4097, 64))

#: How often a config is timed when a hint's winner is chosen; the least time counts.
TUNING_ROUNDS = 3


@dataclass(frozen=True)
class DispatchTimes:
    """``times``: milliseconds by (hint for which the kernel was tuned, M); each hint is also a size."""

    times: Mapping[tuple[int, int], float]

    @property
    def hints(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(hint for hint, _ in self.times))

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(dict.fromkeys(size for _, size in self.times))

    def best(self, size: int) -> float:
        """Milliseconds of the fastest kernel at M = ``size``."""
        return min(self.times[hint, size] for hint in self.hints)

    def relative(self, hint: int, size: int) -> float:
        """Time of the kernel tuned for ``hint`` at M = ``size``, in times of the fastest there: at least 1."""
        return self.times[hint, size] / self.best(size)

    def mean_gain(self, hint: int) -> float:
        """Returns the gain of the choice at run time over the kernel of ``hint`` alone, in percent. It is the mean over
        all sizes of the relative time less 1."""
        return 100 * (statistics.fmean(self.relative(hint, size) for size in self.sizes) - 1)

    def lines(self) -> list[str]:
        """Returns a table of the hints, a row each, at M = each hint, and the mean gain over each hint's kernel
        alone."""
        header = "tuned for".ljust(12) + "".join(f"M = {size}".rjust(10) for size in self.hints)
        rows = [
            f"M = {hint}".ljust(12) + "".join(f"{self.relative(hint, size):.3f}".rjust(10) for size in self.hints)
            for hint in self.hints
        ]
        grid = f"{len(self.sizes)} sizes from {min(self.sizes)} to {max(self.sizes)}"
        gains = [
            f"choosing at run time over the kernel for M = {hint}: {self.mean_gain(hint):.2f} % mean gain, {grid}"
            for hint in self.hints
        ]
        return [header, *rows, *gains]


def dispatch_times(
    width: int, executor: DeviceExecutor, target: Target, pool: CompilePool, rounds: int
) -> tuple[dict[int, Plan], DispatchTimes]:
    """Returns the plan that wins for each of :data:`HINTS`, and the winners' times at each of :data:`SIZES`: medians of
    ``rounds`` rounds. The product is (M, ``width``) by (``width``, ``width``) in bf16, its sizes no constants."""
    winners = {hint: _tuned(hint, width, executor, target, pool) for hint in HINTS}
    times: dict[tuple[int, int], float] = {}
    for size in SIZES:
        timed = {hint: _timed([winner], size, width, executor)[0] for hint, winner in winners.items()}
        samples = [{hint: call.milliseconds() for hint, call in timed.items()} for _ in range(rounds)]
        times |= {(hint, size): statistics.median(sample[hint] for sample in samples) for hint in winners}
    return winners, DispatchTimes(times)


def _tuned(hint: int, width: int, executor: DeviceExecutor, target: Target, pool: CompilePool) -> Plan:
    """Returns the fastest plan at M = ``hint`` of the configs that the tables list for it."""
    kernel, problem = catalogue.get("mm"), _product(hint, width)
    plans = []
    for config in for_target(target).candidates("mm", hint, width, width):
        try:
            plans.append(kernel.plan(problem, config, target, Variant()))
        except NotApplicable:
            continue
    handles = [pool.submit(CompileRequest("conformance.kernels.catalogue:meta_launch", plan, target)) for plan in plans]
    ready = [plan for plan, handle in zip(plans, handles, strict=True) if handle.result().status is Status.PASS]
    timed = _timed(ready, hint, width, executor)
    times = [min(call.milliseconds() for _ in range(TUNING_ROUNDS)) for call in timed]
    return ready[times.index(min(times))]


def _product(rows: int, width: int) -> Gemm:
    return mm(rows, width, width, "bf16")


def _timed(plans: Sequence[Plan], rows: int, width: int, executor: DeviceExecutor) -> list[Timed]:
    """Returns the config and variant of each plan at M = ``rows``, ready to be timed on the same operands."""
    kernel, problem = catalogue.get("mm"), _product(rows, width)
    tensors = random_tensors(problem, executor.device)
    timed = []
    for plan in plans:
        launch = kernel.launch(kernel.plan(problem, plan.config, plan.target, plan.variant), tensors)
        executor.run(launch)
        timed.append(Timed(functools.partial(launch_all, launch)))
    return timed


def report(executor: DeviceExecutor, sizes: Sequence[int], rounds: int, workers: int) -> None:
    """Prints winners, table and mean gains for each width of ``sizes``; ``workers`` processes compile."""
    target = targets.devices()[0]
    with CompilePool(workers) as pool:
        for width in sizes:
            winners, times = dispatch_times(width, executor, target, pool, rounds)
            print(f"mm of M x {width} by {width} x {width}, bf16: time relative to the fastest of the column")
            for hint, winner in winners.items():
                print(f"  fastest for M = {hint}: {winner.config.id} {winner.variant.id}".rstrip())
            print("\n".join(f"  {line}" for line in times.lines()), flush=True)
