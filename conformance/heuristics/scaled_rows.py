"""Scaled rows: rows of a table cut down to the size of one problem."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeVar

from conformance.heuristics.configs import Config

#: The smallest tile edge of a matrix product, and the smallest BLOCK_K of one with 8-bit integers.
LEAST_EDGE, LEAST_INT8_DEPTH = 16, 32

Exclusion = Callable[[int, int, int], bool]
T = TypeVar("T")


@dataclass(frozen=True)
class Symbolic:
    """A size that is known only when the kernel runs; ``expected`` elements are assumed."""

    expected: int


Size = int | Symbolic


def scaled(
    configs: Iterable[Config],
    m: Size,
    n: Size,
    k: Size,
    *,
    scale: float = 1,
    int8: bool = False,
    exclude: Exclusion | None = None,
    hint: int | None = None,
) -> tuple[Config, ...]:
    """``configs`` with blocks cut down to an (m, k) by (k, n) product, in their order.

    A block of ``edge`` elements becomes one of max(min(int(edge * scale), P), floor). P is the next power of two of the
    product's size in that dimension, at least the floor. The floor is 16, and 32 for BLOCK_K if ``int8``. A row is left
    out if ``exclude`` is true of its three new blocks. A symbolic size is taken to be ``hint``, or without a hint what
    is expected of it. For a convolution m, n and k are batch x output positions, output channels and input channels.
    """
    floors = (LEAST_EDGE, LEAST_EDGE, LEAST_INT8_DEPTH if int8 else LEAST_EDGE)
    bounds = [max(next_power_of_2(_count(size, hint)), floor) for size, floor in zip((m, n, k), floors, strict=True)]
    rows = []
    for config in configs:
        edges = zip(config.tile, bounds, floors, strict=True)
        block_m, block_n, block_k = (max(min(int(edge * scale), bound), floor) for edge, bound, floor in edges)
        if exclude is None or not exclude(block_m, block_n, block_k):
            rows.append(dataclasses.replace(config, block_m=block_m, block_n=block_n, block_k=block_k))
    return tuple(rows)


def by_hint(candidates: Callable[[int | None], tuple[T, ...]], hints: Iterable[int]) -> dict[int | None, tuple[T, ...]]:
    """``candidates(hint)`` by hint: for no hint (None) first, then for each of ``hints``.

    A hint is left out if one before it gives the same candidates. If all sizes are known, every hint is.
    """
    groups: dict[int | None, tuple[T, ...]] = {None: candidates(None)}
    for hint in hints:
        group = candidates(hint)
        if group not in groups.values():
            groups[hint] = group
    return groups


def shallower_than(configs: Iterable[Config], k: Size) -> tuple[Config, ...]:
    """Returns the rows with BLOCK_K below ``k``. A sum of two products takes no others, because the compiler crashed
    when BLOCK_K was K (triton issue 1298). No row is below a symbolic ``k``."""
    return tuple(config for config in configs if isinstance(k, int) and config.block_k < k)


def next_power_of_2(number: int) -> int:
    """The least power of two that is not below ``number``; 1 for zero.

    >>> next_power_of_2(48), next_power_of_2(64), next_power_of_2(0)
    (64, 64, 1)
    """
    return 1 << max(number - 1, 0).bit_length()


def _count(size: Size, hint: int | None) -> int:
    if isinstance(size, int):
        return size
    return size.expected if hint is None else hint
