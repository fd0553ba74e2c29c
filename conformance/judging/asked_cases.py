"""Asks a kernel about the plan of each of its cases, without a run: which it takes, and which it refuses.

The test of a case makes its problem and variant and hands them to ``conform``. Here something else stands for
``conform``: it asks the kernel and ends the test.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from conformance.cases.case_table import Selection
from conformance.cases.lookup import CaseLookup, case_ids
from conformance.cases.outside_kernels import orders_of
from conformance.judging.case_recorder import CaseEnded, CaseRecorder
from conformance.kernels.kernel import Kernel, Plan
from conformance.records import Reason, Status

#: Fixtures of a test that can be asked.
_FIXTURES = {"conform", "harness", "recorder"}
#: Cases that are asked, of one tier: the full tier of a kernel of this package has a hundred thousand.
MOST = 2000
#: The names of the values that a kernel takes, as :func:`conformance.cases.outside_kernels.answers` has them.
_NAMES = ("dtype", "config", "target", "orders")


class _Answer(BaseException):
    """The answer about a plan; no test catches it."""

    def __init__(self, reason: Reason | None, plan: Plan | None = None) -> None:
        super().__init__()
        self.reason, self.plan = reason, plan
        self.values: dict[str, str] = {}


@dataclass
class AskedCases:
    """The cases of one kernel in one tier, by suite. ``accepted`` and ``refused`` count those whose first plan the
    kernel takes or refuses, ``unasked`` those whose test asks for more than a plan. ``judged`` has the values of the
    plans that are taken, by "dtype", "config", "target" and "orders"."""

    accepted: Counter[str] = field(default_factory=Counter)
    refused: Counter[str] = field(default_factory=Counter)
    unasked: Counter[str] = field(default_factory=Counter)
    judged: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    def unjudged(self, accepted: Mapping[str, Mapping[str, None]]) -> dict[str, list[str]]:
        """Returns by name the values that are ``accepted``, and that no taken plan has."""
        found = {name: [value for value in accepted.get(name, ()) if value not in self.judged[name]] for name in _NAMES}
        return {name: values for name, values in found.items() if values}


def asked_cases(selection: Selection) -> AskedCases:
    """Returns what the kernels of ``selection`` say of the plans of their cases. All cases are unasked if they are more
    than :data:`MOST`."""
    asked, cases = AskedCases(), list(case_ids(selection))
    lookup = CaseLookup(selection.targets)
    for case in cases:
        suite = case.partition(".py")[0].removeprefix("test_")
        answer = _answer(lookup, case, selection) if len(cases) <= MOST else None
        counter = asked.unasked if answer is None else asked.refused if answer.reason else asked.accepted
        counter[suite] += 1
        for name, value in answer.values.items() if answer is not None and answer.reason is None else ():
            asked.judged[name].add(value)
    return asked


def _answer(lookup: CaseLookup, case: str, selection: Selection) -> _Answer | None:
    """Returns the answer about the first plan of ``case``; None if its test cannot be asked."""
    call = lookup(case)
    if call is None or set(inspect.signature(call.test).parameters) - call.values.keys() - _FIXTURES:
        return None
    names = inspect.signature(call.test).parameters
    fixtures = {"conform": _ask, "harness": _harness(selection), "recorder": CaseRecorder(case)}
    try:
        call.test(**{name: fixture for name, fixture in fixtures.items() if name in names}, **call.values)
    except _Answer as answer:
        plan = answer.plan
        if plan is not None:
            found = (call.values.get("dtype", ""), plan.config.id, plan.target.id, orders_of(plan.problem))
            answer.values = dict(zip(_NAMES, found, strict=True))
        return answer
    except CaseEnded as ended:  # the test itself asked the kernel
        return _Answer(ended.reason) if ended.status is Status.NOT_APPLICABLE else None
    except Exception:  # a test that asks for more, or a kernel whose own code fails: its case will say so
        return None
    return None


def _harness(selection: Selection) -> SimpleNamespace:
    """Stands for the harness, as far as tests ask it before they call ``conform``."""
    asked = {"tier": selection.tier, "has_gpu": selection.has_gpu, "compile_only": selection.compile_only}
    settings = SimpleNamespace(**asked, whole_tier=selection.tier in ("full", "exhaustive"), seed=0)
    return SimpleNamespace(settings=settings, targets=selection.targets)


def _ask(kernel: Kernel, problem: Any, *, config: Any, target: Any, **more: Any) -> None:
    """Stands for ``conform``: raises the answer of ``kernel``."""
    variant = more.pop("variant", None)
    named = {one.name for one in dataclasses.fields(kernel.usual_variant)}
    fields = {name: value for name, value in more.items() if name in named}
    variant = dataclasses.replace(kernel.usual_variant if variant is None else variant, **fields)
    plan = kernel.draft(problem, config, target, variant)
    raise _Answer(kernel.refusal(plan), plan)
