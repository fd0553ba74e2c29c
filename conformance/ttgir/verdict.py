"""Judges the compiled launches of one plan by running them: every order of their asynchronous operations must
be right."""

from __future__ import annotations

import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from conformance.execution.trial.trial import Launchable, Trial, trial
from conformance.inputs.fills import applicable_fills, fill_set
from conformance.kernels.kernel import Plan
from conformance.records import Check, CheckKind, Verdict
from conformance.ttgir.arithmetic import UnknownOperation
from conformance.ttgir.executor import TtgirExecutor
from conformance.ttgir.layout_check import verified
from conformance.ttgir.machine import Schedule, orders_of
from conformance.ttgir.memory import MissingFence, ProgramFault
from conformance.ttgir.problem_sizes import problems_of
from conformance.ttgir.proof import objection
from conformance.ttgir.text import TextError, TtgirModule, parse

_CAUSES = re.compile(r" \| CAUSE ([^|]+?)(?= \||$)")
#: Elements of all tensors of a problem, gaps included, up to which it runs in every order.
LARGE = 1 << 17
#: What a record says of layouts that are known and fit. They are compared with each other, and not run.
CHECKED = "checked"


@dataclass(frozen=True)
class Executed:
    """The results of running the TTGIR of one plan.

    ``unknown`` names what the executor does not know; then nothing ran. ``orders`` and ``fills`` are what ran,
    ``seconds`` how long it took; 0 for a verdict that was kept from an earlier run. ``layouts`` says how it stands with
    layouts: CHECKED, or which are not known. ``trial`` is that of the first order, None where nothing ran to its end.
    ``unfenced``: what is wrong is that a fence of proxies is missing.
    """

    verdicts: tuple[Verdict, ...] = ()
    unknown: str = ""
    orders: tuple[str, ...] = ()
    fills: tuple[str, ...] = ()
    seconds: float = 0.0
    layouts: str = ""
    trial: Trial | None = None
    unfenced: bool = False

    @property
    def passed(self) -> bool:
        """True if everything ran and was right."""
        return not self.unknown and all(verdict.passed for verdict in self.verdicts)

    @property
    def observed(self) -> dict[str, Any]:
        """Returns the data that a record keeps of the run."""
        wrong = next(({"wrong": verdict.text} for verdict in self.verdicts if not verdict.passed), {})
        if self.unknown:
            return {"unknown": self.unknown, "layouts": self.layouts, **wrong}
        return {"orders": len(set(self.orders)), "fills": len(self.fills), "layouts": self.layouts, **wrong}


def executed(
    kernel: Launchable,
    plan: Plan,
    texts: Sequence[str],
    *,
    seed: int = 0,
    names: Sequence[str] | None = None,
    fences: bool = True,
) -> Executed:
    """Runs the launches of ``plan``, whose TTGIR is in ``texts``, the main one first. ``fences``: whether a fence of
    proxies that is missing is a fault; a compiler may add some behind TTGIR.

    At once, every exact fill of ``plan`` is judged, of ``names`` if given. The other orders run one fill on problems of
    few tiles that the same code serves. Which operation waits for which depends on the number of loop iterations, and
    not on numbers.
    """
    started = time.perf_counter()
    if why := objection():
        return Executed(unknown=f"the executor proves nothing here: {why}")
    first: Trial | None = None
    unfenced = False
    ran: list[str] = []
    where = ""
    try:
        modules = [parse(text) for text in texts]
        layouts, verdicts = _of_layouts(modules)
        functions = {module.function.name: text for module, text in zip(modules, texts, strict=True)}
        exact = _exact_fills(kernel, plan, names)
        for one, order in _runs(plan, modules[0]):
            fills = exact if first is None else _exact_fills(kernel, one, None)[:1]
            ran.append(order.name)
            where = "" if one is plan else _also_served(one)
            judged = trial(kernel, one, TtgirExecutor(functions, order, fences=fences), seed=seed, names=fills)
            first = first or judged
            failed = _failed(judged, f"{where}order '{order.name}'")
            verdicts += failed
            if failed:
                break
    except TextError as error:
        return Executed(unknown=str(error), seconds=time.perf_counter() - started)
    except (UnknownOperation, NotImplementedError) as error:
        wrong = tuple(verdict for verdict in verdicts if not verdict.passed)
        return Executed(wrong, str(error), layouts=layouts, seconds=time.perf_counter() - started)
    except ProgramFault as fault:
        unfenced = isinstance(fault, MissingFence)
        verdicts.append(_verdict(False, f"{where}{fault}"))
    if all(verdict.passed for verdict in verdicts):
        text = f"right in {len(ran)} runs, in {len(set(ran))} orders"
        verdicts.append(_verdict(True, text, runs=len(ran)))
    seconds = time.perf_counter() - started
    return Executed(tuple(verdicts), "", tuple(ran), tuple(exact), seconds, layouts, first, unfenced)


def _of_layouts(modules: Sequence[TtgirModule]) -> tuple[str, list[Verdict]]:
    """Returns the state of the layouts of ``modules``, and verdicts about their faults, or that there are none."""
    checked = [verified(module) for module in modules]
    faults = [fault for one in checked for fault in one.faults]
    unknown = sorted({name for one in checked for name in one.unknown})
    check = str(Check(CheckKind.EXECUTED, "layouts"))
    if faults:
        return CHECKED, [Verdict(check, False, fault) for fault in faults[:4]]
    if unknown:
        return f"not known: {', '.join(unknown)}", []
    return CHECKED, [Verdict(check, True, "every layout fits those that it meets")]


def _runs(plan: Plan, main: TtgirModule) -> Iterator[tuple[Plan, Schedule]]:
    """Returns the problems and orders to run. ``plan`` itself runs at once. Problems of few tiles that the same code
    serves run at once and as late as allowed. The largest of all that is not too large runs in every order; if each is,
    ``plan`` runs as late as allowed and with each agent last."""
    _, *others = problems_of(plan)
    at_once, *orders = orders_of(main)
    last = [order for order in orders if order.starved is not None and not order.late]
    thorough = max((one for one in others or [plan] if _elements(one) <= LARGE), key=_elements, default=None)
    yield plan, at_once
    for other in others:
        yield other, at_once
        yield from ((other, order) for order in (orders if other is thorough else orders[:1]))
    if plan is thorough:
        yield from ((plan, order) for order in orders)
    elif thorough is None:
        yield from ((plan, order) for order in [*orders[:1], *last])


def _also_served(plan: Plan) -> str:
    """Returns the beginning of a verdict about a problem other than the case's own."""
    return f"{' '.join(filter(None, (plan.problem.id, plan.variant.id)))}, which the same code serves, "


def _elements(plan: Plan) -> int:
    return sum(int(tensor.span) for tensor in (*plan.problem.operands, *plan.problem.outputs))


def _exact_fills(kernel: Launchable, plan: Plan, names: Sequence[str] | None) -> tuple[str, ...]:
    """The exact fills of the plan; the first one if none is exact."""
    applicable = applicable_fills(plan.problem, kernel.contract(plan, TtgirExecutor.name), names)
    exact = {kind.name for kind in fill_set(plan.problem).kinds if kind.exact}
    return tuple(name for name in applicable if name in exact) or applicable[:1]


def _failed(judged: Trial, where: str) -> list[Verdict]:
    """Returns the failures ``where`` it ran, under the checks' names below the stage's. A wrong number says its cause,
    if the diagnosis has one."""
    causes = "".join(f"; {cause}" for cause in _CAUSES.findall(judged.diagnosis.partition("\n")[0]))
    return [
        replace(
            verdict,
            check=str(Check(CheckKind.EXECUTED, f"ttgir/{verdict.check}")),
            text=f"{where}: {verdict.text}{causes if verdict.check.startswith(CheckKind.NUMERICS.value) else ''}",
        )
        for verdict in judged.verdicts
        if not verdict.passed
    ]


def _verdict(passed: bool, text: str, **details: Any) -> Verdict:
    return Verdict(str(Check(CheckKind.EXECUTED, "ttgir")), passed, text, details)
