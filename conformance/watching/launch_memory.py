"""The global memory of one launch, which watches each access: out of bounds, races of programs, undefined lanes.

An access outside of every tensor of the launch is noted and left out, and the launch goes on: a read gives zero there.

Two programs race for an element if one changes its value and the other reads or changes it, and no atomic operation
orders them. Programs run one after the other here. Those that meet in atomic operations on one address are
ordered by them, as vector clocks say. A store that leaves the value as it was changes nothing, so it is no race.
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from conformance.ttgir.arithmetic import UnknownOperation
from conformance.ttgir.formats import bits_type, decoded, encoded, size_of
from conformance.ttgir.memory import GlobalMemory

#: Bytes of a tensor's storage up to which races are looked for: each element takes 20 bytes more.
RACES_LIMIT = 1 << 28


@dataclass
class _Owners:
    """For each element of a storage, in units of ``size`` bytes, the programs that touched it, from 1; 0 for none.
    ``writer`` changed it last, at the time ``written`` of that program; ``reader`` read it last, ``other`` before."""

    size: int
    writer: Any
    written: Any
    reader: Any
    read: Any
    other: Any

    @classmethod
    def of(cls, length: int, size: int) -> _Owners:
        count = length // size
        return cls(size, *(np.zeros(count, np.int32) for _ in range(5)))


@dataclass
class _Storage:
    """The bytes of a storage that begins at ``start``. ``name`` is that of a parameter whose tensor lies in it."""

    start: int
    data: Any
    name: str
    size: int
    owners: _Owners | None = None

    @property
    def end(self) -> int:
        return self.start + len(self.data)


@dataclass
class Observations:
    """Holds what was seen in a launch: a sentence for each operation. ``lanes`` names operations of which lanes without
    a value were loaded, and ``places`` the programs that did. ``unraced`` says why no races were looked for."""

    strays: dict[str, str] = field(default_factory=dict)
    races: dict[str, str] = field(default_factory=dict)
    lanes: dict[str, str] = field(default_factory=dict)
    places: dict[tuple[int, int, int], None] = field(default_factory=dict)
    unraced: str = ""


class WatchedMemory(GlobalMemory):
    """The memory of one launch. ``names`` are those of its tensors, by the address at which a storage begins, with the
    bytes of an element. ``seen`` takes what is observed. ``elsewhere`` gives the bytes of memory that the launch was
    not given, by an address: a kernel may load addresses from a table. ``poison``: lanes without a value hold ones in
    all bits in place of zeros. ``copied`` are the bytes of storages, by their address, that are used in place of those
    in memory. Raises UnknownOperation once ``deadline``, of the monotonic clock, has passed.
    """

    def __init__(
        self,
        tensors: Iterable[Tensor],
        names: Mapping[int, tuple[str, int]],
        seen: Observations,
        *,
        elsewhere: Callable[[int], tuple[int, int] | None] = lambda address: None,
        poison: bool = False,
        races: bool = True,
        copied: Mapping[int, Any] | None = None,
        deadline: float = math.inf,
    ) -> None:
        super().__init__(tensors)
        self._deadline = deadline
        if copied is not None:
            self._bytes = [copied[start] for start in self._starts]
        self.seen, self._poison, self._races, self._elsewhere = seen, poison, races, elsewhere
        self._storages = [
            _Storage(start, data, *names.get(start, ("memory", 1)))
            for start, data in zip(self._starts, self._bytes, strict=True)
        ]
        self._what = ""
        self._program, self._place, self._time = 0, (0, 0, 0), 1
        self._places: list[tuple[int, int, int]] = []
        self._known: dict[int, int] = {}  # of this program: the times of others that are before what it does now
        self._clocks: dict[int, dict[int, int]] = {}  # of an address: what is before an atomic operation on it
        self._is_atomic = False

    def begin_program(self, place: tuple[int, int, int]) -> None:
        self._places.append(place)
        self._program, self._place, self._time, self._known = len(self._places), place, 1, {}

    def at_line(self, what: str) -> None:
        self._what = what
        if time.monotonic() > self._deadline:
            raise UnknownOperation("the time for one launch has passed")

    @contextmanager
    def atomic(self, addresses: Any) -> Iterator[None]:
        self._is_atomic = True
        try:
            for address in np.unique(addresses).tolist():
                self._join(self._known, self._clocks.setdefault(address, {}))
            yield
            self._known[self._program] = self._time
            for address in np.unique(addresses).tolist():
                self._join(self._clocks[address], self._known)
            self._time += 1
        finally:
            self._is_atomic = False

    @staticmethod
    def _join(clock: dict[int, int], other: Mapping[int, int]) -> None:
        for program, at in other.items():
            if clock.get(program, 0) < at:
                clock[program] = at

    def load(self, addresses: Any, mask: Any, other: Any, element: str, *, undefined: bool = False) -> Any:
        addresses = np.asarray(addresses)
        selected = np.broadcast_to(np.asarray(True if mask is None else mask), addresses.shape)
        bits = np.zeros(addresses.shape, bits_type(element))
        if other is not None:
            bits[...] = encoded(np.broadcast_to(other, addresses.shape), element)
        elif undefined and not selected.all():
            self._note(self.seen.lanes, f"{self._what} leaves lanes without a value")
            self.seen.places[self._place] = None
            if self._poison:
                bits[...] = 1 if element == "i1" else np.iinfo(bits.dtype).max
        if selected.any():
            loaded = bits[selected]
            for where, storage, index in self._parts(addresses[selected], size_of(element), "reads"):
                loaded[where] = _elements(storage, bits.dtype, index)
                if self._races:
                    self._read(storage, index, bits.dtype.itemsize)
            bits[selected] = loaded
        return decoded(bits, element)

    def store(self, addresses: Any, values: Any, mask: Any, element: str) -> None:
        addresses = np.asarray(addresses)
        selected = np.broadcast_to(np.asarray(True if mask is None else mask), addresses.shape)
        if not selected.any():
            return
        bits = encoded(np.broadcast_to(values, addresses.shape), element)[selected]
        for where, storage, index in self._parts(addresses[selected], size_of(element), "writes"):
            before = _elements(storage, bits.dtype, index)
            _set_elements(storage, index, bits[where])
            if not self._races:
                continue
            lost = _elements(storage, bits.dtype, index) != bits[where]
            if lost.any():
                text = f"{self._what}: program {self._place} stores different values to element"
                self._race(f"{text} {int(index[lost][0] // storage.size)} of {storage.name!r} at once")
            self._written(storage, index[before != bits[where]], bits.dtype.itemsize)

    def _parts(self, addresses: Any, size: int, verb: str) -> Iterator[tuple[Any, _Storage, Any]]:
        """Yields the accesses that lie in each storage: which they are, the storage, and the byte where each begins.
        Notes those that lie in none."""
        left = np.ones(addresses.shape, np.bool_)
        for storage in self._storages:
            inside = (addresses >= storage.start) & (addresses + size <= storage.end)
            if inside.any():
                left &= ~inside
                yield inside, storage, addresses[inside] - storage.start
        if not left.any():
            return
        for address in np.unique(addresses[left]).tolist():
            if left[addresses == address].any() and (span := self._elsewhere(int(address))) is not None:
                start, length = span
                data = np.ctypeslib.as_array((ctypes.c_uint8 * length).from_address(start))
                storage = _Storage(start, data, "memory whose address was loaded", 1)
                self._storages.append(storage)
                inside = left & (addresses >= start) & (addresses + size <= storage.end)
                left &= ~inside
                yield inside, storage, addresses[inside] - start
        if left.any():
            self._stray(int(addresses[left][0]), int(left.sum()), size, verb)

    def _stray(self, address: int, count: int, size: int, verb: str) -> None:
        """Notes ``count`` accesses of ``size`` bytes outside of all storages, the first at ``address``."""
        nearest = min(self._storages, key=lambda one: max(one.start - address, address - one.end), default=None)
        place = "where no tensor of the launch is"
        if nearest is not None and address < nearest.start:
            place = f"{-((address - nearest.start) // nearest.size)} elements before {nearest.name!r}"
        elif nearest is not None:
            place = f"{(address - nearest.end) // nearest.size + 1} elements behind the end of {nearest.name!r}"
        text = f"{self._what}: program {self._place} {verb} {count} elements out of bounds, the first {place}"
        self._note(self.seen.strays, text)

    def _note(self, notes: dict[str, str], text: str) -> None:
        notes.setdefault(self._what, text)

    # --- races

    def _owners(self, storage: _Storage, size: int) -> _Owners | None:
        """Returns the programs that touched ``storage``; None where they are not kept."""
        if storage.owners is None:
            if len(storage.data) > RACES_LIMIT:
                self.seen.unraced = f"{storage.name!r} has {len(storage.data)} bytes, {RACES_LIMIT} are followed"
                return None
            storage.owners = _Owners.of(len(storage.data), min(size, storage.size))
        if size < storage.owners.size:
            self.seen.unraced = f"{storage.name!r} is accessed in units of {storage.owners.size} and of {size} bytes"
            return None
        return storage.owners

    def _read(self, storage: _Storage, index: Any, size: int) -> None:
        owners = self._owners(storage, size)
        if owners is None:
            return
        units = index // owners.size
        writers = owners.writer[units]
        foreign = (writers != 0) & (writers != self._program)
        if foreign.any() and not self._is_atomic:
            self._compare(storage, units[foreign], writers[foreign], owners.written[units[foreign]], "reads", "changed")
        readers = owners.reader[units]
        moved = units[(readers != 0) & (readers != self._program)]
        owners.other[moved] = owners.reader[moved]
        owners.reader[units], owners.read[units] = self._program, self._time

    def _written(self, storage: _Storage, index: Any, size: int) -> None:
        """Notes that the elements at ``index`` got another value."""
        owners = self._owners(storage, size) if index.size else None
        if owners is None:
            return
        units = index // owners.size
        if not self._is_atomic:
            for other, times, verb in (
                (owners.writer[units], owners.written[units], "changed"),
                (owners.reader[units], owners.read[units], "read"),
                (owners.other[units], np.full(len(units), np.iinfo(np.int32).max), "read"),
            ):
                foreign = (other != 0) & (other != self._program)
                if foreign.any():
                    self._compare(storage, units[foreign], other[foreign], times[foreign], "changes", verb)
                    break
        owners.writer[units], owners.written[units] = self._program, self._time

    def _compare(self, storage: _Storage, units: Any, others: Any, times: Any, verb: str, did: str) -> None:
        """Notes a race if an access of another program to ``units``, at its time, is not before this one."""
        last = np.iinfo(np.int32).max
        for other in np.unique(others).tolist():
            own = others == other
            over = self._known.get(other, 0)
            late = own & (times > over) if over else own
            if over and (times[own] == last).all():
                continue  # an earlier reader, whose time is not kept: ordered somehow
            if late.any():
                element = int(units[late][0]) * (storage.owners.size if storage.owners else 1) // storage.size
                text = (
                    f"{self._what}: program {self._place} {verb} element {element} of {storage.name!r}, which program"
                )
                self._race(f"{text} {self._places[other - 1]} {did}, and nothing orders them")
                return

    def _race(self, text: str) -> None:
        self._note(self.seen.races, text)


def _elements(storage: _Storage, kind: Any, index: Any) -> Any:
    """Returns the elements of type ``kind`` (an unsigned integer) that begin at the bytes ``index``."""
    size = np.dtype(kind).itemsize
    skew = int(index[0]) % size
    if not ((index - skew) % size).any():
        usable = (len(storage.data) - skew) // size * size
        return storage.data[skew : skew + usable].view(kind)[(index - skew) // size]
    return storage.data[index[:, None] + np.arange(size)].view(kind)[:, 0]


def _set_elements(storage: _Storage, index: Any, bits: Any) -> None:
    size = bits.dtype.itemsize
    skew = int(index[0]) % size
    if not ((index - skew) % size).any():
        usable = (len(storage.data) - skew) // size * size
        storage.data[skew : skew + usable].view(bits.dtype)[(index - skew) // size] = bits
    else:
        parts = np.ascontiguousarray(bits).view(np.uint8).reshape(-1, size)
        storage.data[index[:, None] + np.arange(size)] = parts
