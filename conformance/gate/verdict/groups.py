"""Puts findings of one cause into groups, and ranks the groups."""

from __future__ import annotations

from collections.abc import Iterable

from conformance.gate.findings import SEVERITY, Finding, Group, Kind, Severity

_SEVERITY_RANK = {severity: rank for rank, severity in enumerate(Severity)}
_KIND_RANK = {kind: rank for rank, kind in enumerate(Kind)}


def grouped(findings: Iterable[Finding]) -> tuple[Group, ...]:
    """Groups of one kind and cause: the severest first, then by the order of kinds, then the largest."""
    groups: dict[tuple[Kind, str], list[Finding]] = {}
    for finding in findings:
        groups.setdefault((finding.kind, finding.cause), []).append(finding)
    ranked = sorted(groups.items(), key=lambda item: _rank(item[0], len(item[1])))
    return tuple(
        Group(kind, cause, tuple(sorted(members, key=lambda finding: (-distance(finding), finding.case))))
        for (kind, cause), members in ranked
    )


def _rank(key: tuple[Kind, str], size: int) -> tuple[int, int, int, str]:
    kind, cause = key
    return _SEVERITY_RANK[SEVERITY[kind]], _KIND_RANK[kind], -size, cause


def distance(finding: Finding) -> float:
    """How far the finding's ratio is from 1, as a factor of 1 or more; 0 without a ratio."""
    ratio = finding.ratio
    return max(ratio, 1 / ratio) if ratio else 0.0
