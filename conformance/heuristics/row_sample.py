"""A row sample: few rows that stand for a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from conformance.heuristics.configs import AnyConfig

C = TypeVar("C", bound=AnyConfig)


def covering_sample(configs: Sequence[C]) -> tuple[C, ...]:
    """A fixed sample of ``configs`` in which every tile size, stage count and warp count of the table appears.

    Each step takes the row that adds most of what is missing; ties go to the row listed first.
    """
    missing = set[tuple[str, object]]().union(*map(_traits, configs))
    sample: list[C] = []
    while missing:
        best = max(configs, key=lambda config: len(_traits(config) & missing))
        sample.append(best)
        missing -= _traits(best)
    return tuple(sample)


def _traits(config: AnyConfig) -> set[tuple[str, object]]:
    return {("tile", config.tile), ("stages", config.num_stages), ("warps", config.num_warps)}
