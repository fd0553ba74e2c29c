"""Common parts of every operation of TTGIR: how it is called, how its operands are written, and what running it
gives."""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from conformance.ttgir.arithmetic import UnknownOperation
from conformance.ttgir.formats import size_of, type_of
from conformance.ttgir.machine import Agent, Promise
from conformance.ttgir.memory import ProgramFault
from conformance.ttgir.text import Operation, split_outside

Names = dict[str, Any]
#: What TMA copies are in whole multiples of.
TMA_BYTES = 16
#: One operation, ready to run: it returns what must be run to its end, if it can wait.
Step = Callable[[Agent, Names], "Generator[None, None, Any] | None"]


@dataclass(frozen=True)
class Descriptor:
    """A tensor as TMA sees it: where it begins, its sizes, and the box that one copy moves. ``pitches`` are the bytes
    from one element to the next along each dimension. Dimensions are outermost first. One that was moved has
    ``starts``, and copies nothing unless it is ``enabled``."""

    base: int
    sizes: tuple[int, ...]
    pitches: tuple[int, ...]
    element: str
    box: tuple[int, ...] = ()
    starts: tuple[int, ...] = ()
    enabled: bool = True

    @property
    def origin(self) -> tuple[int, ...]:
        """Returns the coordinates at which the box of a copy without coordinates begins."""
        return self.starts or (0,) * len(self.sizes)

    def addresses(self, starts: list[int], box: tuple[int, ...]) -> tuple[Any, Any]:
        """Addresses of a box at ``starts``, and which of them are inside of the tensor."""
        where, inside = np.zeros(box, np.int64) + self.base, np.ones(box, np.bool_)
        for axis, (start, size, pitch) in enumerate(zip(starts, self.sizes, self.pitches, strict=True)):
            index = np.arange(start, start + box[axis], dtype=np.int64)
            shape = [1] * len(box)
            shape[axis] = box[axis]
            where = where + (index * pitch).reshape(shape)
            inside = inside & ((index >= 0) & (index < size)).reshape(shape)
        return where, inside

    def box_at(self, starts: list[int], shape: tuple[int, ...]) -> tuple[Any, Any]:
        """The same of a box of ``shape``, in which dimensions of one element may be left out in front."""
        return self.addresses(starts, (1,) * (len(starts) - len(shape)) + shape)

    def by_tma(self, what: str, column: int, *, stored: bool = False) -> Descriptor:
        """This tensor as TMA sees it, for a copy ``what`` that begins in ``column``. A row that is ``stored`` ends at a
        multiple of 16 bytes. Raises Fault unless its address, its pitches and the column are such multiples, too (CUDA
        driver API, cuTensorMapEncodeTiled; the column was measured on an H200)."""
        size = size_of(self.element)
        pitches = [pitch for pitch, extent in zip(self.pitches[:-1], self.sizes[:-1], strict=True) if extent > 1]
        for name, count in (("begins at", self.base), *(("has a pitch of", pitch) for pitch in pitches)):
            if count % TMA_BYTES:
                raise ProgramFault(f"{what} takes a tensor that {name} {count} bytes, no multiple of {TMA_BYTES}")
        if column * size % TMA_BYTES:
            raise ProgramFault(f"{what} begins {column * size} bytes into a row, no multiple of {TMA_BYTES}")
        units = TMA_BYTES // size
        return replace(self, sizes=(*self.sizes[:-1], -(-self.sizes[-1] // units) * units)) if stored else self

    def rows_at(self, rows: Any, column: int, width: int) -> tuple[Any, Any]:
        """Returns the same of ``width`` elements from ``column`` on in each of ``rows`` of a matrix."""
        rows, columns = np.asarray(rows).astype(np.int64), np.arange(column, column + width, dtype=np.int64)
        where = self.base + rows[:, None] * self.pitches[0] + columns[None, :] * self.pitches[1]
        inside = ((rows >= 0) & (rows < self.sizes[0]))[:, None] & ((columns >= 0) & (columns < self.sizes[1]))
        return where, inside


def taken(value: Any) -> Any:
    if isinstance(value, Promise):
        if value.pending.over:
            return value.value
        raise ProgramFault(f"the result of {value.pending.what} is read before anybody waited for it")
    return value


def called(operation: Operation) -> str:
    short = operation.name.partition(".")[2]
    return f"{short} ({operation.place})" if operation.place else short


def parts_of(operation: Operation) -> list[str]:
    """Its operands as they are written, brackets included, without attributes and types."""
    words = operation.words
    if not operation.tail:
        words = words[: len(words) - len(operation.types)].rstrip().removesuffix(":")
    return split_outside(re.sub(r"<?\{[^{}]*\}>?\s*$", "", words.strip()).strip())


def pointee(text: str) -> str:
    kind = type_of(text)
    if kind.pointee is None:
        raise UnknownOperation(f"a pointer of type {text}")
    return kind.pointee


def nothing(operation: Operation) -> Step:
    return lambda agent, names: None
