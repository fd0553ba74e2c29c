"""Puts findings of one cause into groups, ranks the groups, and links each to what came with it.

A group is linked to a feature if at least :data:`COINCIDING` of its cases have gained or lost it; where many others
have, too, the sentence says so. A feature is linked to the groups that coincide with it: at least as large a share of
its own cases is in the group. It counts on the targets of the group alone, so a feature that came on two targets is
linked to a group of one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from conformance.user_files.findings import Finding, Group, Harm, Kind, OwnThresholds, Severity

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


#: The share of the cases of either side that the other side must have, too.
COINCIDING = 0.9
FEATURES = (Kind.FEATURE_GAINED, Kind.FEATURE_LOST)

#: The assembler of each target in the baseline and in the candidate.
Assemblers = Mapping[str, tuple[str, str]]


def noted(
    groups: Iterable[Group],
    assemblers: Assemblers,
    own: Mapping[str, OwnThresholds],
    features: Iterable[Group] | None = None,
) -> tuple[Group, ...]:
    """``groups`` with sentences about what coincides with each, and about kernels with thresholds of their ``own``.
    ``features`` are the groups among which gained and lost features are looked for, ``groups`` themselves unless
    given."""
    groups = tuple(groups)
    others = _Others(groups if features is None else features)
    return tuple(
        replace(
            group,
            notes=(*_mended(group), *others.notes(group), *_assembler(group, assemblers), *_thresholds(group, own)),
        )
        for group in groups
    )


class _Others:
    """Cases of groups by target, for what a group may be linked to."""

    def __init__(self, groups: Iterable[Group]) -> None:
        self._groups = tuple(groups)
        self._features: dict[tuple[Kind, str], dict[str, set[str]]] = {}
        for group in self._groups:
            if group.kind in FEATURES:
                for finding in group.findings:
                    by_target = self._features.setdefault((group.kind, _what(finding)), {})
                    by_target.setdefault(str(finding.target), set()).add(finding.case)

    def notes(self, group: Group) -> Iterator[str]:
        """Returns sentences about what coincides with ``group``: for a feature every kind, and for the others the
        features."""
        cases = {finding.case for finding in group.findings}
        targets = {str(finding.target) for finding in group.findings}
        for (kind, what), by_target in self._features.items():
            if kind is not group.kind:
                its_cases = set().union(*(by_target.get(target, ()) for target in targets))
                yield from _link(cases, its_cases, what, whole=group.kind in FEATURES or not _wants_reading(group))
        if group.kind in FEATURES:
            for other in self._groups:
                if other.kind not in FEATURES:
                    its_cases = {finding.case for finding in other.findings if str(finding.target) in targets}
                    yield from _link(cases, its_cases, other.kind.value, whole=True)


def _what(finding: Finding) -> str:
    """Returns the cause without its target, such as "ASYNC_COPY gained"."""
    return finding.cause.removesuffix(f" on {finding.target}")


def _wants_reading(group: Group) -> bool:
    return group.severity is not Severity.INFO


def _link(cases: set[str], others: set[str], what: str, *, whole: bool) -> Iterator[str]:
    """The sentence that links ``cases`` to the ``others``; with ``whole`` only if most of the others are among them."""
    both = len(cases & others)
    if not both or both < COINCIDING * max(len(cases), len(others) if whole else 0):
        return
    if both == len(cases) == len(others):
        yield f"{what} in the same {_many(both)}"
        return
    rest = len(others) - both
    more = f", and in {rest} more" if both < COINCIDING * len(others) else ""
    yield f"{what} in {both} of these {_many(len(cases))}{more}"


def _mended(group: Group) -> Iterator[str]:
    """Yields a sentence that names the releases which mend the known defects of the group, as far as their entries say
    so."""
    releases = sorted({finding.defect.fixed_in for finding in group.findings if finding.defect})
    if any(releases):
        yield f"fixed in {', '.join(filter(None, releases))}"


def _assembler(group: Group, assemblers: Assemblers) -> Iterator[str]:
    """Yields a sentence about the assemblers of the group's targets: all have another one now, or all have the same."""
    targets = {str(finding.target) for finding in group.findings}
    if not targets or not targets <= set(assemblers):
        return
    pairs = {assemblers[target] for target in targets}
    if all(was != now for was, now in pairs):
        changes = ", ".join(f"{was} to {now}" for was, now in sorted(pairs))
        yield f"the assembler is another one on all of its targets: {changes}"
    elif all(was == now for was, now in pairs):
        yield f"the assembler is the same: {', '.join(sorted(was for was, _ in pairs))}"


def _thresholds(group: Group, own: Mapping[str, OwnThresholds]) -> Iterator[str]:
    """Yields a sentence that names the kernels of the group which declare their own thresholds for its kind."""
    for kernel in sorted({finding.kernel for finding in group.findings if finding.kernel} & own.keys()):
        if group.kind in own[kernel].kinds:
            yield f"{kernel} declares thresholds of its own for {group.kind.value}"


def _many(count: int) -> str:
    return f"{count} case" if count == 1 else f"{count} cases"
