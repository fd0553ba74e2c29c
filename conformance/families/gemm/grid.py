"""The grid of kernels that multiply two matrices, or batches of them."""

from __future__ import annotations

from typing import Any

from conformance.families.gemm.problem import Gemm
from conformance.families.launch_tiles import Tiles, tiles_of


def tiles(problem: Gemm, config: Any) -> Tiles | None:
    """Returns the tiles of the output; sums of rows need one column of tiles even if there is no column."""
    columns = max(problem.N, 1) if len(problem.outputs) > 1 else problem.N
    return tiles_of(problem.M, columns, config, 1 if problem.batch is None else problem.batch)


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...] | None:
    """Returns one program for each tile, and for each part of K where a kernel splits K."""
    rows, columns, matrices = tiles
    if kernel.limits.splits_k:
        return (rows * columns, plan.variant.splits) if plan.variant.splits else None
    return (rows * columns * matrices,)
