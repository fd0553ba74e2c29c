"""Operations on global, shared and tensor memory: loads, stores, atomic updates, and parts of memory."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.ttgir.arithmetic import NAMES, UnknownOperation, attributes, operands, order_of, result_type
from conformance.ttgir.formats import rounded, size_of, type_of
from conformance.ttgir.machine import Agent
from conformance.ttgir.memory import NoPart, ProgramFault, View, allocated
from conformance.ttgir.steps import Names, Step, called, pointee, taken
from conformance.ttgir.text import Operation, split_outside


def _alloc(operation: Operation) -> Step:
    kind, operand_names, result = result_type(operation), operands(operation), operation.results[0]
    name, what = f"{result} ({operation.place})", called(operation)
    shared = operation.name == "ttg.local_alloc"

    def step(agent: Agent, names: Names) -> None:
        view = allocated(name, kind.shape, kind.element)
        if operand_names:
            _written(agent, view, what, shared=shared)
            view.write(taken(names[operand_names[0]]))
        names[result] = view

    return step


def _dealloc(operation: Operation) -> Step:
    """Others may have the memory from here on: whoever used it must be over."""
    name, what = operands(operation)[0], called(operation)

    def step(agent: Agent, names: Names) -> None:
        agent.touch(names[name], what, writes=True)

    return step


def _local_load(operation: Operation) -> Step:
    source, result, what = operands(operation)[0], operation.results[0], called(operation)

    def step(agent: Agent, names: Names) -> None:
        agent.touch(names[source], what, writes=False)
        names[result] = names[source].read()

    return step


#: The reductions of each row that a load from tensor memory can return with its values.
_ROWS = {"max": np.fmax.reduce, "min": np.fmin.reduce}


def _tmem_load(operation: Operation) -> Step:
    """A load that may also give the largest or smallest element of each row."""
    load, (_, *more) = _local_load(operation), operation.results
    kind = re.search(r"redOp = #ttng\.redOp<(\w+)>", operation.words)
    if kind is None:
        return load
    if kind[1] not in _ROWS or len(more) != 1:
        raise UnknownOperation(f"{operation.name} with redOp {kind[1]} and {len(operation.results)} results")
    value, reduce = operation.results[0], _ROWS[kind[1]]

    def step(agent: Agent, names: Names) -> None:
        load(agent, names)
        names[more[0]] = reduce(names[value], axis=-1)

    return step


def _written(agent: Agent, view: View, what: str, *, shared: bool) -> None:
    if shared:
        agent.fill(view, what)
    else:
        agent.touch(view, what, writes=True)


def _local_store(operation: Operation) -> Step:
    operand_names, what = operands(operation), called(operation)
    shared = operation.name == "ttg.local_store"

    def step(agent: Agent, names: Names) -> None:
        if len(operand_names) > 2 and not bool(names[operand_names[2]]):
            return
        view = names[operand_names[1]]
        _written(agent, view, what, shared=shared)
        view.write(taken(names[operand_names[0]]))

    return step


def _fence(operation: Operation) -> Step:
    return lambda agent, names: agent.fence()


def _view(make: Callable[[Operation], Callable[[list[Any]], Callable[[Any], Any]]]) -> Callable[[Operation], Step]:
    def prepare(operation: Operation) -> Step:
        source, *rest = operands(operation)
        part_of, result = make(operation), operation.results[0]

        def step(agent: Agent, names: Names) -> None:
            names[result] = names[source].part(part_of([names[name] for name in rest]))

        return step

    return prepare


def _index(operation: Operation) -> Callable[[list[Any]], Callable[[Any], Any]]:
    what = called(operation)

    def part_of(values: list[Any]) -> Callable[[Any], Any]:
        index = int(values[0])

        def take(array: Any) -> Any:
            if not 0 <= index < len(array):
                raise NoPart(f"{what} takes slot {index} of {len(array)}")
            return array[index]

        return take

    return part_of


def _subview(operation: Operation) -> Callable[[list[Any]], Callable[[Any], Any]]:
    """Of Triton up to 3.4: offsets along every dimension, the first ones dropped."""
    shape = result_type(operation).shape

    def part_of(values: list[Any]) -> Callable[[Any], Any]:
        offsets = [int(value) for value in values]
        dropped = len(offsets) - len(shape)
        sizes = (1,) * max(dropped, 0) + shape

        def take(array: Any) -> Any:
            parts = tuple(slice(offset, offset + size) for offset, size in zip(offsets, sizes, strict=False))
            return array[parts].reshape(shape) if dropped > 0 else array[parts]

        return take

    return part_of


def _subslice(operation: Operation) -> Callable[[list[Any]], Callable[[Any], Any]]:
    shape = result_type(operation).shape
    match = re.search(r"%\S+?\[([\d, ]+)\]", operation.words)
    if match is None:
        raise UnknownOperation(f"{operation.name} {operation.words[:60]}")
    offsets = [int(part) for part in match[1].split(",")]
    parts = tuple(slice(offset, offset + size) for offset, size in zip(offsets, shape, strict=True))
    return lambda values: lambda array: array[parts]


def _tmem_subslice(operation: Operation) -> Callable[[list[Any]], Callable[[Any], Any]]:
    words = attributes(operation)
    first, width = int(words["offset"] if "offset" in words else words["N"]), result_type(operation).shape[-1]
    return lambda values: lambda array: array[..., first : first + width]


def _memdesc_trans(operation: Operation) -> Callable[[list[Any]], Callable[[Any], Any]]:
    order = order_of(operation)
    return lambda values: lambda array: array.transpose(order)


def _memdesc_reshape(operation: Operation) -> Step:
    shape, (source,), result = result_type(operation).shape, operands(operation), operation.results[0]

    def step(agent: Agent, names: Names) -> None:
        names[result] = names[source].as_shape(shape)

    return step


#: How each operation of this module is made ready.
STEPS: dict[str, Callable[[Operation], Step]] = {
    "ttg.local_alloc": _alloc,
    "ttng.tmem_alloc": _alloc,
    "ttg.local_dealloc": _dealloc,
    "ttg.local_load": _local_load,
    "ttg.local_store": _local_store,
    "ttng.tmem_load": _tmem_load,
    "ttng.tmem_store": _local_store,
    "ttng.fence_async_shared": _fence,
    "ttg.memdesc_index": _view(_index),
    "ttg.memdesc_subview": _view(_subview),
    "ttg.memdesc_trans": _view(_memdesc_trans),
    "ttg.memdesc_subslice": _view(_subslice),
    "ttng.tmem_subslice": _view(_tmem_subslice),
    "ttg.memdesc_reshape": _memdesc_reshape,
}


def _load(operation: Operation) -> Step:
    operand_names, kind = operands(operation), pointee(split_outside(operation.types)[0])
    result, what = operation.results[0], called(operation)

    def step(agent: Agent, names: Names) -> None:
        pointers, mask, other = [*[taken(names[name]) for name in operand_names], None, None][:3]
        agent.program.memory.at_line(what)
        try:
            names[result] = agent.program.memory.load(pointers, mask, other, kind, undefined=True)
        except ProgramFault as fault:
            raise ProgramFault(f"{what} {fault}") from None

    return step


def _store(operation: Operation) -> Step:
    operand_names, kind = operands(operation), pointee(split_outside(operation.types)[0])
    what = called(operation)

    def step(agent: Agent, names: Names) -> None:
        pointers, values, mask = [*[taken(names[name]) for name in operand_names], None][:3]
        agent.program.memory.at_line(what)
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
        agent.program.memory.at_line(what)
        try:
            names[result] = agent.program.memory.load(pointers, mask, other, kind.element, undefined=True)
        except ProgramFault as fault:
            raise ProgramFault(f"{what} {fault}") from None

    return step


def _buffer_store(operation: Operation) -> Step:
    base, offset, more = _buffer_operands(operation)
    kind, what = result_type(operation), called(operation)

    def step(agent: Agent, names: Names) -> None:
        values, mask = [*[taken(names[name]) for name in more], None][:2]
        pointers = np.asarray(names[base]) + np.asarray(names[offset]).astype(np.int64) * size_of(kind.element)
        agent.program.memory.at_line(what)
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
    kind, what = pointee(split_outside(operation.types.strip("()"))[0].lstrip("(")), called(operation)

    def step(agent: Agent, names: Names) -> None:
        agent.program.memory.at_line(what)
        pointers, values, mask = (np.asarray(taken(value)) for value in [*[names[n] for n in operand_names], True][:3])
        old = _updated(agent, combine, pointers, values, mask, kind)
        if operation.results:
            names[operation.results[0]] = old

    return step


def _buffer_atomic(operation: Operation) -> Step:
    combine, kind, what = _combine(operation), result_type(operation), called(operation)
    words = operation.words[: len(operation.words) - len(operation.types)]
    value, base, offset, *masks = NAMES.findall(words)

    def step(agent: Agent, names: Names) -> None:
        pointers = np.asarray(names[base]) + np.asarray(names[offset]).astype(np.int64) * size_of(kind.element)
        mask = np.asarray(taken(names[masks[0]]) if masks else True)
        agent.program.memory.at_line(what)
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
    with memory.atomic(pointers[mask]):
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
    kind, what = pointee(split_outside(operation.types.partition("->")[0].strip().strip("()"))[0]), called(operation)

    def step(agent: Agent, names: Names) -> Any:
        pointer, expected, new = (taken(names[name]) for name in operand_names)
        memory = agent.program.memory
        memory.at_line(what)
        with memory.atomic(np.asarray(pointer)):
            old = memory.load(pointer, None, None, kind)
            if old == expected:
                memory.store(pointer, new, None, kind)
        names[operation.results[0]] = old

    return step


#: How each operation of this module is made ready.
GLOBAL_STEPS: dict[str, Callable[[Operation], Step]] = {
    "tt.load": _load,
    "tt.store": _store,
    "tt.atomic_rmw": _atomic,
    "amdg.buffer_atomic_rmw": _buffer_atomic,
    "tt.atomic_cas": _exchange,
    "amdg.buffer_load": _buffer_load,
    "amdg.buffer_store": _buffer_store,
}
