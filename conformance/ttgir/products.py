"""Matrix products that go on while the agent does: wgmma and tcgen05."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from conformance.ttgir.arithmetic import NAMES, accumulated, attributes, operands, product, result_type
from conformance.ttgir.copies import barrier_at
from conformance.ttgir.formats import Type
from conformance.ttgir.machine import Agent, Pending, Promise
from conformance.ttgir.memory import View
from conformance.ttgir.steps import Names, Step, called, parts_of, taken
from conformance.ttgir.text import Operation


def in_queue(agent: Agent, what: str, effect: Callable[[Pending], None], views: Sequence[tuple[View, bool]]) -> Pending:
    """Issues an operation of tcgen05, each of which follows those before it. ``views`` are read or (True) written,
    and ``effect`` is given the operation."""
    queue = agent.program.products
    clock, agent.clock = agent.clock, {**(queue[-1].clock if queue else {}), **agent.clock}
    pending = agent.begin("mma", what, lambda: effect(pending), views)
    agent.clock = {**clock, agent.number: agent.time}
    agent.program.launch_product(pending)
    return pending


def issued(
    operation: Operation,
    tiles: Sequence[str],
    keep: str,
    predicate: str,
    signals: Sequence[str],
    multiply: Callable[..., Any],
) -> Step:
    """Returns a product by tcgen05. ``tiles`` are the names of A, B, the accumulator and what else ``multiply`` reads;
    if the value of ``keep`` is true, the accumulator is added. ``signals`` are the barriers that its end arrives at."""
    barriers_of = [(NAMES.findall(part)[0], NAMES.findall(part)[1:]) for part in signals]
    synchronous, what = "is_async" not in attributes(operation), called(operation)

    def step(agent: Agent, names: Names) -> None:
        if not bool(names[predicate]):
            return
        left, right, into, *more = (names[name] for name in tiles)
        keeps = bool(names[keep])
        barriers = [
            barrier_at(agent, names[name], what) for name, given in barriers_of if not given or bool(names[given[0]])
        ]
        kind = Type("tensor", into.shape, into.element)

        def effect(pending: Pending) -> None:
            values = multiply(left.read(), right.read(), *(view.read() for view in more), kind)
            into.write(accumulated(values, into.read() if keeps else None, into.element))
            for barrier in barriers:
                barrier.arrive(1, pending.clock, what)

        read = [(view, False) for view in (left, right, *more)]
        pending = in_queue(agent, what, effect, [*read, (into, True)])
        if synchronous:
            agent.program.finish_products(len(agent.program.products))
            agent.end(pending)

    return step


def _tcgen05(operation: Operation) -> Step:
    a, b, d, keep, predicate, *rest = parts_of(operation)
    return issued(operation, (a, b, d.partition("[")[0]), keep, predicate, rest, product)


def _tcgen05_commit(operation: Operation) -> Step:
    operand_names, what = operands(operation), called(operation)

    def step(agent: Agent, names: Names) -> None:
        if len(operand_names) > 1 and not bool(names[operand_names[1]]):
            return
        barrier = barrier_at(agent, names[operand_names[0]], what)
        pending = agent.begin("mma", what, lambda: barrier.arrive(1, pending.clock, what), [])
        agent.program.launch_product(pending)

    return step


def _wgmma(operation: Operation) -> Step:
    operand_names, kind, result = operands(operation), result_type(operation), operation.results[0]
    later, what = attributes(operation).get("isAsync") == "true", called(operation)

    def step(agent: Agent, names: Names) -> None:
        left, right, before = (names[name] for name in operand_names[:3])
        keeps = len(operand_names) < 4 or bool(names[operand_names[3]])
        promise: Promise

        def values(operand: Any) -> Any:
            return operand.read() if isinstance(operand, View) else taken(operand)

        def effect() -> None:
            start = before.value if isinstance(before, Promise) else before
            result_values = product(values(left), values(right), kind)
            promise.values = accumulated(result_values, start if keeps else None, kind.element)

        views = [(operand, False) for operand in (left, right) if isinstance(operand, View)]
        pending = agent.begin("mma", what, effect, views)
        promise = Promise(pending)
        agent.products.append(pending)
        if not later or not agent.program.is_late("mma"):
            for earlier in agent.products:
                earlier.finish()
        names[result] = promise
        if not later:
            _retire(agent, 0)
            names[result] = promise.value

    return step


def _retire(agent: Agent, left: int) -> None:
    over = agent.products[: max(len(agent.products) - left, 0)]
    for pending in over:
        agent.end(pending)
    agent.products = agent.products[len(over) :]


def _wgmma_wait(operation: Operation) -> Step:
    operand_names, left = operands(operation), int(attributes(operation)["pendings"])

    def step(agent: Agent, names: Names) -> None:
        _retire(agent, left)
        for result, name in zip(operation.results, operand_names, strict=True):
            value = names[name]
            names[result] = value.value if isinstance(value, Promise) and value.pending.over else value

    return step


#: How each operation of this module is made ready.
STEPS: dict[str, Callable[[Operation], Step]] = {
    "ttng.tc_gen5_mma": _tcgen05,
    "ttng.tc_gen5_commit": _tcgen05_commit,
    "ttng.warp_group_dot": _wgmma,
    "ttng.warp_group_dot_wait": _wgmma_wait,
}
