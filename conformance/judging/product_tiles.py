"""The tiles that the code of a shipped kernel multiplies, from the problem and the config alone.

A block size that is replaced by another computes the same numbers, in another time: only the code tells.
"""

from __future__ import annotations

from conformance.families.attention.problem import Attention
from conformance.families.linear_attention.problem import LinearAttention
from conformance.heuristics.configs import AnyConfig, FlexBackwardConfig, FlexConfig
from conformance.kernels.kernel import Plan

#: Rows, columns and the extent that is summed over, of one product of tiles.
Tile = tuple[int, int, int]
#: The smallest tile that Triton multiplies, in every direction.
LEAST = 16


def product_tiles(plan: Plan, launch: str = "") -> set[Tile] | None:
    """Returns the tiles of all products in the code of one launch of ``plan``: the main one, "", or one with the name
    of its function. None if there is no formula for it here."""
    problem, config = plan.problem, plan.config
    if isinstance(problem, Attention):
        if launch not in ("", "attention_backward_queries"):
            return None
        return _gradients(problem, config, launch) if problem.backward else _outputs(problem, config)
    if isinstance(problem, LinearAttention):
        return _states(problem, config, transposed=plan.kernel == "linear_attention_transposed")
    rows, columns, depth = (getattr(config, name, 0) for name in ("block_m", "block_n", "block_k"))
    return {(rows, columns, depth)} if rows and columns and depth and not launch else None


def _outputs(problem: Attention, config: AnyConfig) -> set[Tile]:
    """Scores, which sum over the head dim, and outputs, which sum over keys. With few queries one tile holds those of
    all heads that share a head of k."""
    shared = problem.heads // problem.key_heads
    rows: int = getattr(config, "block_m", None) or _whole(problem.queries * shared)
    keys: int = config.block_n  # type: ignore[attr-defined]
    return {(rows, keys, _whole(problem.head_dim)), (rows, _whole(problem.values_dim), keys)}


def _gradients(problem: Attention, config: AnyConfig, launch: str) -> set[Tile]:
    """Scores and gradients of weights, and the sums of what these are multiplied with: of the launch for k and v over
    queries, of that for q over keys."""
    assert isinstance(config, FlexConfig)
    dim, value_dim = _whole(problem.head_dim), _whole(problem.values_dim)
    if not launch:
        keys, queries = config.block_n, config.block_m
        scores = {(keys, queries, dim), (keys, queries, value_dim)}
        return scores | {(keys, dim, queries), (keys, value_dim, queries)}
    queries, keys = config.block_n, config.block_m
    if isinstance(config, FlexBackwardConfig):
        queries, keys = config.block_m2, config.block_n2
    return {(queries, keys, dim), (queries, keys, value_dim), (queries, dim, keys)}


def _states(problem: LinearAttention, config: AnyConfig, *, transposed: bool) -> set[Tile]:
    """q times the state, q times k, scores times v, and k times v, or v times k, which is added to the state."""
    dim, t, v = _whole(problem.head_dim), config.block_t, config.block_v  # type: ignore[attr-defined]
    return {(t, v, dim), (t, t, dim), (t, v, t), (v, dim, t) if transposed else (dim, v, t)}


def _whole(extent: int) -> int:
    """Returns the extent of the tile that holds ``extent`` elements."""
    return max(1 << (extent - 1).bit_length(), LEAST)
