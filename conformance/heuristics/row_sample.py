"""A row sample: few rows that stand for a table."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TypeVar

from conformance.heuristics.configs import AnyConfig

C = TypeVar("C", bound=AnyConfig)
T = TypeVar("T")


def covering_sample(configs: Sequence[C]) -> tuple[C, ...]:
    """A fixed sample of ``configs`` in which every tile size, stage count and warp count of the table appears."""
    return cover(configs, _traits)


def cover(items: Sequence[T], traits: Callable[[T], set[Hashable]]) -> tuple[T, ...]:
    """A fixed sample of ``items`` that has every trait of theirs.

    Each step takes the item that adds most of what is missing; ties go to the item listed first.
    """
    missing = set[Hashable]().union(*map(traits, items))
    sample: list[T] = []
    while missing:
        best = max(items, key=lambda item: len(traits(item) & missing))
        sample.append(best)
        missing -= traits(best)
    return tuple(sample)


def _traits(config: AnyConfig) -> set[Hashable]:
    return {("tile", config.tile), ("stages", config.num_stages), ("warps", config.num_warps)}
