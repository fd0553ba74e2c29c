"""The tiles that the code of a shipped kernel multiplies, from the problem and the config alone.

A block size that is replaced by another computes the same numbers, in another time: only the code tells.
"""

from __future__ import annotations

from conformance.heuristics.configs import AnyConfig, FlexBackwardConfig
from conformance.kernels.kernel import Plan
from conformance.problems import Attention

#: Rows, columns and the extent that is summed over, of one product of tiles.
Tile = tuple[int, int, int]
#: The smallest tile that Triton multiplies, in every direction.
LEAST = 16


def product_tiles(plan: Plan, launch: str = "") -> set[Tile] | None:
    """The tiles of all products in the code of one launch of ``plan``: the main one, "", or one with the name of its
    function. None if there is no formula for it here."""
    problem, config = plan.problem, plan.config
    if isinstance(problem, Attention):
        return _attention(problem, config, launch)
    sizes = [getattr(config, name, None) for name in ("block_m", "block_n", "block_k")]
    if launch or None in sizes:
        return None
    return {(sizes[0], sizes[1], sizes[2])}  # type: ignore[arg-type]


def _attention(problem: Attention, config: AnyConfig, launch: str) -> set[Tile] | None:
    """Scores sum over the head dim, outputs over keys, gradients of k and v over queries. A program that has the block
    of keys multiplies their tiles from the left."""
    dim, value_dim = _whole(problem.head_dim), _whole(problem.values_dim)
    block_m, block_n = getattr(config, "block_m", None), config.block_n  # type: ignore[attr-defined]
    if launch == "attention_backward_queries":
        own, other = config.tile[2:] if isinstance(config, FlexBackwardConfig) else (block_n, block_m)
        return {(own, other, dim), (own, other, value_dim), (own, dim, other)}
    if launch:
        return None
    if problem.backward:
        return {(block_n, block_m, dim), (block_n, block_m, value_dim)} | {
            (block_n, dim, block_m),
            (block_n, value_dim, block_m),
        }
    rows = block_m or _whole(problem.queries * problem.heads // problem.key_heads)
    return {(rows, block_n, dim), (rows, value_dim, block_n)}


def _whole(extent: int) -> int:
    """The extent of the tile that holds ``extent`` elements."""
    return max(1 << (extent - 1).bit_length(), LEAST)
