"""Applies the user's waivers, mustpass lists and claims to a comparison."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from conformance.gate.verdict.apply_waivers import WaivedCase
from conformance.gate.verdict.gate_verdict import GateVerdict, Part
from conformance.gate.verdict.group_notes import noted
from conformance.gate.verdict.groups import grouped
from conformance.user_files.findings import Comparison, Finding, Group, Kind, Severity

_COMPARED = (Part.RUN, Part.REGRESSION)


def with_policy(comparison: Comparison, verdict: GateVerdict, uncovered: Iterable[Group]) -> Comparison:
    """``comparison`` as ``verdict`` leaves it.

    Its regressions are the ``uncovered`` ones. Those that waivers cover become findings of the kind WAIVED. The reasons
    of ``verdict`` that a comparison does not know, such as an unproven claim, become objections; its notes, warnings.
    """
    others = [group for group in comparison.groups if group.severity is not Severity.REGRESSION]
    findings = [finding for group in (*uncovered, *others) for finding in group.findings]
    regressions = {(one.case, one.kind): one for group in comparison.regressions for one in group.findings}
    findings += [_waived_finding(waived, regressions.get((waived.case, waived.kind))) for waived in verdict.waived]
    objections = tuple("\n".join(reason.lines()) for reason in verdict.reasons if reason.part not in _COMPARED)
    return replace(
        comparison,
        groups=noted(grouped(findings), comparison.assemblers, comparison.own_thresholds, comparison.groups),
        warnings=(*comparison.warnings, *verdict.notes),
        objections=(*comparison.objections, *objections),
    )


def _waived_finding(waived: WaivedCase, regression: Finding | None) -> Finding:
    """Returns the finding that keeps a waived case visible. What it is about, and whether the case newly fails, is that
    of the ``regression``, if any."""
    cause = f"{waived.kind.value}, {waived.waiver.reason} ({waived.waiver})"
    if regression is None:
        return Finding(Kind.WAIVED, waived.case, None, None, cause, "", waived.text)
    return replace(
        regression, kind=Kind.WAIVED, cause=cause, before="", after=waived.text, ratio=None, detail="", from_zero=0.0
    )
