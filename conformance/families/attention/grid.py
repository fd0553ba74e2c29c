"""The grid of attention kernels."""

from __future__ import annotations

from typing import Any

from conformance.families.attention.problem import Attention
from conformance.families.family import Tiles


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
