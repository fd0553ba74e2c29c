"""Times kernels and the library's own products, convolutions and attention in one run, and prints their ratio.

``conformance benchmark`` prints the fastest configs of each problem, with their ratio to the library. A ratio above 1
means that the kernel is faster. Kernel and library are timed in turn, round by round, so that a drift of the clock
moves both. Nothing is asserted.
"""

from __future__ import annotations

import dataclasses
import functools
import itertools
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance import targets
from conformance.execution.compile.compilation import CompilePool, CompileRequest
from conformance.execution.device.executor import DeviceExecutor
from conformance.families.attention.problem import Attention, Mask
from conformance.families.conv.problem import conv2d
from conformance.families.gemm.problem import bmm, int_mm, mm, scaled_mm
from conformance.heuristics.configs import AnyConfig
from conformance.inputs.fills import random_tensors
from conformance.kernels import catalogue
from conformance.kernels.kernel import Kernel, Plan, Variant
from conformance.kernels.launch import Launch
from conformance.problems import Layout, Problem
from conformance.records import Status
from conformance.targets import Target

#: Launches in one timed round: long enough for the clock's resolution, short enough to alternate often.
LAUNCHES = 20


#: Configs that are timed in turn with the library, fastest first.
FINALISTS = 5


Tensors = dict[str, Tensor]
Call = Callable[[], object]


@dataclass(frozen=True)
class Contest:
    """A kernel's problem and what makes the library's call for the same operands. ``operations``: multiplications and
    additions, in billions. ``graph``: whether the library's call can be captured in a CUDA graph; if not, neither
    side is."""

    kernel: str
    problem: Problem
    library: Callable[[Tensors], Call]
    library_name: str
    operations: float
    graph: bool = True


def products(sizes: Sequence[int]) -> list[Contest]:
    """bf16 mm against torch.mm; fp8 scaled mm, fast accumulation, each kind of scales, against torch._scaled_mm;
    int8 against torch._int_mm and batches against torch.bmm."""
    contests = []
    for size in sizes:
        work = 2 * size**3 / 1e9
        plain = mm(size, size, size, "bf16", layout_b=Layout("col"))
        integers = int_mm(size, size, size, layout_b=Layout("col"))
        batch = bmm(size // 4, size // 4, size // 4, "bf16", batch=32)
        contests.append(Contest("mm_persistent_tma", plain, _mm, "torch.mm", work))
        for scaling in ("tensor", "row"):
            problem = scaled_mm(size, size, size, "e4m3", scaling=scaling, fast_accum=True)
            contests.append(Contest("scaled_mm_persistent_tma", problem, _scaled_mm, "torch._scaled_mm", work))
        contests.append(Contest("int_mm", integers, _int_mm, "torch._int_mm", work))
        contests.append(Contest("bmm", batch, _bmm, "torch.bmm", work / 2))
    return contests


def _mm(t: Tensors) -> Call:
    return lambda: torch.mm(t["a"], t["b"], out=t["out"])


def _bmm(t: Tensors) -> Call:
    return lambda: torch.bmm(t["a"], t["b"], out=t["out"])


def _int_mm(t: Tensors) -> Call:
    return lambda: torch._int_mm(t["a"], t["b"])


def _scaled_mm(t: Tensors) -> Call:
    a, b, scale_a, scale_b = (t[name] for name in ("a", "b", "scale_a", "scale_b"))
    return lambda: torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16, use_fast_accum=True)


def convolutions() -> list[Contest]:
    """3x3 and 1x1 windows on channels-last images, bf16, against the library's convolution (cuDNN on CUDA)."""
    contests = []
    last = "channels-last"
    for kernel, edge, channels, window in (
        ("conv2d", 56, 256, 3),
        ("conv2d", 28, 512, 3),
        ("conv1x1_as_mm", 56, 512, 1),
    ):
        pad = window // 2
        problem = conv2d(
            16, channels, (edge, edge), channels, (window, window), padding=(pad, pad), dtype="bf16",
            order_x=last, order_w=last, order_out=last,
        )  # fmt: skip
        work = 2 * 16 * edge**2 * channels**2 * window**2 / 1e9
        contests.append(Contest(kernel, problem, functools.partial(_conv2d, pad), "cuDNN", work))
    return contests


def _conv2d(padding: int, t: Tensors) -> Call:
    return lambda: torch.nn.functional.conv2d(t["x"], t["w"], padding=padding)


def attentions() -> list[Contest]:
    """Forward and backward in bf16 against scaled_dot_product_attention, two head dims, causal and not; decode."""
    contests = []
    for head_dim, causal in ((64, False), (64, True), (128, False), (128, True)):
        mask = Mask("causal") if causal else Mask()
        work = 4 * 4 * 16 * 4096**2 * head_dim / 1e9 / (2 if causal else 1)
        forward = Attention("attention", 4, 16, 4096, 4096, head_dim, "bf16", mask=mask)
        backward = dataclasses.replace(forward, op="attention_backward")
        contests.append(Contest("attention", forward, functools.partial(_sdpa, causal), "SDPA", work))
        gradients = functools.partial(_sdpa_backward, causal)
        contests.append(Contest("attention_backward", backward, gradients, "SDPA backward", 2.5 * work, graph=False))
    decode = Attention("attention", 8, 32, 1, 16384, 128, "bf16", kv_heads=8)
    contests.append(Contest("attention_decode", decode, _sdpa_grouped, "SDPA", 4 * 8 * 32 * 16384 * 128 / 1e9))
    return contests


def _sdpa(causal: bool, t: Tensors) -> Call:
    return lambda: torch.nn.functional.scaled_dot_product_attention(t["q"], t["k"], t["v"], is_causal=causal)


def _sdpa_grouped(t: Tensors) -> Call:
    return lambda: torch.nn.functional.scaled_dot_product_attention(t["q"], t["k"], t["v"], enable_gqa=True)


def _sdpa_backward(causal: bool, t: Tensors) -> Call:
    """The gradients alone: the forward pass is made here."""
    q, k, v = (t[name].detach().requires_grad_() for name in "qkv")
    out = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=causal)
    return lambda: torch.autograd.grad(out, (q, k, v), t["grad_out"], retain_graph=True)


def _repeat(call: Call) -> None:
    for _ in range(LAUNCHES):
        call()


class Timed:
    """LAUNCHES calls captured in a CUDA graph, so that what is timed is the device and not the host that launches;
    without ``graph`` they are made one after the other, which is right for calls of milliseconds."""

    def __init__(self, call: Call, graph: bool = True) -> None:
        call()  # whatever is set up on first use is not captured
        torch.cuda.synchronize()
        self._replay: Call = functools.partial(_repeat, call)
        if graph:
            captured = torch.cuda.CUDAGraph()
            with torch.cuda.graph(captured):
                _repeat(call)
            self._replay = captured.replay

    def milliseconds(self) -> float:
        """Mean device time of one call, by device events around one replay."""
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        self._replay()
        end.record()
        torch.cuda.synchronize()
        return float(start.elapsed_time(end)) / LAUNCHES


def plans(kernel: Kernel, problem: Problem, target: Target) -> list[Plan]:
    """Returns every config of the kernel. Descriptor kernels come with each descriptor, subtile and loop form that
    applies, and a descriptor store. Others come with sizes that are constants and that are not."""
    variants = [Variant(), Variant(static=True)]
    if kernel.descriptors:
        forms = itertools.product(("device", "host"), (1, 2, 4), (False, True))
        variants = [Variant(where, True, subtile, flatten) for where, subtile, flatten in forms]
    accepted = []
    for config, variant in itertools.product(_configs(kernel, target), variants):
        if kernel.likely_refusal(kernel.draft(problem, config, target, variant)) is None:
            accepted.append(kernel.plan(problem, config, target, variant))
    return accepted


def _configs(kernel: Kernel, target: Target) -> tuple[AnyConfig, ...]:
    """Returns the kernel's rows, and the configs that are used on this target without a search."""
    return tuple(dict.fromkeys((*kernel.configs, *kernel.default_configs(target))))


def launch_all(launch: Launch) -> None:
    """Launches everything that belongs to ``launch``, without waiting for it."""
    for step in launch.steps:
        step.function[step.grid](**step.arguments, **step.options)


def run(contest: Contest, executor: DeviceExecutor, target: Target, pool: CompilePool, rounds: int) -> list[str]:
    """Lines of the report for one contest: the fastest configs, and the best ratio over ``rounds`` rounds.

    A config that does not compile for ``target`` is left out; one that the device refuses is printed and left out."""
    kernel, problem = catalogue.get(contest.kernel), contest.problem
    tensors = random_tensors(problem, executor.device)
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
        timed[plan] = Timed(functools.partial(launch_all, launch), contest.graph)
    library = Timed(contest.library(tensors), contest.graph)
    times = {plan: min(call.milliseconds() for _ in range(2)) for plan, call in timed.items()}
    fastest = sorted(times, key=times.__getitem__)[:FINALISTS]
    lines, ratios = [], {}
    for plan in fastest:
        pairs = [(timed[plan].milliseconds(), library.milliseconds()) for _ in range(rounds)]
        ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
        ratios[plan] = statistics.median(other / own for own, other in pairs)
        lines.append(
            f"  {plan.config.id:20} {plan.variant.id:20} {contest.operations / ours:6.0f} TFLOP/s, "
            f"{contest.library_name} {contest.operations / theirs:6.0f}, ratio {ratios[plan]:.3f}"
        )
    best = max(ratios, key=ratios.__getitem__)
    lines.append(
        f"{problem.id}: ratio {ratios[best]:.3f} with {best.config.id} {best.variant.id} "
        f"(median of {rounds} rounds in turn with {contest.library_name})"
    )
    return lines


def chosen_contests(only: Sequence[str] | None, sizes: Sequence[int]) -> list[Contest]:
    """Returns the contests of the named kinds, or of all of them."""
    kinds: dict[str, Callable[[], list[Contest]]] = {
        "products": lambda: products(sizes),
        "convolutions": convolutions,
        "attentions": attentions,
    }
    return [contest for kind, make in kinds.items() if only is None or kind in only for contest in make()]


def report(
    executor: DeviceExecutor, only: Sequence[str] | None, sizes: Sequence[int], rounds: int, workers: int
) -> None:
    """Prints the report of the contests of the kinds ``only``, or of all; ``workers`` processes compile."""
    target = targets.devices()[0]
    with CompilePool(workers) as pool:
        for contest in chosen_contests(only, sizes):
            print("\n".join(run(contest, executor, target, pool, rounds)), flush=True)
