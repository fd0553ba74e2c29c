"""The grid of kernels with packed 4-bit weights."""

from __future__ import annotations

import math
from typing import Any

from conformance.families.int4.problem import Int4Gemm
from conformance.families.launch_tiles import Tiles, tiles_of


def tiles(problem: Int4Gemm, config: Any) -> Tiles | None:
    """Returns the tiles of the output."""
    return tiles_of(problem.M, problem.N, config)


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...]:
    """Returns one program for each tile."""
    return (math.prod(tiles),)
