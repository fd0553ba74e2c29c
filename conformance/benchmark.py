"""Persistent TMA kernels against the library's own matrix products, as a ratio measured in one run.

``python -m conformance.benchmark`` prints, for each size, the fastest configs of the kernel's config space, and for the
first the ratio to ``torch.mm`` or ``torch._scaled_mm``: both are timed in turn, round by round, so that a drift of
the clock moves both. A ratio above 1 means that the kernel is faster. Nothing is asserted.
"""

from __future__ import annotations

import argparse
import functools
import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance import targets
from conformance.execution.compilation import CompilePool, CompileRequest
from conformance.execution.device import DeviceExecutor
from conformance.kernels import catalogue
from conformance.kernels.kernel import Kernel, NotApplicable, Plan, Variant
from conformance.problems import DTYPES, Gemm, Layout, mm, scaled_mm
from conformance.records import Status
from conformance.targets import Target

#: Launches in one timed round: long enough for the clock's resolution, short enough to alternate often.
LAUNCHES = 20


#: Configs that are timed in turn with the library, fastest first.
FINALISTS = 5


@dataclass(frozen=True)
class Contest:
    """A kernel's problem and the library's call for the same operands."""

    kernel: str
    problem: Gemm
    library: Callable[[dict[str, Tensor]], object]
    library_name: str


def contests(sizes: Sequence[int]) -> list[Contest]:
    """bf16 mm against torch.mm; fp8 scaled mm, fast accumulation, each kind of scales, against torch._scaled_mm."""
    found = []
    for size in sizes:
        found.append(
            Contest(
                "mm_persistent_tma",
                mm(size, size, size, "bf16", layout_b=Layout("col")),
                lambda t: torch.mm(t["a"], t["b"], out=t["out"]),
                "torch.mm",
            )
        )
        for scaling in ("tensor", "row"):
            found.append(
                Contest(
                    "scaled_mm_persistent_tma",
                    scaled_mm(size, size, size, "e4m3", scaling=scaling, fast_accum=True),
                    lambda t: torch._scaled_mm(
                        t["a"], t["b"], t["scale_a"], t["scale_b"], out_dtype=torch.bfloat16, use_fast_accum=True
                    ),
                    "torch._scaled_mm",
                )
            )
    return found


def operands(problem: Gemm, device: torch.device, seed: int = 0) -> dict[str, Tensor]:
    """Random operands of ``problem`` and an output, on ``device``. Never zeros: a GPU is faster on zeros."""
    generator = torch.Generator(device).manual_seed(seed)
    tensors: dict[str, Tensor] = {}
    for operand in (*problem.operands, problem.output):
        shape = operand.shape
        turned = len(shape) == 2 and operand.strides[0] == 1 and shape[1] > 1
        dense = torch.randn(shape[::-1] if turned else shape, device=device, generator=generator)
        tensors[operand.name] = (dense.t() if turned else dense).to(DTYPES[operand.dtype])
    return tensors


class Timed:
    """LAUNCHES calls captured in a CUDA graph, so that what is timed is the device and not the host that launches."""

    def __init__(self, call: Callable[[], object]) -> None:
        call()  # whatever is set up on first use is not captured
        torch.cuda.synchronize()
        self._graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self._graph):
            for _ in range(LAUNCHES):
                call()

    def milliseconds(self) -> float:
        """Mean device time of one call, by device events around one replay."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        self._graph.replay()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / LAUNCHES


def plans(kernel: Kernel, problem: Gemm, target: Target) -> list[Plan]:
    """Every config of the kernel with each descriptor, subtile and loop form that applies, and a descriptor store."""
    found = []
    forms = itertools.product(kernel.configs, ("device", "host"), (1, 2, 4), (False, True))
    for config, descriptors, subtile, flatten in forms:
        try:
            variant = Variant(descriptors, tma_store=True, epilogue_subtile=subtile, flatten=flatten)
            found.append(kernel.plan(problem, config, target, variant))
        except NotApplicable:
            continue
    return found


def run(contest: Contest, executor: DeviceExecutor, target: Target, pool: CompilePool, rounds: int) -> list[str]:
    """Lines of the report for one contest."""
    kernel, problem = catalogue.get(contest.kernel), contest.problem
    tensors = operands(problem, executor.device)
    candidates = plans(kernel, problem, target)
    handles = [
        pool.submit(CompileRequest("conformance.kernels.catalogue:meta_launch", plan, target)) for plan in candidates
    ]
    ready = [plan for plan, handle in zip(candidates, handles, strict=True) if handle.result().status is Status.PASS]
    timed: dict[Plan, Timed] = {}
    for plan in ready:
        launch = kernel.launch(plan, tensors)
        try:
            executor.run(launch)  # a config that needs more than the device has is refused here
        except Exception as error:
            print(f"  {plan.config.id} {plan.variant.id}: {type(error).__name__}: {error}".split("\n", 1)[0])
            continue
        timed[plan] = Timed(functools.partial(launch.function[launch.grid], **launch.arguments, **launch.options))
    library = Timed(lambda: contest.library(tensors))
    times = {plan: min(call.milliseconds() for _ in range(2)) for plan, call in timed.items()}
    fastest = sorted(times, key=times.__getitem__)[:FINALISTS]
    operations = 2 * problem.M * problem.N * problem.K / 1e9
    lines, ratios = [], {}
    for plan in fastest:
        pairs = [(timed[plan].milliseconds(), library.milliseconds()) for _ in range(rounds)]
        ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios[plan] = statistics.median(other / own for own, other in pairs)
        lines.append(
            f"  {plan.config.id:20} {plan.variant.id:20} {operations / ours:6.0f} TFLOP/s, {contest.library_name} "
            f"{operations / theirs:6.0f}, ratio {ratios[plan]:.3f}"
        )
    best = max(ratios, key=ratios.__getitem__)
    lines.append(
        f"{problem.id}: ratio {ratios[best]:.3f} with {best.config.id} {best.variant.id} "
        f"(median of {rounds} rounds in turn with {contest.library_name})"
    )
    return lines


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--sizes", type=int, nargs="+", default=[4096, 8192])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--workers", type=int, default=12, help="processes that compile")
    chosen = parser.parse_args(arguments)
    executor, target = DeviceExecutor(), targets.devices()[0]
    with CompilePool(chosen.workers) as pool:
        for contest in contests(chosen.sizes):
            print("\n".join(run(contest, executor, target, pool, chosen.rounds)), flush=True)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
