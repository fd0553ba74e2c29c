"""Global memory by address, and shared and tensor memory whose accesses are ordered by who waited for whom."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from torch import Tensor

from conformance.ttgir.formats import bits_type, decoded, encoded, size_of

#: What an agent or an asynchronous operation knows to be over: the time that each has reached, by its number.
Clock = dict[int, int]


class ProgramFault(Exception):
    """An action that a correct program never takes; the message names the operations and their source lines."""


class MissingFence(ProgramFault):
    """A copy or a product may not see what an agent wrote: no fence of proxies stands between."""


class NoPart(ValueError):
    """A part of a buffer that does not exist; the message says who takes it."""


def joined(first: Clock, second: Clock) -> Clock:
    """Returns the clock that is after both."""
    if len(first) < len(second):
        first, second = second, first
    both = dict(first)
    for number, time in second.items():
        if both.get(number, 0) < time:
            both[number] = time
    return both


class GlobalMemory:
    """The bytes of the tensors that a launch was given. Raises Fault for an address outside of all.

    A subclass may watch the accesses: it is told which program runs, and which accesses are one atomic operation."""

    def __init__(self, tensors: Iterable[Tensor]) -> None:
        spans: dict[int, Any] = {}
        for tensor in tensors:
            storage = tensor.untyped_storage()
            start, size = storage.data_ptr(), storage.nbytes()
            if size and start not in spans:
                spans[start] = np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(start))
        self._starts = sorted(spans)
        self._bytes = [spans[start] for start in self._starts]

    def begin_program(self, place: tuple[int, int, int]) -> None:
        """The program at ``place`` of the grid begins."""

    def at_line(self, what: str) -> None:
        """The operation ``what``, with its line of the source, accesses memory next."""

    def atomic(self, addresses: Any) -> AbstractContextManager[None]:
        """Returns a context in which loads and stores at ``addresses`` are one atomic operation."""
        return nullcontext()

    def _span(self, addresses: Any, size: int, what: str) -> tuple[Any, Any]:
        """Returns the bytes that hold all ``addresses``, and the index of each element there."""
        low, high = int(addresses.min()), int(addresses.max()) + size
        for start, data in zip(self._starts, self._bytes, strict=True):
            if start <= low and high <= start + len(data):
                index = addresses - start
                skew = int(index.flat[0]) % size
                if ((index - skew) % size).any():
                    raise ProgramFault(f"{what}: addresses of elements of {size} bytes are not {size} bytes apart")
                usable = (len(data) - skew) // size * size
                return data[skew : skew + usable], (index - skew) // size
        raise ProgramFault(f"{what} an address outside of every operand: {low:#x} to {high:#x}")

    def load(self, addresses: Any, mask: Any, other: Any, element: str, *, undefined: bool = False) -> Any:
        """Values at ``addresses`` where ``mask`` holds, else ``other`` (zero if None). ``undefined``: by Triton's words
        such lanes without ``other`` have no value."""
        addresses = np.asarray(addresses)
        selected = np.broadcast_to(np.asarray(True if mask is None else mask), addresses.shape)
        bits = np.zeros(addresses.shape, bits_type(element))
        if other is not None:
            bits[...] = encoded(np.broadcast_to(other, addresses.shape), element)
        if selected.any():
            data, index = self._span(addresses[selected], size_of(element), "reads")
            bits[selected] = data.view(bits_type(element))[index]
        return decoded(bits, element)

    def store(self, addresses: Any, values: Any, mask: Any, element: str) -> None:
        """Writes ``values`` to ``addresses`` where ``mask`` holds."""
        addresses = np.asarray(addresses)
        selected = np.broadcast_to(np.asarray(True if mask is None else mask), addresses.shape)
        if selected.any():
            data, index = self._span(addresses[selected], size_of(element), "writes")
            bits = encoded(np.broadcast_to(values, addresses.shape), element)
            data.view(bits_type(element))[index] = bits[selected]


@dataclass
class Access:
    """One access to a slot: what it touched, whose it was and when, and what to call it."""

    owner: int
    time: int
    writes: bool
    touched: Any
    what: str


@dataclass
class Buffer:
    """One allocation in shared or tensor memory: raw bits, and its recent accesses."""

    name: str
    bits: Any
    accesses: list[Access] = field(default_factory=list)


@dataclass(frozen=True)
class View:
    """A part of a buffer as one memdesc sees it: ``bits`` in their order, as an array of ``reshaped`` if that is given.
    What is ``missing`` is no part of the buffer."""

    buffer: Buffer
    bits: Any
    element: str
    missing: str = ""
    reshaped: tuple[int, ...] | None = None

    @property
    def shape(self) -> tuple[int, ...]:
        return self.bits.shape if self.reshaped is None else self.reshaped

    def as_shape(self, shape: tuple[int, ...]) -> View:
        """Returns the same elements in ``shape``. A view in which they do not lie so is only read and written whole."""
        bits = self.bits.reshape(shape)
        if bits.size and not np.may_share_memory(bits, self.bits):
            return View(self.buffer, self.bits, self.element, self.missing, shape)
        return View(self.buffer, bits, self.element, self.missing)

    def part(self, take: Any) -> View:
        """Returns the view of what ``take`` makes of the arrays, such as an index or a transposition. A part that does
        not exist is a fault of whoever touches it. Raises NotImplementedError for a part of a view that can only be
        read whole."""
        if self.reshaped is not None:
            raise NotImplementedError(f"a part of {self.buffer.name}, whose elements do not lie in that shape")
        try:
            return View(self.buffer, take(self.bits), self.element, self.missing)
        except NoPart as error:
            return View(self.buffer, self.bits[0], self.element, str(error))

    def access(self, owner: int, time: int, clock: Clock, what: str, *, writes: bool) -> None:
        """Notes an access. Raises Fault if one that conflicts with it is not over in ``clock``."""
        if self.missing:
            raise ProgramFault(f"{what} touches {self.buffer.name}, of which {self.missing}")
        buffer = self.buffer
        kept = []
        for before in buffer.accesses:
            over = clock.get(before.owner, 0) >= before.time
            conflicts = writes or before.writes
            if conflicts and not over and _overlap(before.touched, self.bits):
                verb = "writes" if writes else "reads"
                doing = "writing" if before.writes else "reading"
                raise ProgramFault(f"{what} {verb} {buffer.name}, which {before.what} may still be {doing}")
            # whoever does not know of one that is over does not know of this one either
            same = before.touched.shape == self.bits.shape and _same(before.touched, self.bits)
            if not (over and same and (writes or not before.writes)):
                kept.append(before)
        kept.append(Access(owner, time, writes, self.bits, what))
        buffer.accesses = kept

    @property
    def place(self) -> tuple[Any, ...]:
        """Returns a key of the memory: equal for views of the same elements in the same order."""
        return self.bits.__array_interface__["data"][0], self.bits.shape, self.bits.strides

    def overlaps(self, other: View) -> bool:
        """True if it shares an element with ``other``."""
        return _overlap(self.bits, other.bits)

    @property
    def written(self) -> bool:
        """True if anybody wrote an element of it, or may be about to."""
        return any(before.writes and _overlap(before.touched, self.bits) for before in self.buffer.accesses)

    def read(self) -> Any:
        """The values as they are now. Those that were not written are NaN, or the largest of an unsigned integer's
        bits."""
        return decoded(self.bits.reshape(self.shape).copy(), self.element)  # the buffer may be written later

    def write(self, values: Any) -> None:
        bits = encoded(np.broadcast_to(values, self.shape), self.element)
        self.bits[...] = bits.reshape(self.bits.shape)


def _same(first: Any, second: Any) -> bool:
    return bool(
        first.__array_interface__["data"][0] == second.__array_interface__["data"][0]
        and first.strides == second.strides
    )


def _overlap(first: Any, second: Any) -> bool:
    if not np.may_share_memory(first, second):
        return False
    try:
        work: Any = 10_000
        return bool(np.shares_memory(first, second, max_work=work))
    except np.exceptions.TooHardError:
        return True


def allocated(name: str, shape: tuple[int, ...], element: str) -> View:
    """A new buffer, of which nothing was written: its bits are ones, a NaN of every float format."""
    bits: Any = np.full(shape, np.iinfo(bits_type(element)).max, bits_type(element))
    return View(Buffer(name, bits), bits, element)
