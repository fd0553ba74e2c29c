"""Says why a case is in a tier or not, and which cases a tier leaves out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from conformance.cases.case_table import Cases, Selection, cases_of, identify
from conformance.cases.lookup import CaseLookup, arguments_of, test_function
from conformance.records import Reason, ReasonCode

#: The next larger tier.
LARGER = {"quick": "default", "default": "full", "full": "exhaustive"}


def why(case: str, selection: Selection) -> str:
    """Returns a line that says why ``case`` is, or is not, in the tier of ``selection``. It names the rule and, for a
    case that is not, the closest one that is.

    Raises KeyError if no tier has such a case.
    """
    name, _, rest = case.partition("[")
    test, text, tier = test_function(name), rest.removesuffix("]"), selection.tier
    call, cases, arguments = CaseLookup(selection.targets)(case), cases_of(test), arguments_of(test)
    if call is None or cases is None:
        return f"in the {tier} tier: it is in every tier"
    kernel, target = call.values.get("kernel"), call.values.get("target")
    table = cases.table(replace(selection, kernels=(kernel.name,) if kernel else selection.kernels), arguments)
    rule = cases.rule(kernel, tier)
    if text in table.rows:
        return f"in the {tier} tier: {rule}"
    if target is not None and target not in selection.targets:
        return f"not in a run of {', '.join(one.id for one in selection.targets)}: its target is {target.id}"
    values = tuple(identify(call.values[one]) for one in table.names)
    peers = {peer: tuple(map(identify, row)) for peer, row in table.rows.items()}
    return f"not in the {tier} tier: {rule}; {_sentence(table.names, values, peers)}"


def left_out(cases: Cases, selection: Selection, arguments: Sequence[str]) -> dict[str, Reason]:
    """Returns the ids of the cases of a test that the next larger tier has and the chosen tier has not, each with the
    reason.

    The reason names the case of the chosen tier that shares most values, and what the two differ in. It is one of the
    same kernel if the test has one. It says so if no case of the tier has one of these values. Empty for the largest
    tier.
    """
    if selection.tier not in LARGER:
        return {}
    table = cases.table(selection, arguments)
    larger = cases.table(replace(selection, tier=LARGER[selection.tier]), arguments)
    groups: dict[str, dict[str, tuple[str, ...]]] = {}  # by kernel: id -> texts of the values
    for case, row in table.rows.items():
        values = tuple(map(identify, row))
        groups.setdefault(_kernel(table.names, values), {})[case] = values
    reasons = {}
    for case, row in larger.rows.items():
        if case not in table.rows:
            values = tuple(map(identify, row))
            peers = groups.get(_kernel(table.names, values), {})
            reasons[case] = Reason(ReasonCode.TIER, selection.tier, _sentence(table.names, values, peers))
    return reasons


def _kernel(names: Sequence[str], values: Sequence[str]) -> str:
    return values[names.index("kernel")] if "kernel" in names else ""


def _sentence(names: Sequence[str], values: Sequence[str], peers: Mapping[str, tuple[str, ...]]) -> str:
    if not peers:
        return "the tier has no case of this test with this kernel"
    closest = max(peers, key=lambda case: sum(map(str.__eq__, values, peers[case])))
    differing = [place for place in range(len(names)) if values[place] != peers[closest][place]]
    text = f"closest is [{closest}], which differs in {', '.join(names[place] for place in differing)}"
    unseen = [names[place] for place in differing if all(peer[place] != values[place] for peer in peers.values())]
    return f"{text}; no case of the tier has its {' or '.join(unseen)}" if unseen else text
