"""Puts findings of one cause into groups, and ranks the groups."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.gate.findings import Finding, Group, Kind, Severity

_SEVERITY_RANK = {severity: rank for rank, severity in enumerate(Severity)}
_KIND_RANK = {kind: rank for rank, kind in enumerate(Kind)}


def grouped(findings: Iterable[Finding]) -> tuple[Group, ...]:
    """Groups of one kind, cause and severity: the severest first, then by the order of kinds, then by the costliest
    finding, then the largest."""
    groups: dict[tuple[Severity, Kind, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.severity, finding.kind, finding.cause), []).append(finding)
    for members in groups.values():
        members.sort(key=lambda finding: (*(-cost for cost in finding.cost), finding.case))
    ranked = sorted(groups.items(), key=lambda item: _rank(item[0], item[1]))
    return tuple(Group(kind, cause, tuple(members)) for (_, kind, cause), members in ranked)


def _rank(key: tuple[Severity, Kind, str], members: list[Finding]) -> tuple[float | str, ...]:
    severity, kind, cause = key
    costs = (-cost for cost in members[0].cost)
    return (_SEVERITY_RANK[severity], _KIND_RANK[kind], *costs, -len(members), cause)
