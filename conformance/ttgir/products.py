"""Matrix products that go on while the agent does: wgmma and tcgen05."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from conformance.ttgir.arithmetic import (
    NAMES,
    attributes,
    operands,
    product,
    result_type,
)
from conformance.ttgir.barriers import barrier_at
from conformance.ttgir.formats import Type, rounded
from conformance.ttgir.machine import Agent, Promise
from conformance.ttgir.memory import View
from conformance.ttgir.steps import (
    Names,
    Step,
    called,
    parts_of,
    refuse_other_attributes,
    taken,
)
from conformance.ttgir.text import Operation


def _tcgen05(operation: Operation) -> Step:
    refuse_other_attributes(
        operation, {"is_async", "inputPrecision", "ttg.partition", "tt.self_latency", "loop.stage", "loop.cluster"}
    )
    a, b, d, keep, predicate, *rest = parts_of(operation)
    d = d.partition("[")[0]
    signals = [(NAMES.findall(part)[0], NAMES.findall(part)[1:]) for part in rest]
    synchronous, what = "is_async" not in attributes(operation), called(operation)

    def step(agent: Agent, names: Names) -> None:
        if not bool(names[predicate]):
            return
        left, right, into = names[a], names[b], names[d]
        keeps = bool(names[keep])
        barriers = [
            barrier_at(agent, names[name], what) for name, given in signals if not given or bool(names[given[0]])
        ]
        kind = Type("tensor", into.bits.shape, into.element)

        def effect() -> None:
            values = product(left.read(), right.read(), kind)
            into.write(values + into.read() if keeps else values)
            for barrier in barriers:
                barrier.arrive(1, pending.clock, what)

        before = agent.program.products[-1].clock if agent.program.products else {}
        clock, agent.clock = agent.clock, {**before, **agent.clock}
        pending = agent.begin("mma", what, effect, [(left, False), (right, False), (into, True)])
        agent.clock = {**clock, agent.number: agent.time}
        agent.program.launch_product(pending)
        if synchronous:
            agent.program.finish_products(len(agent.program.products))
            agent.end(pending)

    return step


def _tcgen05_commit(operation: Operation) -> Step:
    wanted, what = operands(operation), called(operation)

    def step(agent: Agent, names: Names) -> None:
        if len(wanted) > 1 and not bool(names[wanted[1]]):
            return
        barrier = barrier_at(agent, names[wanted[0]], what)
        pending = agent.begin("mma", what, lambda: barrier.arrive(1, pending.clock, what), [])
        agent.program.launch_product(pending)

    return step


def _wgmma(operation: Operation) -> Step:
    wanted, kind, result = operands(operation), result_type(operation), operation.results[0]
    refuse_other_attributes(operation, {"isAsync", "inputPrecision", "maxNumImpreciseAcc"})
    later, what = attributes(operation).get("isAsync") == "true", called(operation)

    def step(agent: Agent, names: Names) -> None:
        left, right, before = (names[name] for name in wanted[:3])
        keeps = len(wanted) < 4 or bool(names[wanted[3]])
        promise: Promise

        def values(operand: Any) -> Any:
            return operand.read() if isinstance(operand, View) else taken(operand)

        def effect() -> None:
            start = before.value if isinstance(before, Promise) else before
            made = product(values(left), values(right), kind)
            promise.value = rounded(made + start if keeps else made, kind.element)

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
    wanted, left = operands(operation), int(attributes(operation)["pendings"])

    def step(agent: Agent, names: Names) -> None:
        _retire(agent, left)
        for result, name in zip(operation.results, wanted, strict=True):
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
