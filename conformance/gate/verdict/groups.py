"""Puts findings of one cause into groups, and ranks the groups."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.user_files.findings import Finding, Group, Harm, Kind, Severity

_SEVERITY_RANK = {severity: rank for rank, severity in enumerate(Severity)}
_KIND_RANK = {kind: rank for rank, kind in enumerate(Kind)}
_HARM_RANK = {harm: rank for rank, harm in enumerate(Harm)}
#: The kind before which a known defect stands that does no worse.
_NO_WORSE = {Harm.TOO_LARGE: Kind.LIMIT_CROSSED, Harm.FEATURE_LOST: Kind.FEATURE_LOST, Harm.SPILLS: Kind.MORE_SPILLS}


def grouped(findings: Iterable[Finding]) -> tuple[Group, ...]:
    """Groups of one kind, cause and severity: the severest first, then by the order of kinds, then by the costliest
    finding, then the largest. A known defect stands by what it does, so that wrong comes before slow."""
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
    defect = members[0].defect if kind is Kind.NEW_KNOWN_DEFECT else None
    harm = defect.harm if defect else None
    place = (_KIND_RANK[_NO_WORSE.get(harm, kind)], -1 if harm in _NO_WORSE else 0) if harm else (_KIND_RANK[kind], 0)
    return (_SEVERITY_RANK[severity], *place, _HARM_RANK[harm] if harm else 0, *costs, -len(members), cause)
