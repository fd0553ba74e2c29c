"""The layouts that TTGIR names, and linear maps over bits: which element a register or a place in memory holds.

Which element each register or place in memory holds is in :mod:`conformance.ttgir.register_maps` and
:mod:`conformance.ttgir.register_maps`.

Every size of a layout is a power of two. The coordinates of a number are the exclusive or of those of its set bits. So
a map is a list of coordinates, its bases: one for each bit of each holder ("register", "lane", "warp", "block", or
"offset" for memory). A basis of zeros means that the bit changes nothing: what the two holders hold is the same
element.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from conformance.ttgir.text import split_outside

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


class UnknownLayout(Exception):
    """A layout, or a form of one, that is in no table here; the message names it."""


@dataclass(frozen=True, eq=False)
class TtgirLayout:
    """One layout: ``kind`` such as "blocked", and what its words say. Layouts in it are read, numbers are ints. Two are
    equal if their texts are, with every alias replaced."""

    kind: str
    words: Mapping[str, Any]
    text: str

    def __getitem__(self, word: str) -> Any:
        if word not in self.words:
            raise UnknownLayout(f"{self.kind} without {word}: {self.text}")
        return self.words[word]

    def get(self, word: str, otherwise: Any = None) -> Any:
        return self.words.get(word, otherwise)

    def __hash__(self) -> int:
        return hash(self.text)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, TtgirLayout) and self.text == other.text


_FORM = re.compile(r"#([\w.]+)(?:<(.*)>)?$", re.DOTALL)


def layout_of(text: str, aliases: Mapping[str, str]) -> TtgirLayout:
    """Returns the layout that ``text`` spells or names, each alias replaced by what ``aliases`` has for it. Raises
    UnknownLayout for text of another form."""
    return _read(_expanded(text.strip(), aliases))


def _expanded(text: str, aliases: Mapping[str, str]) -> str:
    def one(match: re.Match[str]) -> str:
        name = match[0]
        return _expanded(aliases[name], aliases) if name in aliases else name

    return re.sub(r"#\w+(?![\w.<])", one, text)


@functools.lru_cache(maxsize=4096)
def _read(text: str) -> TtgirLayout:
    match = _FORM.match(text)
    if match is None:
        raise UnknownLayout(text)
    kind, inside = match[1].rpartition(".")[2], (match[2] or "").strip()
    words: dict[str, Any] = {}
    if kind == "padded_shared":
        intervals, _, inside = inside.partition("]")
        words["padding"] = [tuple(map(int, pair.split(":+"))) for pair in split_outside(intervals.strip("["))]
        inside = inside.strip()
    parts = split_outside(inside)
    if parts and parts[0].startswith("{"):
        parts = [*split_outside(parts[0][1:-1]), *parts[1:]]
    for part in parts:
        word, equals, value = part.partition(" = ")
        if not equals:
            raise UnknownLayout(text)
        words[word.strip()] = _value(value.strip())
    return TtgirLayout(kind, words, text)


def _value(text: str) -> Any:
    if text.startswith("["):
        return [_value(part) for part in split_outside(text[1:-1])]
    if text.startswith("{"):
        parts = (part.partition(" = ") for part in split_outside(text[1:-1]))
        return {word.strip(): _value(value.strip()) for word, _, value in parts}
    if text.startswith("#"):
        return _read(text)
    if text in ("true", "false"):
        return text == "true"
    return int(text) if re.fullmatch(r"-?\d+", text) else text


def cluster_bases(layout: TtgirLayout) -> list[Sequence[int]]:
    """Returns the bases of a cluster's blocks, in numbers of blocks along each axis."""
    if layout.get("CGALayout") is not None:
        return list(layout["CGALayout"])
    if layout.kind == "tensor_memory_encoding":
        blocks = MapBuilder(2, ("block",))
        blocks.add("block", 0, layout.get("CTASplitM", 1))
        blocks.add("block", 1, layout.get("CTASplitN", 1))
        return list(blocks.bases["block"])
    if layout.get("CTAsPerCGA") is None:
        return []
    blocks = MapBuilder(len(layout["CTAsPerCGA"]), ("block",))
    for axis in layout["CTAOrder"]:
        blocks.add("block", axis, layout["CTASplitNum"][axis])
        blocks.repeat("block", layout["CTAsPerCGA"][axis] // layout["CTASplitNum"][axis])
    return list(blocks.bases["block"])
