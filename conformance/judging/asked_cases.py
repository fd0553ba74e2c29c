"""Counts the cases of a kernel whose plans it takes and those that it refuses, without a run."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

from conformance.cases.asked_tests import answer
from conformance.cases.case_table import Selection
from conformance.cases.lookup import CaseLookup, case_ids
from conformance.cases.outside_kernels import orders_of

#: Cases that are asked, of one tier: the full tier of a kernel of this package has a hundred thousand.
MOST = 2000
#: The names of the values that a kernel takes, as :func:`conformance.cases.outside_kernels.answers` has them.
_NAMES = ("dtype", "config", "target", "orders")


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
        call = lookup(case) if len(cases) <= MOST else None
        given = None if call is None else answer(call.test, call.values, selection)
        counter = asked.unasked if given is None else asked.refused if given.reason else asked.accepted
        counter[suite] += 1
        if call is not None and given is not None and given.reason is None and given.plan is not None:
            plan = given.plan
            values = (call.values.get("dtype", ""), plan.config.id, plan.target.id, orders_of(plan.problem))
            for name, value in zip(_NAMES, values, strict=True):
                asked.judged[name].add(value)
    return asked
