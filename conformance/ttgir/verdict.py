"""What running the compiled launches of one plan shows: every order of their asynchronous operations must be right."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from conformance.execution.trial import Launchable, Trial, trial
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
    """What running the TTGIR of one plan showed.

    ``unknown`` names what the executor does not know; then there are no verdicts. ``orders`` and ``fills`` are what
    ran, ``seconds`` how long it took; 0 for a verdict that was kept from an earlier run. ``trial`` is that of the first
    order, None where nothing ran to its end.
    """

    verdicts: tuple[Verdict, ...] = ()
    unknown: str = ""
    orders: tuple[str, ...] = ()
    fills: tuple[str, ...] = ()
    seconds: float = 0.0
    trial: Trial | None = None

    @property
    def passed(self) -> bool:
        """Whether everything ran and was right."""
        return not self.unknown and all(verdict.passed for verdict in self.verdicts)

    @property
    def observed(self) -> dict[str, Any]:
        """What a record keeps of it."""
        if self.unknown:
            return {"unknown": self.unknown}
        return {"orders": len(self.orders), "fills": len(self.fills), "layouts": False}


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

    In the first order every exact fill is judged, of ``names`` if given; in the others the first of them: what waits
    for what does not depend on numbers.
    """
    started = time.perf_counter()
    first: Trial | None = None
    verdicts: list[Verdict] = []
    ran: list[str] = []
    try:
        functions = {parse(text).function.name: text for text in texts}
        exact = _exact_fills(kernel, plan, names)
        for order in orders:
            fills, executor = exact if first is None else exact[:1], TtgirExecutor(functions, order)
            judged = trial(kernel, plan, executor, seed=seed, names=fills)
            ran.append(order.name)
            first = first or judged
            verdicts += _failed(judged, order)
            if verdicts:
                break
    except (UnknownOperation, TextError, NotImplementedError) as error:
        return Executed(unknown=str(error), seconds=time.perf_counter() - started)
    except Fault as fault:
        verdicts.append(_verdict(False, str(fault)))
    if not verdicts:
        verdicts.append(_verdict(True, f"right in {len(ran)} orders; layouts were not run", orders=ran))
    return Executed(tuple(verdicts), "", tuple(ran), tuple(exact), time.perf_counter() - started, first)


def _exact_fills(kernel: Launchable, plan: Plan, names: Sequence[str] | None) -> tuple[str, ...]:
    """The exact fills of the plan; the first one if none is exact."""
    applicable = applicable_fills(plan.problem, kernel.contract(plan, TtgirExecutor.name), names)
    exact = {kind.name for kind in fill_set(plan.problem).kinds if kind.exact}
    return tuple(name for name in applicable if name in exact) or applicable[:1]


def _failed(judged: Trial, order: Schedule) -> list[Verdict]:
    """What failed in ``order``, under the checks' names below the stage's."""
    return [
        replace(
            verdict,
            check=str(Check(CheckKind.EXECUTED, f"ttgir/{verdict.check}")),
            text=f"order '{order.name}': {verdict.text}",
        )
        for verdict in judged.verdicts
        if not verdict.passed
    ]


def _verdict(passed: bool, text: str, **details: Any) -> Verdict:
    return Verdict(str(Check(CheckKind.EXECUTED, "ttgir")), passed, text, details)
