"""Refuses an answer of a file's process that no wrapper gives. That process is not trusted: it can send anything."""

from __future__ import annotations

import math

import triton.language as tl

from conformance.plain_files.tape import Answer, Callee, Dtype, Launched, Memory, Number, Tape, View, parts
from conformance.problems import DTYPES

#: Bytes that the memory of one call may have.
MOST_BYTES = 1 << 30
#: Programs that one launch may have.
MOST_PROGRAMS = 1 << 20

_SIZES = {str(dtype): dtype.itemsize for dtype in DTYPES.values()}


class NoAnswer(ValueError):
    """The answer contradicts itself, or names what does not exist; the message says where."""


def check_answer(answer: Answer) -> None:
    """Raises NoAnswer if ``answer`` names memory, functions, dtypes or numbers that it does not have."""
    count = len(answer.functions)
    names = {each.name for each in vars(tl).values() if isinstance(each, tl.dtype)}
    for part in parts(answer):
        if isinstance(part, Callee) and not part.name and not 0 <= part.number < count:
            raise NoAnswer(f"it names function {part.number} of {count}")
        if isinstance(part, Dtype) and part.name not in names:
            raise NoAnswer(f"it names the dtype {part.name}, which Triton lacks")
        if isinstance(part, Launched) and part.function >= count:
            raise NoAnswer(f"it launches function {part.function} of {count}")
        if isinstance(part, Number) and isinstance(part.value, int) and abs(part.value) >= 1 << 64:
            raise NoAnswer("it has a number of more than 64 bits")
        if isinstance(part, Memory) and part.dtype not in _SIZES:
            raise NoAnswer(f"it has memory of {part.dtype}")
        if isinstance(part, Tape):
            for view in parts(part):
                if isinstance(view, View) and not _is_inside(view, part):
                    raise NoAnswer(f"it has a tensor outside its memory: {view}")


def _is_inside(view: View, tape: Tape) -> bool:
    if view.memory >= len(tape.memories) or view.dtype not in _SIZES or len(view.shape) != len(view.strides):
        return False
    memory = tape.memories[view.memory]
    if 0 in view.shape:
        return True
    last = view.offset + sum((size - 1) * stride for size, stride in zip(view.shape, view.strides, strict=True))
    return (last + 1) * _SIZES[view.dtype] <= memory.size * _SIZES.get(memory.dtype, 0)


def bytes_made(tape: Tape) -> int:
    """Returns the bytes of the memory that the wrapper made."""
    return sum(memory.size * _SIZES[memory.dtype] for memory in tape.memories if memory.workspace)


def grid_size(launch: Launched) -> int:
    """Returns the number of programs of ``launch``."""
    return math.prod(launch.grid)
