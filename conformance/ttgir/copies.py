"""Copies that go on while the agent does, cp.async and TMA, descriptors, and the mbarriers that agents wait at."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from conformance.ttgir.arithmetic import NAMES, UnknownOperation, attributes, operands
from conformance.ttgir.chip_memory import COMBINED, Combine
from conformance.ttgir.formats import rounded, size_of, type_of
from conformance.ttgir.machine import Agent, Barrier, Pending, Running
from conformance.ttgir.memory import ProgramFault, View
from conformance.ttgir.steps import Descriptor, Names, Step, called, parts_of, pointee
from conformance.ttgir.text import Operation, split_outside


def barrier_at(agent: Agent, view: View, what: str) -> Barrier:
    key = view.bits.__array_interface__["data"][0]
    if key not in agent.program.barriers:
        raise ProgramFault(f"{what} uses {view.buffer.name} as a barrier, and no operation made it one")
    return agent.program.barriers[key]


def _init(operation: Operation) -> Step:
    name, count = operands(operation)[0], int(parts_of(operation)[1])
    what = called(operation)

    def step(agent: Agent, names: Names) -> None:
        view = names[name]
        agent.touch(view, what, writes=True)
        key = view.bits.__array_interface__["data"][0]
        agent.program.barriers[key] = Barrier(f"the barrier {view.buffer.name}", count)

    return step


def _inval(operation: Operation) -> Step:
    name, what = operands(operation)[0], called(operation)

    def step(agent: Agent, names: Names) -> None:
        barrier_at(agent, names[name], what).end(what)
        del agent.program.barriers[names[name].bits.__array_interface__["data"][0]]

    return step


def _wait(operation: Operation) -> Step:
    words = operation.words.partition(" deps ")[0]
    operand_names = NAMES.findall(words[: len(words) - len(operation.types)] if words == operation.words else words)
    what = called(operation)

    def run(agent: Agent, names: Names) -> Running:
        if len(operand_names) > 2 and not bool(names[operand_names[2]]):
            return
        barrier, phase = barrier_at(agent, names[operand_names[0]], what), int(names[operand_names[1]]) & 1
        while barrier.phase & 1 == phase:
            agent.waiting = f"waits for {barrier.name} at {what}"
            yield
        agent.learn(barrier.complete)
        agent.tick()

    return run


def _arrive(operation: Operation) -> Step:
    parts, what = parts_of(operation), called(operation)
    count, predicate = int(parts[1]), (parts[2] if len(parts) > 2 else None)

    def step(agent: Agent, names: Names) -> None:
        if predicate is not None and not bool(names[predicate]):
            return
        barrier = barrier_at(agent, names[parts[0]], what)
        barrier.arrive(count, agent.clock, what)
        agent.tick()

    return step


def _expect(operation: Operation) -> Step:
    parts, what = parts_of(operation), called(operation)

    def step(agent: Agent, names: Names) -> None:
        if bool(names[parts[2]]):
            barrier_at(agent, names[parts[0]], what).expect(int(parts[1]), agent.clock, what)
            agent.tick()

    return step


#: How each operation of this module is made ready.
BARRIER_STEPS: dict[str, Callable[[Operation], Step]] = {
    "ttng.init_barrier": _init,
    "ttng.inval_barrier": _inval,
    "ttng.wait_barrier": _wait,
    "ttng.arrive_barrier": _arrive,
    "ttng.barrier_expect": _expect,
}


def _copy(operation: Operation) -> Step:
    """cp.async, and what AMD has in its place."""
    words = operation.words[: len(operation.words) - len(operation.types)]
    source, target = NAMES.findall(words)[:2]
    named = dict(re.findall(r"\b(mask|other) (%\S+)", words.replace(",", " ")))
    kind, what = pointee(split_outside(operation.types.partition("->")[0].strip())[0]), called(operation)

    def step(agent: Agent, names: Names) -> None:
        mask, other = (names[named[word]] if word in named else None for word in ("mask", "other"))
        agent.program.memory.at_line(what)
        _copies(agent, what, names[target], agent.program.memory.load(names[source], mask, other, kind, undefined=True))
        for result in operation.results:
            names[result] = None

    return step


def _buffer_copy(operation: Operation) -> Step:
    """Returns the same from a base and offsets."""
    words = operation.words[: len(operation.words) - len(operation.types)]
    (base, offset, *_), named = NAMES.findall(words), dict(re.findall(r"\b(mask|other|into) ?=? (%\S+)", words))
    what = called(operation)

    def step(agent: Agent, names: Names) -> None:
        mask, other = (names[named[word]] if word in named else None for word in ("mask", "other"))
        agent.program.memory.at_line(what)
        view = names[named["into"]]
        pointers = np.asarray(names[base]) + np.asarray(names[offset]).astype(np.int64) * size_of(view.element)
        _copies(agent, what, view, agent.program.memory.load(pointers, mask, other, view.element, undefined=True))
        for result in operation.results:
            names[result] = None

    return step


def _copies(agent: Agent, what: str, view: View, values: Any) -> None:
    pending = agent.begin("copy", what, lambda: view.write(values), [(view, True)])
    agent.copies[-1].append(pending)
    if not agent.program.is_late("copy"):
        pending.finish()


def _commit(operation: Operation) -> Step:
    def step(agent: Agent, names: Names) -> None:
        agent.copies.append([])
        for result in operation.results:
            names[result] = None

    return step


def _async_wait(operation: Operation) -> Step:
    left = int(attributes(operation)["num"])

    def step(agent: Agent, names: Names) -> None:
        groups = agent.copies[:-1]
        over = groups[: max(len(groups) - left, 0)]
        for group in over:
            for pending in group:
                agent.end(pending)
        agent.copies = agent.copies[len(over) :]
        for result in operation.results:
            names[result] = None

    return step


_TMA = re.compile(r"(%\S+)\[(.*?)\]\s*(.*)", re.DOTALL)


def _tma_operands(operation: Operation) -> tuple[str, list[str], list[str]]:
    words = operation.words[: len(operation.words) - len(operation.types)]
    words = re.sub(r"<?\{[^{}]*\}>?", "", words)
    match = _TMA.search(words)
    if match is None:
        raise UnknownOperation(f"{operation.name} {operation.words[:60]}")
    return match[1], NAMES.findall(match[2]), NAMES.findall(match[3])


def target_layout(operation: Operation) -> str:
    """The name of the layout of the buffer that a copy fills."""
    return split_outside(type_of(operation.types.rpartition("->")[2].strip()).layout)[0]


def _tma_load(operation: Operation) -> Step:
    descriptor, coordinates, (target, barrier, predicate, *_) = _tma_operands(operation)
    what, layout = called(operation), target_layout(operation)

    def step(agent: Agent, names: Names) -> None:
        if not bool(names[predicate]):
            return
        view, starts = names[target], [int(names[name]) for name in coordinates]
        tensor = names[descriptor].by_tma(what, starts[-1])
        where, inside = tensor.box_at(starts, view.shape)
        agent.program.memory.at_line(what)
        values = agent.program.memory.load(where, inside, None, tensor.element).reshape(view.shape)
        _loads(agent, what, view, values, names[barrier], layout)

    return step


def _loads(agent: Agent, what: str, view: View, values: Any, barrier_view: View, layout: str) -> None:
    """Begins to load ``values`` into ``view``. The barrier of each block of a cluster gets the bytes of that block."""
    barrier = barrier_at(agent, barrier_view, what)
    size = view.bits.size * view.bits.itemsize // agent.program.shares.get(layout, 1)

    def effect() -> None:
        view.write(values)
        barrier.deliver(size, pending.clock)

    pending = agent.begin("copy", what, effect, [(view, True)])
    agent.program.launch(pending)


def _tma_gather(operation: Operation) -> Step:
    descriptor, coordinates, (target, barrier, predicate, *_) = _tma_operands(operation)
    what, layout = called(operation), target_layout(operation)

    def step(agent: Agent, names: Names) -> None:
        if not bool(names[predicate]):
            return
        view, rows, column = names[target], names[coordinates[0]], int(names[coordinates[1]])
        tensor = names[descriptor].by_tma(what, column)
        where, inside = tensor.rows_at(rows, column, view.shape[1])
        agent.program.memory.at_line(what)
        values = agent.program.memory.load(where, inside, None, tensor.element)
        _loads(agent, what, view, values, names[barrier], layout)

    return step


def _tma_store(operation: Operation) -> Step:
    descriptor, coordinates, (source, *_) = _tma_operands(operation)
    what = called(operation)

    def step(agent: Agent, names: Names) -> None:
        view, starts = names[source], [int(names[name]) for name in coordinates]
        tensor = names[descriptor].by_tma(what, starts[-1], stored=True)
        stores(agent, what, tensor, view, *tensor.box_at(starts, view.shape))

    return step


def stores(
    agent: Agent, what: str, tensor: Descriptor, view: View, where: Any, inside: Any, combine: Combine | None = None
) -> Pending:
    """Begins to store ``view`` at the addresses ``where`` that are ``inside``, or what ``combine`` makes of the values
    there and those of ``view``."""

    def effect() -> None:
        memory, values = agent.program.memory, view.read().reshape(where.shape)
        memory.at_line(what)
        if combine is not None:
            values = rounded(combine(memory.load(where, inside, None, tensor.element), values), tensor.element)
        memory.store(where, values, inside, tensor.element)

    pending = agent.begin("store", what, effect, [(view, False)])
    agent.stores.append(pending)
    if not agent.program.is_late("store"):
        pending.finish()
    return pending


def _tma_reduce(operation: Operation) -> Step:
    kind = operation.words.partition(",")[0]
    if kind not in COMBINED:
        raise UnknownOperation(f"{operation.name} {kind}")
    descriptor, coordinates, (source, *_) = _tma_operands(operation)
    what, combine = called(operation), COMBINED[kind]

    def step(agent: Agent, names: Names) -> None:
        view, starts = names[source], [int(names[name]) for name in coordinates]
        tensor = names[descriptor].by_tma(what, starts[-1], stored=True)
        where, inside = tensor.box_at(starts, view.shape)
        stores(agent, what, tensor, view, where, inside, combine)

    return step


def _tma_scatter(operation: Operation) -> Step:
    descriptor, coordinates, (source, *_) = _tma_operands(operation)
    what = called(operation)

    def step(agent: Agent, names: Names) -> None:
        view, rows, column = names[source], names[coordinates[0]], int(names[coordinates[1]])
        tensor = names[descriptor].by_tma(what, column, stored=True)
        stores(agent, what, tensor, view, *tensor.rows_at(rows, column, view.shape[1]))

    return step


def _store_wait(operation: Operation) -> Step:
    left = int(attributes(operation)["pendings"])

    def step(agent: Agent, names: Names) -> None:
        agent.end_stores(left)

    return step


def _scratch(operation: Operation) -> Step:
    size, result = int(attributes(operation)["nbytes"]), operation.results[0]

    def step(agent: Agent, names: Names) -> None:
        names[result] = np.int64(agent.program.new_scratch(size))

    return step


def _tensormap(operation: Operation) -> Step:
    parts = parts_of(operation)
    target, base = parts[:2]
    box, sizes, pitches = (NAMES.findall(part) for part in parts[2:5])

    def step(agent: Agent, names: Names) -> None:
        def values(of: list[str]) -> tuple[int, ...]:
            return tuple(int(names[name]) for name in reversed(of))

        agent.program.new_descriptors.add(int(names[target]))
        agent.program.scratch[int(names[target])] = (int(names[base]), values(sizes), values(pitches), values(box))

    return step


def _descriptor_fence(operation: Operation) -> Step:
    source = operands(operation)[0]

    def step(agent: Agent, names: Names) -> None:
        agent.program.new_descriptors.discard(int(names[source]))

    return step


def _reinterpret(operation: Operation) -> Step:
    source, result = operands(operation)[0], operation.results[0]
    kind, what = type_of(operation.types.rpartition(" to ")[2].strip()), called(operation)

    def step(agent: Agent, names: Names) -> None:
        address = int(names[source])
        if address not in agent.program.scratch:
            raise ProgramFault(f"{what} takes a descriptor that no operation made")
        if address in agent.program.new_descriptors:
            raise ProgramFault(f"{what} takes a descriptor, and no fence follows what made it")
        base, sizes, pitches, box = agent.program.scratch[address]
        names[result] = Descriptor(base, sizes, (*pitches, size_of(kind.element)), kind.element, box)

    return step


#: How each operation of this module is made ready.
STEPS: dict[str, Callable[[Operation], Step]] = {
    "ttg.async_copy_global_to_local": _copy,
    "amdg.buffer_load_to_local": _buffer_copy,
    "ttg.async_commit_group": _commit,
    "ttg.async_wait": _async_wait,
    "ttng.async_tma_copy_global_to_local": _tma_load,
    "ttng.async_tma_gather": _tma_gather,
    "ttng.async_tma_copy_local_to_global": _tma_store,
    "ttng.async_tma_reduce": _tma_reduce,
    "ttng.async_tma_scatter": _tma_scatter,
    "ttng.async_tma_store_wait": _store_wait,
    "ttg.global_scratch_alloc": _scratch,
    "ttng.tensormap_create": _tensormap,
    "ttng.tensormap_fenceproxy_acquire": _descriptor_fence,
    "ttng.reinterpret_tensor_descriptor": _reinterpret,
}
