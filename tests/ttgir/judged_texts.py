"""Runs the TTGIR of one plan over the problems that it serves, in every order, and says what is wrong first."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from conformance.execution.trial.trial import run_guarded
from conformance.inputs.fills import Fill, applicable_fills, fill_set, fills
from conformance.kernels.catalogue import get
from conformance.kernels.kernel import Plan
from conformance.numerics.contract import Contract
from conformance.numerics.verdict import judge
from conformance.records import ExecutorName
from conformance.ttgir.arithmetic import UnknownOperation
from conformance.ttgir.executor import TtgirExecutor
from conformance.ttgir.machine import Schedule, orders_of
from conformance.ttgir.memory import ProgramFault
from conformance.ttgir.problem_sizes import problems_of
from conformance.ttgir.text import TextError, parse


@dataclass(frozen=True)
class Prepared:
    """One problem that a text serves, with an exact fill of it, or the nearest to one."""

    plan: Plan
    contract: Contract
    fill: Fill


@dataclass(frozen=True)
class Seen:
    """A fault: in which problem (0: that of the plan itself, -1: one with another fill), in which order, and in whose
    words."""

    problem: int
    order: str
    text: str

    @property
    def how(self) -> str:
        """Returns the order or problem that showed it: "eager", "late", "starved", "random", "sizes" or "fills"."""
        if self.problem < 0:
            return "fills"
        if self.problem:
            return "sizes"
        word = self.order.split()[0]
        return "starved" if " last, " in self.order else word


def prepared(plan: Plan) -> list[Prepared]:
    """The problems that the code of ``plan`` serves, its own first, each with one fill."""
    return [next(_filled(one)) for one in problems_of(plan)]


def other_fills(plan: Plan) -> list[Prepared]:
    """The same problems with their other exact fills."""
    return [one for each in problems_of(plan) for one in itertools.islice(_filled(each), 1, None)]


def _filled(plan: Plan) -> Iterator[Prepared]:
    """A problem with each of its exact fills; with its first fill if it has none of these."""
    contract = get(plan.kernel).contract(plan, ExecutorName.INTERPRETER)
    exact = {kind.name for kind in fill_set(plan.problem).kinds if kind.exact}
    names = applicable_fills(plan.problem, contract)
    for name in [name for name in names if name in exact] or names[:1]:
        yield Prepared(plan, contract, *fills(plan.problem, contract, 0, [name]))


def orders_of_all(texts: Mapping[str, str]) -> list[Schedule]:
    """The orders of every text of a plan, each once."""
    return list({order.name: order for text in texts.values() for order in orders_of(parse(text))}.values())


def wrong(one: Prepared, texts: Mapping[str, str], order: Schedule) -> str:
    """Returns the fault if ``texts`` run ``one`` in ``order``; "" if nothing is wrong."""
    executor: Any = TtgirExecutor(texts, order)
    launcher = functools.partial(get(one.plan.kernel).launch, one.plan)
    problem, contract = one.plan.problem, one.contract
    try:
        outputs, disturbed, _ = run_guarded(
            launcher, problem, one.fill.inputs, executor, 0, stores_once=contract.stores_once
        )
    except ProgramFault as fault:
        return f"fault: {fault}"
    except (UnknownOperation, TextError) as error:
        return f"unknown: {error}"
    if disturbed:
        return f"memory: {disturbed[0]}"
    for output in problem.outputs:
        verdict = judge(problem, contract, one.fill, outputs[output.name], output.name)
        if not verdict.passed:
            return f"numbers: {verdict.text}"
    return ""


def first_wrong(problems: Sequence[Prepared], texts: Mapping[str, str], orders: Sequence[Schedule]) -> Seen | None:
    """The first problem and order in which something is wrong: the plan's own problem in all orders comes first."""
    for number, order in _turns(len(problems), orders):
        if text := wrong(problems[number], texts, order):
            return Seen(number, order.name, text)
    return None


def _turns(problems: int, orders: Sequence[Schedule]) -> Iterator[tuple[int, Schedule]]:
    for number in range(problems):
        for order in orders:
            yield number, order
