"""Tensors in guarded memory: the bytes around and between their elements hold poison, and a run must not change them.

Two runs with different poison must give the same output bit by bit: this catches reads outside an operand. Comparing
the memory before and after a run catches writes outside an operand and any change of an input.

The memory of many runs can be one allocation, which is filled, copied and compared as a whole.

On a device each of these steps is one operation, and what became of all runs is read back at once. Memory around and
inside the operands is as :mod:`conformance.inputs.guarded_memory` says; what it finds in one place, it finds here.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.numerics.rounding import INTEGERS_OF_SIZE
from conformance.problems import BASE_ALIGNMENT, DTYPES, Operand, Problem, itemsize

#: The byte around and between the elements of inputs. Pattern 0 is NaN in every float format (-1 as int8), pattern 1 a
#: large finite number in every float format (123 as int8).
POISON = (0xFF, 0x7B)
#: The byte in and around outputs, by pattern. It differs from POISON, so that poison from an input shows around the
#: output.
SENTINEL = (0xFE, 0x7D)
#: The fewest guarded bytes on each side. Behind an operand REDZONE_ROWS of its rows are guarded too, up to
#: REDZONE_LIMIT bytes.
REDZONE = 4096
REDZONE_ROWS = 256
REDZONE_LIMIT = 1 << 20
#: An allocation larger than this is watched only near its elements.
WHOLE_LIMIT = 1 << 26


@dataclass(frozen=True)
class Violation:
    """Changed bytes of one operand in one place.

    ``where``: "before" or "after" the operand, in a "gap" between its elements, or "inside" an input. ``count`` bytes
    changed, the first at element ``offset`` from the operand's first element. For "gap" and "inside" ``lines`` holds
    the first and the last line with a change (an index along the largest stride). ``positions`` has the first and the
    last position within a line.
    """

    operand: str
    where: str
    count: int
    offset: int
    lines: tuple[int, int] | None = None
    positions: tuple[int, int] | None = None

    def __str__(self) -> str:
        place = {"before": "before", "after": "behind", "gap": "in the gaps of", "inside": "inside"}[self.where]
        text = f"{self.count} bytes changed {place} {self.operand!r}, first at element offset {self.offset}"
        if self.lines is not None and self.positions is not None:
            text += f" (lines {self.lines[0]}..{self.lines[1]}, positions {self.positions[0]}..{self.positions[1]})"
        return text


class GuardedTensor:
    """An operand inside a larger allocation of bytes. :meth:`place` makes one.

    Allocations of up to 64 MiB and dense operands are poisoned and watched whole. In a larger allocation whose lines
    lie far apart, only a band of 4 KiB on both sides of each line is poisoned and watched. Nothing touches the memory
    between the bands, so on a CPU an operand with a pitch of gigabytes costs only the pages of its bands. On a GPU it
    costs the whole allocation.
    """

    def __init__(
        self, operand: Operand, view: Tensor, watched: Tensor, before: Tensor, own: Tensor, start: int, output: bool
    ) -> None:
        self.operand = operand
        self.view = view
        self._watched = watched  # bytes (lines, width), a view of the allocation
        self._before = before  # a copy of them
        self._own = own  # which of them are the operand's elements
        self._start = start  # first watched byte, relative to the operand's first element
        self._output = output

    @classmethod
    def place(
        cls, values: Tensor | None, operand: Operand, *, device: torch.device | str, pattern: int
    ) -> GuardedTensor:
        """``operand`` in fresh guarded memory on ``device``, with ``values``, or None for an output.

        ``values`` has the operand's shape and dtype, on any device. ``pattern`` 0 or 1 picks the poison. The result's
        ``view`` has the operand's shape and strides and begins ``operand.offset`` elements behind a 256-byte boundary.
        A dimension of stride 0 holds one element.

        Raises ValueError for an unknown pattern, and for strides by which elements overlap. It is raised, too, for
        values that have another shape or dtype, or that vary along a dimension of stride 0.
        """
        if pattern not in (0, 1):
            raise ValueError(f"poison pattern {pattern!r} is unknown: use 0 or 1")
        shape, strides = distinct(operand)
        size = itemsize(operand.dtype)
        fill = (SENTINEL if values is None else POISON)[pattern]
        memory = torch.empty(guarded_bytes(operand), dtype=torch.uint8, device=device)
        first = REDZONE + (-(memory.data_ptr() + REDZONE)) % BASE_ALIGNMENT + operand.offset * size
        watched, start = _watch(memory, first, shape, strides, size)
        watched.fill_(fill)
        view = torch.as_strided(memory.view(DTYPES[operand.dtype]), operand.shape, operand.strides, first // size)
        if values is not None:
            _copy(values, operand, memory, first, shape, strides, size)
        own = _ownership(watched, start, shape, strides, size)
        return cls(operand, view, watched, watched.clone(), own, start, values is None)

    @classmethod
    def over(cls, memory: Tensor, before: Tensor, operand: Operand, *, output: bool) -> GuardedTensor:
        """``operand`` in ``memory``, which holds it since before a run: its guarded bytes, all of them watched.

        ``memory`` and ``before``, a copy from before the run, are bytes that begin at a 256-byte boundary.
        """
        shape, strides = distinct(operand)
        size = itemsize(operand.dtype)
        first = first_byte(operand)
        view = torch.as_strided(
            memory.view(DTYPES[operand.dtype]),
            operand.shape,
            operand.strides,
            memory.storage_offset() // size + first // size,
        )
        watched = memory.view(1, -1)
        own = _ownership(watched, -first, shape, strides, size)
        return cls(operand, view, watched, before.view(1, -1), own, -first, output)

    def changed(self) -> Tensor:
        """Returns a mask (bool) of the watched bytes that have changed: outside the elements and, for inputs, also
        inside."""
        changed = self._watched != self._before
        if self._output:
            changed &= ~self._own
        return changed

    def violations(self) -> list[Violation]:
        """Returns the places where watched bytes have changed."""
        changed = self.changed()
        if not bool(changed.any()):
            return []
        lines, columns = changed.nonzero(as_tuple=True)
        step = self._watched.stride(0)
        position = lines * step + columns + self._start
        size = itemsize(self.operand.dtype)
        element = torch.div(position, size, rounding_mode="floor")
        own = self._own[lines, columns]
        before = position < 0
        after = position >= self.operand.span * size
        places = {"before": before, "after": after, "gap": ~(before | after | own), "inside": own}
        return [self._violation(where, element[mask]) for where, mask in places.items() if bool(mask.any())]

    def _violation(self, where: str, elements: Tensor) -> Violation:
        offset, count = int(elements.min()), elements.numel()
        if where in ("before", "after"):
            return Violation(self.operand.name, where, count, offset)
        pitch = max(1, max(self.operand.strides, default=1))
        line, place = elements // pitch, elements % pitch
        lines, places = (int(line.min()), int(line.max())), (int(place.min()), int(place.max()))
        return Violation(self.operand.name, where, count, offset, lines, places)


def guarded_bytes(operand: Operand) -> int:
    """Bytes of an allocation for ``operand`` with its guards, wherever the allocation begins; a multiple of 8."""
    size = itemsize(operand.dtype)
    pitch = max(operand.strides, default=1) * size
    behind = max(REDZONE, min(REDZONE_ROWS * pitch, REDZONE_LIMIT))
    length = REDZONE + 2 * BASE_ALIGNMENT + (operand.offset + operand.span) * size + behind
    return length // 8 * 8 + 8


def first_byte(operand: Operand) -> int:
    """Returns the offset in bytes of the first element of ``operand`` in an allocation that begins at a 256-byte
    boundary."""
    return REDZONE + operand.offset * itemsize(operand.dtype)


@functools.lru_cache(maxsize=1024)
def distinct(operand: Operand) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Shape and strides of the elements in memory, where a broadcast dimension has extent 1.

    Raises ValueError if elements overlap.
    """
    shape = tuple(min(e, 1) if s == 0 else e for e, s in zip(operand.shape, operand.strides, strict=True))
    reach = 0
    for stride, extent in sorted((s, e) for s, e in zip(operand.strides, shape, strict=True) if e > 1):
        if stride <= reach:
            raise ValueError(
                f"operand {operand.name!r}: elements overlap with shape {operand.shape} and strides {operand.strides}; "
                "only a stride of 0 may repeat an element"
            )
        reach += (extent - 1) * stride
    return shape, operand.strides


def _outermost(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Returns the dimension whose elements lie farthest apart; one of a single element has no distance."""
    return max(range(len(shape)), key=lambda d: (shape[d] > 1, strides[d], shape[d]))


def _watch(
    memory: Tensor, first: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int
) -> tuple[Tensor, int]:
    """Returns the watched bytes as a (lines, width) view, and their first byte relative to the operand's first
    element."""
    whole = memory.view(1, -1)
    if memory.numel() <= WHOLE_LIMIT or 0 in shape:
        return whole, -first
    outer = _outermost(shape, strides)
    inner = 1 + sum((e - 1) * s for d, (e, s) in enumerate(zip(shape, strides, strict=True)) if d != outer)
    width, pitch = inner * size + 2 * REDZONE, strides[outer] * size
    if pitch < width:
        return whole, -first
    return torch.as_strided(memory, (shape[outer], width), (pitch, 1), first - REDZONE), -REDZONE


def _ownership(watched: Tensor, start: int, shape: tuple[int, ...], strides: tuple[int, ...], size: int) -> Tensor:
    """Returns a mask of the watched bytes that belong to the operand's elements."""
    own = torch.zeros(watched.shape, dtype=torch.bool, device=watched.device)
    if watched.shape[0] > 1:  # bands: the outer dimension walks over the rows of `own`
        outer = _outermost(shape, strides)
        steps = tuple(own.stride(0) if d == outer else s * size for d, s in enumerate(strides))
    else:
        steps = tuple(s * size for s in strides)
    if 0 not in shape:
        torch.as_strided(own, (*shape, size), (*steps, 1), -start).fill_(True)
    return own


def _copy(
    values: Tensor,
    operand: Operand,
    memory: Tensor,
    first: int,
    shape: tuple[int, ...],
    strides: tuple[int, ...],
    size: int,
) -> None:
    stored = stored_values(values, operand)
    steps = tuple(s * size for s in strides)
    raw = torch.as_strided(memory, (*shape, size), (*steps, 1), first)
    raw.copy_(_bytes(stored))


def stored_values(values: Tensor, operand: Operand) -> Tensor:
    """Returns the elements of ``values`` that ``operand`` holds in memory: one along each dimension of stride 0.

    Raises ValueError as :meth:`GuardedTensor.place` does.
    """
    shape, _ = distinct(operand)
    if tuple(values.shape) != operand.shape or values.dtype != DTYPES[operand.dtype]:
        raise ValueError(
            f"operand {operand.name!r} got values of {tuple(values.shape)} {values.dtype}: "
            f"it takes {operand.shape} {DTYPES[operand.dtype]}"
        )
    stored = values[tuple(slice(0, extent) for extent in shape)].contiguous()
    if shape != operand.shape and not torch.equal(_bytes(values), _bytes(stored.expand(operand.shape))):
        raise ValueError(
            f"operand {operand.name!r}: values vary along a dimension of stride 0, which holds one of them"
        )
    return stored


def _bytes(values: Tensor) -> Tensor:
    """Returns the bytes of each element: unlike numbers, NaN payloads survive a copy and compare."""
    # A copy, because a contiguous tensor may have any stride along a dimension of extent 1, and views refuse some.
    dense = values.clone(memory_format=torch.contiguous_format)
    return dense.view(*dense.shape, 1).view(torch.uint8)


#: Every operand's part of the allocation begins at a multiple of this many bytes, as torch's allocations on GPUs do.
ALIGNMENT = 512


class GuardedBatch:
    """The operands and outputs of ``count`` fills of ``problem``, each in one run per pattern of the poison.

    ``inputs``: the fills' values of every operand by name, (fills, *shape), as integers of the dtype's size, on the
    device of the allocation. The caller has checked them with :func:`stored_values`.
    """

    def __init__(self, problem: Problem, inputs: Mapping[str, Tensor], count: int, device: torch.device) -> None:
        self._problem, self._count = problem, count
        self._starts, self._row = _starts(problem)
        size = count * len(POISON) * self._row
        memory = torch.empty(size + ALIGNMENT, dtype=torch.uint8, device=device)
        first = -memory.data_ptr() % ALIGNMENT
        self._memory = memory[first : first + size]
        outputs = self._starts[problem.outputs[0].name]
        rows = self._memory.view(count, len(POISON), self._row)
        for pattern in range(len(POISON)):
            rows[:, pattern, :outputs].fill_(POISON[pattern])
            rows[:, pattern, outputs:].fill_(SENTINEL[pattern])
        for operand in problem.operands:
            shape, _ = distinct(operand)
            stored = (slice(None), *(slice(0, extent) for extent in shape))
            self._elements(self._memory, operand).copy_(inputs[operand.name][stored].unsqueeze(1))
        self._before = self._memory.clone()

    def views(self, fill: int, pattern: int) -> dict[str, Tensor]:
        """Returns the operands and outputs for the run of ``fill`` with ``pattern`` by name, strided and aligned as the
        problem asks."""
        start = (fill * len(POISON) + pattern) * self._row
        return {operand.name: self._view(operand, start) for operand in self._problem.tensors}

    def outputs(self, name: str) -> Tensor:
        """The dense bits of output ``name`` after the runs, (fills, patterns, *shape)."""
        return self._elements(self._memory, self._problem.operand(name)).contiguous()

    def changed(self) -> Tensor:
        """Returns a mask (bool; fills, patterns), on the device, of the runs that changed anything but their
        outputs."""
        for output in self._problem.outputs:
            self._elements(self._before, output).copy_(self._elements(self._memory, output))
        words = [memory.view(torch.int64) for memory in (self._memory, self._before)]
        return (words[0] != words[1]).view(self._count, len(POISON), -1).any(2)

    def violations(self, fill: int, pattern: int) -> list[Violation]:
        """Returns the places that the run of ``fill`` with ``pattern`` changed, operand by operand."""
        start = (fill * len(POISON) + pattern) * self._row
        violations = []
        for operand in self._problem.tensors:
            part = slice(start + self._starts[operand.name], start + self._starts[operand.name] + _length(operand))
            output = operand in self._problem.outputs
            placed = GuardedTensor.over(self._memory[part], self._before[part], operand, output=output)
            violations += placed.violations()
        return violations

    def _view(self, operand: Operand, start: int) -> Tensor:
        memory = self._memory.view(DTYPES[operand.dtype])
        first = (start + self._starts[operand.name] + first_byte(operand)) // itemsize(operand.dtype)
        return memory.as_strided(operand.shape, operand.strides, memory.storage_offset() + first)

    def _elements(self, memory: Tensor, operand: Operand) -> Tensor:
        """The elements of ``operand`` in every run, (fills, patterns, *shape): one along a dimension of stride 0."""
        size = itemsize(operand.dtype)
        shape, strides = distinct(operand)
        bits = memory.view(INTEGERS_OF_SIZE[size])
        first = bits.storage_offset() + (self._starts[operand.name] + first_byte(operand)) // size
        row = self._row // size
        return bits.as_strided((self._count, len(POISON), *shape), (len(POISON) * row, row, *strides), first)


def row_bytes(problem: Problem) -> int:
    """Bytes that one run of one fill of ``problem`` takes in a :class:`GuardedBatch`."""
    return _starts(problem)[1]


def _starts(problem: Problem) -> tuple[dict[str, int], int]:
    """Returns the byte at which each operand's part of a row begins, outputs last, and the length of the row in
    bytes."""
    starts, length = {}, 0
    for operand in problem.tensors:
        starts[operand.name] = length
        length += _length(operand)
    return starts, length


def _length(operand: Operand) -> int:
    return math.ceil(guarded_bytes(operand) / ALIGNMENT) * ALIGNMENT
