"""A comparison after the user's waivers, lists and claims had their say."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from conformance.gate.findings import Comparison, Finding, Group, Kind, Severity
from conformance.gate.verdict.apply_waivers import Waived
from conformance.gate.verdict.gate_verdict import GateVerdict, Part
from conformance.gate.verdict.groups import grouped

_COMPARED = (Part.RUN, Part.REGRESSION)


def settled(comparison: Comparison, verdict: GateVerdict, left: Iterable[Group]) -> Comparison:
    """``comparison`` with the regressions that are ``left``; those that waivers took out as findings of the kind
    WAIVED; as further objections the reasons of ``verdict`` of which a comparison does not speak by itself, and as
    warnings its notes."""
    others = [group for group in comparison.groups if group.severity is not Severity.REGRESSION]
    found = [finding for group in (*left, *others) for finding in group.findings]
    causes = {finding.case: finding for group in comparison.regressions for finding in group.findings}
    found += [_waived(each, causes.get(each.case)) for each in verdict.waived]
    more = tuple("\n".join(reason.lines()) for reason in verdict.reasons if reason.part not in _COMPARED)
    return replace(
        comparison,
        groups=grouped(found),
        warnings=(*comparison.warnings, *verdict.notes),
        objections=(*comparison.objections, *more),
    )


def _waived(each: Waived, finding: Finding | None) -> Finding:
    cause = f"{each.kind.value}, {each.waiver.reason} ({each.waiver})"
    kernel, target = (finding.kernel, finding.target) if finding else (None, None)
    return Finding(Kind.WAIVED, each.case, kernel, target, cause, "", each.text)
