"""The grid that a shipped kernel must launch, from the problem and the config alone.

A kernel plans its own grid, and the trial compares the one that ran with it. These formulas are a second opinion about
the plan: a program too many or too few shows here even where it changes no number.
"""

from __future__ import annotations

import math
from typing import Any

from conformance.families.attention.problem import Attention
from conformance.families.conv.problem import Conv
from conformance.families.gemm.problem import Gemm
from conformance.families.grouped.problem import GroupedGemm
from conformance.families.int4.problem import Int4Gemm
from conformance.families.linear_attention.problem import LinearAttention
from conformance.families.microscaled.problem import MicroscaledGemm
from conformance.families.microscaled_grouped.problem import MicroscaledGroupedGemm
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.heuristics.configs import AnyConfig, BatchConfig, DepthwiseConfig
from conformance.kernels.kernel import Kernel, Plan


def expected_grid(kernel: Kernel, plan: Plan, reserve: int) -> tuple[int, ...] | None:
    """Programs in each dimension; None for a family or a choice of splits that has no formula here.

    A persistent kernel has one program for each multiprocessor that is not held back by ``reserve``, one at least, and
    never more than tiles; one whose programs share tiles has never more than blocks of K."""
    problem, config, variant = plan.problem, plan.config, plan.variant
    if isinstance(problem, LinearAttention):
        return (-(-problem.value_dim // config.block_v), problem.heads, problem.batch)
    tiles = _tiles(problem, config)
    if tiles is None:
        return None
    batch = 1 if getattr(problem, "batch", None) is None or isinstance(problem, Conv) else problem.batch
    free = max((variant.sms or plan.target.limits.multiprocessors or 1) - reserve, 1)
    if getattr(kernel, "shares_k", False):
        return (min(free, math.prod(tiles) * max(-(-problem.K // config.block_k), 1)),)
    if kernel.persistent:
        return (min(free, math.prod(tiles) * batch),)
    if isinstance(problem, Int4Gemm):
        return (math.prod(tiles),)
    if isinstance(problem, Gemm):
        one = math.prod(tiles)
        if kernel.family == "split-k":
            return (one, variant.splits) if variant.splits else None
        return (one if problem.batch is None else one * problem.batch,)
    if isinstance(problem, MicroscaledGemm) and isinstance(config, BatchConfig):
        return (math.prod(tiles) * -(-batch // config.matrices),)
    if isinstance(problem, MicroscaledGemm):
        return (math.prod(tiles),) if problem.batch is None else (math.prod(tiles), problem.batch)
    if isinstance(problem, Conv):
        if getattr(kernel, "depthwise", False):
            return tiles
        if getattr(kernel, "phases", False):
            each = [-(-size // step) for size, step in zip(problem.out_size, problem.stride, strict=True)]
            rows = -(-problem.batch * math.prod(each) // config.block_m)
            return (math.prod(problem.stride) * rows, tiles[1], problem.groups)
        return (math.prod(tiles),) if getattr(kernel, "pointwise", False) else (*tiles, problem.groups)
    if isinstance(problem, WeightGradient):
        return (*tiles, problem.groups)
    if isinstance(problem, Attention):
        return _attention(kernel, problem, plan, free)
    return None


def _tiles(problem: Any, config: AnyConfig) -> tuple[int, int] | None:
    """Tiles of the output: (rows, columns) of blocks of one matrix."""
    if isinstance(problem, Attention):
        return (1, 1)
    block_m, block_n = (getattr(config, name, None) for name in ("block_m", "block_n"))
    if not block_m or not block_n:
        return None
    if isinstance(problem, (Gemm, Int4Gemm, MicroscaledGemm)):
        rows, columns = problem.M, problem.N
        if problem.op == "mm_with_sums":  # the rows are summed though there is no column
            columns = max(columns, 1)
    elif isinstance(problem, Conv):
        rows, columns = problem.batch * math.prod(problem.out_size), problem.out_channels // problem.groups
        if isinstance(config, DepthwiseConfig):  # one channel a group: a tile has channels of many groups
            columns = problem.out_channels
    elif isinstance(problem, WeightGradient):
        _, channels, *kernel = problem.output.shape
        rows, columns = problem.forward.out_channels // problem.groups, channels * math.prod(kernel)
    elif isinstance(problem, (GroupedGemm, MicroscaledGroupedGemm)):
        return _most_grouped(problem, block_m, block_n)
    else:
        return None
    return -(-rows // block_m), -(-columns // block_n)


def _most_grouped(problem: GroupedGemm | MicroscaledGroupedGemm, block_m: int, block_n: int) -> tuple[int, int]:
    """The host does not know the groups' sizes: of the dimension that is split, every group has one ragged tile at
    most, and no tile is empty."""
    rows, columns = problem.extent("M") if problem.ragged != "K" else problem.M or 0, problem.N or 0
    if problem.ragged == "M":
        return min(rows // block_m + problem.groups, rows), -(-columns // block_n)
    if problem.ragged == "N":
        total = problem.extent("N")
        return -(-(problem.M or 0) // block_m), min(total // block_n + problem.groups, total)
    return -(-(problem.M or 0) // block_m) * problem.groups, -(-columns // block_n)


def _attention(kernel: Kernel, problem: Attention, plan: Plan, free: int) -> tuple[int, ...]:
    """A decoding kernel that is not told how many parts the keys have takes two programs for each free SM, or so."""
    config = plan.config
    if "decode" in kernel.name:
        pairs = problem.batch * problem.key_heads
        return (pairs, plan.variant.splits or max(1, free // pairs * 2), 1)
    if problem.backward:
        return (-(-problem.keys // config.block_n), problem.key_batch, problem.key_heads)
    sequences = problem.mask.size if problem.mask.packed else problem.batch
    return (-(-problem.queries // config.block_m), sequences, problem.heads)
