"""mbarriers: made, waited for, arrived at."""

from __future__ import annotations

from collections.abc import Callable

from conformance.ttgir.arithmetic import (
    NAMES,
    operands,
)
from conformance.ttgir.machine import Agent, Barrier, Running
from conformance.ttgir.memory import ProgramFault, View
from conformance.ttgir.steps import (
    Names,
    Step,
    called,
    parts_of,
)
from conformance.ttgir.text import Operation


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
STEPS: dict[str, Callable[[Operation], Step]] = {
    "ttng.init_barrier": _init,
    "ttng.inval_barrier": _inval,
    "ttng.wait_barrier": _wait,
    "ttng.arrive_barrier": _arrive,
    "ttng.barrier_expect": _expect,
}
