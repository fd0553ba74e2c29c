"""Linear maps over bits: which element of a tensor a register of a lane, or an offset in memory, holds.

Every size of a layout is a power of two. The coordinates of a number are the exclusive or of those of its set bits. So
a map is a list of coordinates, its bases: one for each bit of each holder ("register", "lane", "warp", "block", or
"offset" for memory). A basis of zeros means that the bit changes nothing: what the two holders hold is the same
element.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

Basis = tuple[int, ...]


@dataclass(frozen=True)
class LinearMap:
    """A map from holders to coordinates in ``shape``; ``bases`` are pairs of a holder's name and its bases in order."""

    shape: tuple[int, ...]
    bases: tuple[tuple[str, tuple[Basis, ...]], ...]

    def of(self, holder: str) -> tuple[Basis, ...]:
        """Returns the bases of ``holder``, none if the map lacks it."""
        return dict(self.bases).get(holder, ())

    @functools.cached_property
    def _flat(self) -> dict[str, tuple[int, ...]]:
        return {holder: tuple(flat_index(basis, self.shape) for basis in bases) for holder, bases in self.bases}

    def flat(self, holder: str) -> tuple[int, ...]:
        """Returns the bases of ``holder`` as the number of the element, its last dimension running fastest."""
        return self._flat.get(holder, ())

    def elements(self, *holders: str) -> Any:
        """Returns the number of the element that each holder holds: an array with one dimension of each of
        ``holders``."""
        numbers: Any = np.zeros(1, np.int64)
        for holder in holders:
            one: Any = np.zeros(1, np.int64)
            for value in self.flat(holder):
                one = np.concatenate([one, one ^ value])
            numbers = numbers[..., None] ^ one
        return numbers[0]

    def rank(self, *holders: str) -> int:
        """Returns the number of bits of the tensor's elements that ``holders`` tell apart; all holders if none is
        named."""
        rows: list[int] = []
        for holder, _ in self.bases:
            for value in self.flat(holder) if holder in holders or not holders else ():
                rest = functools.reduce(lambda left, row: min(left, left ^ row), rows, value)
                if rest:
                    rows.append(rest)
        return len(rows)

    @functools.cached_property
    def covers(self) -> bool:
        """True if every element of the tensor is held."""
        return 1 << self.rank() == math.prod(self.shape)

    @functools.cached_property
    def repeats_by_zeros_alone(self) -> bool:
        """True if the holders of one element differ in bits that change nothing, and not in several that cancel."""
        return self.rank() == sum(any(basis) for _, bases in self.bases for basis in bases)

    def moved(self, shape: Sequence[int], take: Callable[[Basis], Basis]) -> LinearMap:
        """The map whose bases are ``take`` of these bases, in a tensor of ``shape``."""
        return LinearMap(tuple(shape), tuple((holder, tuple(map(take, bases))) for holder, bases in self.bases))

    def transposed(self, order: Sequence[int]) -> LinearMap:
        """The map of the tensor whose dimension i is dimension ``order[i]`` of this one."""
        return self.moved([self.shape[axis] for axis in order], lambda basis: tuple(basis[axis] for axis in order))

    def reshaped(self, shape: Sequence[int]) -> LinearMap:
        """Returns the map of the same elements in the same order, read as ``shape``."""
        return self.moved(shape, lambda basis: coordinates(flat_index(basis, self.shape), shape))

    def without(self, axis: int) -> LinearMap:
        """Returns the map of one slice along ``axis``. Registers that hold what another one holds are gone."""
        shape = [*self.shape[:axis], *self.shape[axis + 1 :]]
        slices = self.moved(shape, lambda basis: (*basis[:axis], *basis[axis + 1 :]))
        return slices.without_zero_registers

    @functools.cached_property
    def without_zero_registers(self) -> LinearMap:
        """This map with each register that only repeats another one left out."""
        kept = ((holder, tuple(b for b in bases if holder != "register" or any(b))) for holder, bases in self.bases)
        return LinearMap(self.shape, tuple(kept))


def flat_index(coordinate: Iterable[int], shape: Sequence[int]) -> int:
    """Returns the number of the element at ``coordinate``, the last dimension running fastest.

    >>> flat_index((1, 2), (4, 8))
    10
    """
    flat = 0
    for index, size in zip(coordinate, shape, strict=True):
        flat = flat * size + index
    return flat


def coordinates(flat: int, shape: Sequence[int]) -> Basis:
    """Returns the coordinates of element number ``flat`` in ``shape``.

    >>> coordinates(10, (4, 8))
    (1, 2)
    """
    indices = []
    for size in reversed(shape):
        flat, index = divmod(flat, size)
        indices.append(index)
    return tuple(reversed(indices))


class MapBuilder:
    """Builds the map of a layout from its innermost bits outwards: each bit that is added to an axis doubles it."""

    def __init__(self, rank: int, holders: Sequence[str] = ("register", "lane", "warp", "block")) -> None:
        self.sizes = [1] * rank
        self.bases: dict[str, list[Basis]] = {holder: [] for holder in holders}

    def add(self, holder: str, axis: int, count: int) -> None:
        """The next bits of ``holder`` number ``count`` places along ``axis``."""
        while count > 1:
            self.bases[holder].append(tuple(self.sizes[axis] * (other == axis) for other in range(len(self.sizes))))
            self.sizes[axis] *= 2
            count //= 2

    def repeat(self, holder: str, count: int) -> None:
        """The next bits of ``holder`` change nothing: ``count`` of them hold the same."""
        self.bases[holder] += [(0,) * len(self.sizes)] * (count.bit_length() - 1)

    def fill(self, holder: str, axis: int, size: int) -> None:
        """The next bits of ``holder`` go on along ``axis`` until it has ``size`` places."""
        self.add(holder, axis, size // self.sizes[axis])

    def finished(self, shape: Sequence[int], order: Sequence[int], blocks: Sequence[Sequence[int]] = ()) -> LinearMap:
        """Returns the map of a tensor of ``shape``. Where the layout is larger its places repeat, where it is smaller
        registers go on, along the axes in ``order``. ``blocks`` are the bases of the cluster's blocks, in numbers of
        blocks."""
        own = own_shape(shape, blocks)
        for axis in order:
            self.fill("register", axis, own[axis])
        return with_blocks(self.bases, blocks, own, shape)


def own_shape(shape: Sequence[int], blocks: Sequence[Sequence[int]]) -> list[int]:
    """The part of ``shape`` that one block of a cluster has; ``blocks`` are their bases, in numbers of blocks.

    >>> own_shape((128, 64), [(1, 0)])
    [64, 64]
    """
    return [max(1, size // max([1, *(2 * basis[axis] for basis in blocks)])) for axis, size in enumerate(shape)]


def with_blocks(
    bases: Mapping[str, Iterable[Sequence[int]]],
    blocks: Sequence[Sequence[int]],
    own: Sequence[int],
    shape: Sequence[int],
) -> LinearMap:
    """Returns the map of all blocks of a cluster. ``bases`` are those of the part of one block, whose shape is
    ``own``."""
    spread = [tuple(value * size for value, size in zip(basis, own, strict=True)) for basis in blocks]
    return map_of(shape, {**{holder: clipped(unclipped, own) for holder, unclipped in bases.items()}, "block": spread})


def clipped(bases: Iterable[Sequence[int]], shape: Sequence[int]) -> tuple[Basis, ...]:
    """``bases`` with zeros for what lies outside of ``shape``: places that only repeat others."""
    return tuple(tuple(value * (value < size) for value, size in zip(basis, shape, strict=True)) for basis in bases)


def map_of(shape: Sequence[int], bases: Mapping[str, Iterable[Sequence[int]]]) -> LinearMap:
    """A map whose bases are written out. What lies outside of ``shape`` is zero."""
    return LinearMap(tuple(shape), tuple((holder, clipped(unclipped, shape)) for holder, unclipped in bases.items()))
