"""Guarded memory of many runs of one problem in one allocation: it is filled, copied and compared as a whole.

On a device each of these steps is one operation, and what became of all runs is read back at once. Memory around and
inside the operands is as :mod:`conformance.inputs.guarded_memory` says; what it finds in one place, it finds here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.inputs.guarded_memory import (
    POISON,
    SENTINEL,
    GuardedTensor,
    Violation,
    distinct,
    first_byte,
    guarded_bytes,
)
from conformance.numerics.rounding import INTEGERS_OF_SIZE
from conformance.problems import DTYPES, Operand, Problem, itemsize

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
