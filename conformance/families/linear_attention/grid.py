"""The grid of linear attention kernels."""

from __future__ import annotations

from typing import Any

from conformance.families.family import Tiles
from conformance.families.linear_attention.problem import LinearAttention


def tiles(problem: LinearAttention, config: Any) -> Tiles:
    """Returns one row of tiles, which walks through the positions, and tiles of the columns of v, for each head."""
    return (1, -(-problem.value_dim // config.block_v), problem.heads * problem.batch)


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...]:
    """Returns (tiles of the columns of v, heads, batch)."""
    return (tiles[1], plan.problem.heads, plan.problem.batch)
