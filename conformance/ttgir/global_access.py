"""Operations on global memory by addresses: loads, stores and atomic updates."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.ttgir.arithmetic import (
    NAMES,
    UnknownOperation,
    operands,
    result_type,
)
from conformance.ttgir.formats import rounded, size_of, type_of
from conformance.ttgir.machine import Agent
from conformance.ttgir.memory import ProgramFault
from conformance.ttgir.steps import (
    Names,
    Step,
    called,
    pointee,
    taken,
)
from conformance.ttgir.text import Operation, split_outside


def _load(operation: Operation) -> Step:
    operand_names, kind = operands(operation), pointee(split_outside(operation.types)[0])
    result, what = operation.results[0], called(operation)

    def step(agent: Agent, names: Names) -> None:
        pointers, mask, other = [*[taken(names[name]) for name in operand_names], None, None][:3]
        try:
            names[result] = agent.program.memory.load(pointers, mask, other, kind)
        except ProgramFault as fault:
            raise ProgramFault(f"{what} {fault}") from None

    return step


def _store(operation: Operation) -> Step:
    operand_names, kind = operands(operation), pointee(split_outside(operation.types)[0])
    what = called(operation)

    def step(agent: Agent, names: Names) -> None:
        pointers, values, mask = [*[taken(names[name]) for name in operand_names], None][:3]
        try:
            agent.program.memory.store(pointers, values, mask, kind)
        except ProgramFault as fault:
            raise ProgramFault(f"{what} {fault}") from None

    return step


_BUFFER = re.compile(r"(%\S+)\[(%[^\]]+)\]")


def _buffer_operands(operation: Operation) -> tuple[str, str, list[str]]:
    words = operation.words[: len(operation.words) - len(operation.types)]
    match = _BUFFER.search(words)
    if match is None:
        raise UnknownOperation(f"{operation.name} {operation.words[:60]}")
    words = re.sub(r"(stride|cacheModifier|cache) = \S+", "", words[: match.start()] + words[match.end() :])
    return match[1].lstrip(","), match[2], NAMES.findall(words)


def _buffer_load(operation: Operation) -> Step:
    base, offset, more = _buffer_operands(operation)
    kind, result = result_type(operation), operation.results[0]
    what = called(operation)

    def step(agent: Agent, names: Names) -> None:
        mask, other = [*[taken(names[name]) for name in more], None, None][:2]
        pointers = np.asarray(names[base]) + np.asarray(names[offset]).astype(np.int64) * size_of(kind.element)
        try:
            names[result] = agent.program.memory.load(pointers, mask, other, kind.element)
        except ProgramFault as fault:
            raise ProgramFault(f"{what} {fault}") from None

    return step


def _buffer_store(operation: Operation) -> Step:
    base, offset, more = _buffer_operands(operation)
    kind = result_type(operation)

    def step(agent: Agent, names: Names) -> None:
        values, mask = [*[taken(names[name]) for name in more], None][:2]
        pointers = np.asarray(names[base]) + np.asarray(names[offset]).astype(np.int64) * size_of(kind.element)
        agent.program.memory.store(pointers, values, mask, kind.element)

    return step


#: Makes the value that stays in memory of the one there and a new one.
Combine = Callable[[Any, Any], Any]
COMBINED: dict[str, Combine] = {
    "fadd": np.add, "add": np.add, "max": np.maximum, "min": np.minimum, "umax": np.maximum, "umin": np.minimum,
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "exch": lambda old, new: new,
}  # fmt: skip


def _combine(operation: Operation) -> Combine:
    word = operation.words.split(",")[0].strip()
    if word not in COMBINED:
        raise UnknownOperation(f"{operation.name} {word}")
    return COMBINED[word]


def _atomic(operation: Operation) -> Step:
    combine, operand_names = _combine(operation), operands(operation)
    kind = pointee(split_outside(operation.types.strip("()"))[0].lstrip("("))

    def step(agent: Agent, names: Names) -> None:
        pointers, values, mask = (np.asarray(taken(value)) for value in [*[names[n] for n in operand_names], True][:3])
        old = _updated(agent, combine, pointers, values, mask, kind)
        if operation.results:
            names[operation.results[0]] = old

    return step


def _buffer_atomic(operation: Operation) -> Step:
    combine, kind = _combine(operation), result_type(operation)
    words = operation.words[: len(operation.words) - len(operation.types)]
    value, base, offset, *masks = NAMES.findall(words)

    def step(agent: Agent, names: Names) -> None:
        pointers = np.asarray(names[base]) + np.asarray(names[offset]).astype(np.int64) * size_of(kind.element)
        mask = np.asarray(taken(names[masks[0]]) if masks else True)
        names[operation.results[0]] = _updated(
            agent, combine, pointers, np.asarray(taken(names[value])), mask, kind.element
        )

    return step


def _updated(agent: Agent, combine: Combine, pointers: Any, values: Any, mask: Any, kind: str) -> Any:
    """Combines ``values`` with those in memory, one after the other where addresses are equal; returns those that were
    there."""
    memory = agent.program.memory
    mask, values = np.broadcast_to(mask, pointers.shape), np.broadcast_to(values, pointers.shape)
    agent.tick()
    if len(np.unique(pointers[mask])) == mask.sum():
        old = memory.load(pointers, mask, None, kind)
        memory.store(pointers, rounded(combine(old, values), kind), mask, kind)
        return old if pointers.shape else old[()]
    old = np.zeros(pointers.shape, type_of(kind).array)
    for index in zip(*np.nonzero(mask), strict=True):
        old[index] = memory.load(pointers[index], None, None, kind)
        memory.store(pointers[index], rounded(combine(old[index], values[index]), kind), None, kind)
    return old


def _exchange(operation: Operation) -> Step:
    operand_names = operands(operation)
    kind = pointee(split_outside(operation.types.partition("->")[0].strip().strip("()"))[0])

    def step(agent: Agent, names: Names) -> Any:
        pointer, expected, new = (taken(names[name]) for name in operand_names)
        old = agent.program.memory.load(pointer, None, None, kind)
        if old == expected:
            agent.program.memory.store(pointer, new, None, kind)
        names[operation.results[0]] = old

    return step


#: How each operation of this module is made ready.
STEPS: dict[str, Callable[[Operation], Step]] = {
    "tt.load": _load,
    "tt.store": _store,
    "tt.atomic_rmw": _atomic,
    "amdg.buffer_atomic_rmw": _buffer_atomic,
    "tt.atomic_cas": _exchange,
    "amdg.buffer_load": _buffer_load,
    "amdg.buffer_store": _buffer_store,
}
