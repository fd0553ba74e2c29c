"""What running the compiled launches of one plan shows: every order of their asynchronous operations must be right."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from conformance.execution.trial import Launchable, trial
from conformance.inputs.fill_set import fill_set
from conformance.inputs.fills import applicable_fills
from conformance.kernels.kernel import Plan
from conformance.records import Check, CheckKind, Verdict
from conformance.ttgir.arithmetic import UnknownOperation
from conformance.ttgir.executor import SCHEDULES, TtgirExecutor
from conformance.ttgir.machine import Schedule
from conformance.ttgir.memory import Fault
from conformance.ttgir.text import TextError, parse


@dataclass(frozen=True)
class Executed:
    """Verdicts of the TTGIR of one plan. ``unknown`` names what the executor does not know, and then there are none;
    ``orders`` and ``fills`` are what ran, ``seconds`` how long it took."""

    verdicts: tuple[Verdict, ...] = ()
    unknown: str = ""
    orders: tuple[str, ...] = ()
    fills: tuple[str, ...] = ()
    seconds: float = 0.0


def executed(
    kernel: Launchable,
    plan: Plan,
    texts: Iterable[str],
    *,
    seed: int = 0,
    names: Sequence[str] | None = None,
    orders: Sequence[Schedule] = SCHEDULES,
) -> Executed:
    """Runs the launches of ``plan``, whose TTGIR is in ``texts``, in each of ``orders``.

    In the first order every exact fill is judged, of ``names`` if given; in the others the first of them: what waits for
    what does not depend on numbers.
    """
    started = time.perf_counter()
    try:
        functions = {parse(text).function.name: text for text in texts}
        exact = _exact_fills(kernel, plan, names)
        verdicts: list[Verdict] = []
        for number, order in enumerate(orders):
            verdicts += _of_order(
                kernel, plan, TtgirExecutor(functions, order), seed, exact if number == 0 else exact[:1]
            )
            if not all(verdict.passed for verdict in verdicts):
                break
    except (UnknownOperation, TextError) as error:
        return Executed(unknown=str(error), seconds=time.perf_counter() - started)
    ran = tuple(order.name for order in orders)
    failed = tuple(verdict for verdict in verdicts if not verdict.passed)
    text = f"right in {len(ran)} orders, of {len(exact)} fills; layouts were not executed"
    passed = (_verdict(True, text, orders=list(ran), fills=list(exact)),)
    return Executed(failed or passed, "", ran, tuple(exact), time.perf_counter() - started)


def _exact_fills(kernel: Launchable, plan: Plan, names: Sequence[str] | None) -> tuple[str, ...]:
    contract = kernel.contract(plan, TtgirExecutor.name)
    applicable = applicable_fills(plan.problem, contract, names)
    exact = {kind.name for kind in fill_set(plan.problem).kinds if kind.exact}
    return tuple(name for name in applicable if name in exact) or applicable[:1]


def _of_order(
    kernel: Launchable, plan: Plan, executor: TtgirExecutor, seed: int, fills: Sequence[str]
) -> list[Verdict]:
    try:
        judged = trial(kernel, plan, executor, seed=seed, names=fills)
    except Fault as fault:
        return [_verdict(False, str(fault))]
    where = f"order '{executor.schedule.name}'"
    return [
        replace(verdict, check=str(Check(CheckKind.EXECUTED, verdict.check)), text=f"{where}: {verdict.text}")
        for verdict in judged.verdicts
        if not verdict.passed
    ]


def _verdict(passed: bool, text: str, **details: Any) -> Verdict:
    return Verdict(str(Check(CheckKind.EXECUTED, "ttgir")), passed, text, details)
