"""The grid of attention kernels, and the tiles that their code multiplies."""

from __future__ import annotations

from typing import Any

from conformance.families.attention.problem import Attention
from conformance.families.launch_tiles import CodeTile, Tiles, whole
from conformance.heuristics.configs import AnyConfig, FlexBackwardConfig, FlexConfig


def tiles(problem: Attention, config: Any) -> Tiles:
    """Returns one tile for each element of the batch: :func:`grid` counts in queries or keys."""
    return (1, 1, problem.batch)


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...]:
    """Returns the programs of a forward kernel by queries, of a backward kernel by keys. A kernel for few queries that
    is not told into how many parts it splits the keys takes about two programs for each free multiprocessor."""
    problem, config = plan.problem, plan.config
    if kernel.few_queries:
        pairs = problem.batch * problem.key_heads
        return (pairs, plan.variant.splits or max(1, free // pairs * 2), 1)
    if problem.backward:
        return (-(-problem.keys // config.block_n), problem.key_batch, problem.key_heads)
    sequences = problem.mask.size if problem.mask.packed else problem.batch
    return (-(-problem.queries // config.block_m), sequences, problem.heads)


def code_tiles(kernel: Any, plan: Any, launch: str) -> set[CodeTile] | None:
    """Returns the tiles of all products in the code of one launch: the main one, "", or the backward one for q."""
    if launch not in ("", "attention_backward_queries"):
        return None
    problem, config = plan.problem, plan.config
    return _gradients(problem, config, launch) if problem.backward else _outputs(problem, config)


def _outputs(problem: Attention, config: AnyConfig) -> set[CodeTile]:
    """Scores, which sum over the head dim, and outputs, which sum over keys. With few queries one tile holds those of
    all heads that share a head of k."""
    shared = problem.heads // problem.key_heads
    rows: int = getattr(config, "block_m", None) or whole(problem.queries * shared)
    keys: int = config.block_n  # type: ignore[attr-defined]
    return {(rows, keys, whole(problem.head_dim)), (rows, whole(problem.values_dim), keys)}


def _gradients(problem: Attention, config: AnyConfig, launch: str) -> set[CodeTile]:
    """Returns the tiles of scores and gradients of weights, and of the sums of what these are multiplied with. The
    launch for k and v sums over queries, that for q over keys."""
    assert isinstance(config, FlexConfig)
    dim, value_dim = whole(problem.head_dim), whole(problem.values_dim)
    if not launch:
        keys, queries = config.block_n, config.block_m
        scores = {(keys, queries, dim), (keys, queries, value_dim)}
        return scores | {(keys, dim, queries), (keys, value_dim, queries)}
    queries, keys = config.block_n, config.block_m
    if isinstance(config, FlexBackwardConfig):
        queries, keys = config.block_m2, config.block_n2
    return {(queries, keys, dim), (queries, keys, value_dim), (queries, dim, keys)}
