"""The grid of kernels with block-scaled operands."""

from __future__ import annotations

from typing import Any

from conformance.families.launch_tiles import Tiles, tiles_of
from conformance.families.microscaled.problem import MicroscaledGemm


def tiles(problem: MicroscaledGemm, config: Any) -> Tiles | None:
    """Returns the tiles of the output."""
    return tiles_of(problem.M, problem.N, config, 1 if problem.batch is None else problem.batch)


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...]:
    """Returns one program for each tile, with a dimension for the matrices of a batch; a config with ``matrices`` has
    so many of them in one program."""
    rows, columns, matrices = tiles
    in_one_program = getattr(plan.config, "matrices", None)
    if in_one_program:
        return (rows * columns * -(-matrices // in_one_program),)
    return (rows * columns,) if plan.problem.batch is None else (rows * columns, matrices)
