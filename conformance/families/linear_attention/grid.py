"""The grid of linear attention kernels, and the tiles that their code multiplies."""

from __future__ import annotations

from typing import Any

from conformance.families.launch_tiles import CodeTile, Tiles, whole
from conformance.families.linear_attention.problem import LinearAttention


def tiles(problem: LinearAttention, config: Any) -> Tiles:
    """Returns one row of tiles, which walks through the positions, and tiles of the columns of v, for each head."""
    return (1, -(-problem.value_dim // config.block_v), problem.heads * problem.batch)


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...]:
    """Returns (tiles of the columns of v, heads, batch)."""
    return (tiles[1], plan.problem.heads, plan.problem.batch)


def code_tiles(kernel: Any, plan: Any, launch: str) -> set[CodeTile]:
    """Returns the tiles of q times the state, q times k, and scores times v. The last is that of k times v, or v times
    k, which is added to the state."""
    config, dim = plan.config, whole(plan.problem.head_dim)
    t, v = config.block_t, config.block_v
    return {(t, v, dim), (t, t, dim), (t, v, t), (v, dim, t) if kernel.transposed else (dim, v, t)}
