"""What waivers make of a candidate: what they take out of what fails, and which of them are themselves at fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from conformance.gate.changes.code_changes import kind_of_check
from conformance.gate.findings import Comparison, Finding, Group, Kind
from conformance.gate.user_files.case_patterns import Ids
from conformance.gate.user_files.stack_ranges import VERSIONED, holds
from conformance.gate.user_files.toml_edits import hunk, key_span, narrowest, toml_patterns, toml_text
from conformance.gate.user_files.waiver_file import FAILURES, Waiver, Waivers
from conformance.records import CaseRecord, Status

#: Kinds whose findings are about failing checks, or about a diagnosis where none failed.
_OF_CHECKS = (Kind.NEW_FAIL, Kind.NEW_CRASH, Kind.NONDETERMINISTIC)


@dataclass(frozen=True)
class Waived:
    """A finding or a failing record that ``waiver``, the first in the file that covers it, takes out of what fails."""

    waiver: Waiver
    case: str
    kind: Kind
    text: str


@dataclass(frozen=True)
class WaiverProblem:
    """A waiver that fails the gate: why, and the edit of its file as a unified diff."""

    waiver: Waiver
    text: str
    edit: str

    def __str__(self) -> str:
        return f"{self.waiver}: {self.text}"


@dataclass(frozen=True)
class Waiving:
    """What waivers make of a candidate. ``left`` are the regressions that none covers, ``excused`` the failing cases
    that one covers (a lost feature or a spill may be what fails a case), ``notes`` name the waivers of which this run
    says nothing."""

    left: tuple[Group, ...] = ()
    waived: tuple[Waived, ...] = ()
    excused: frozenset[str] = frozenset()
    problems: tuple[WaiverProblem, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Item:
    """What a waiver can cover: a finding of the comparison, or a failing record. Each text of ``said`` must have what
    the waiver's ``seen`` asks for."""

    case: str
    target: str | None
    kind: Kind
    text: str
    of_record: bool = False
    said: tuple[str, ...] = field(default=(), compare=False)


def apply(
    waivers: Waivers,
    records: Iterable[CaseRecord],
    today: date,
    comparison: Comparison | None = None,
    *,
    complete: bool = False,
) -> Waiving:
    """What ``waivers`` make of the candidate's ``records`` and of its ``comparison`` with a baseline.

    A waiver is judged by the cases that the run has: one whose cases were not run is noted, unless the run is
    ``complete``, that is, has every case that is owed: then it matches nothing, which is a problem.
    """
    by_case = {record.case: record for record in records}
    regressions = comparison.regressions if comparison else ()
    side = comparison.candidate.stack if comparison else {}
    items = _items(regressions, by_case)
    by_item: dict[str, list[_Item]] = {}
    for item in items:
        by_item.setdefault(item.case, []).append(item)
    known = Ids([*by_case, *by_item])
    covered: dict[_Item, Waiver] = {}
    problems: list[WaiverProblem] = []
    notes: list[str] = []
    for waiver in waivers.entries:
        ids = sorted({case for pattern in waiver.patterns for case in known.matching(pattern)})
        mine = [item for case in ids for item in by_item.get(case, ())]
        mine = [item for item in mine if waiver.accepts(item.target, item.kind, item.said)]
        mine = [item for item in mine if holds(waiver.stack, _stack(item, by_case, side))]
        cases = [by_case[case] for case in ids if case in by_case and waiver.is_for(by_case[case].target)]
        here = [record for record in cases if holds(waiver.stack, record.stack)]
        if waiver.expires < today:
            problems.append(_expired(waivers, waiver, mine))
            continue
        for item in mine:
            covered.setdefault(item, waiver)
        judged = [record for record in here if record.status is not Status.NOT_RUN]
        if comparison is None and waiver.kind not in FAILURES.values():
            judged = []  # what is only seen by comparing
        found = _objection(waivers, waiver, mine, judged)
        if found:
            problems.append(found)
        elif not mine and complete and not cases:
            problems.append(_remove(waivers, waiver, "no case of the run or of the mustpass lists is as it says"))
        elif not mine:
            why = "was not judged in this run" if here else "is not about this stack" if cases else "has no case here"
            notes.append(f"{waiver}: {why}")
    return Waiving(
        _left(regressions, covered), _waived(covered), _excused(items, covered), tuple(problems), tuple(notes)
    )


def _items(regressions: Iterable[Group], by_case: Mapping[str, CaseRecord]) -> list[_Item]:
    items = [
        _Item(f.case, f.target, f.kind, f.cause, said=_said(f, by_case.get(f.case)))
        for group in regressions
        for f in group.findings
    ]
    items += [
        _Item(record.case, record.target, FAILURES[record.status], record.status.value, True, _failures(record))
        for record in by_case.values()
        if record.status in FAILURES
    ]
    return items


def _failures(record: CaseRecord, *, about_code: bool = True) -> tuple[str, ...]:
    """Every failing check of ``record`` with what it says; without one the diagnosis. Checks about the code that are
    findings of their own can be left out."""
    failing = [each for each in record.verdicts if not each.passed]
    texts = tuple(f"{each.check}: {each.text}" for each in failing if about_code or kind_of_check(each.check) is None)
    return texts or (record.diagnosis,)


def _said(finding: Finding, record: CaseRecord | None) -> tuple[str, ...]:
    if finding.kind in _OF_CHECKS and record is not None:
        return _failures(record, about_code=False)
    return (finding.cause,)


def _waived(covered: Mapping[_Item, Waiver]) -> tuple[Waived, ...]:
    """What is waived, each failure once, though it may be a finding and a record."""
    found: dict[tuple[str, Kind], Waived] = {}
    for item, waiver in covered.items():
        found.setdefault((item.case, item.kind), Waived(waiver, item.case, item.kind, item.text))
    return tuple(found.values())


def _excused(items: Iterable[_Item], covered: Mapping[_Item, Waiver]) -> frozenset[str]:
    """The cases whose result may differ from what is owed: their failure is covered, or all that is behind it. A lost
    feature or a spill is a finding of its own and fails the case too; lost time does not."""
    excused = {item.case for item in covered if item.kind in FAILURES.values()}
    behind = {item.case for item in covered if item.kind is not Kind.SLOWER}
    open_findings = {item.case for item in items if item not in covered and not item.of_record}
    return frozenset(excused | (behind - open_findings))


def _stack(item: _Item, by_case: Mapping[str, CaseRecord], side: Mapping[str, Any]) -> Mapping[str, Any]:
    """The candidate's stack for ``item``: a case that was lost has no record of its own."""
    return by_case[item.case].stack if item.case in by_case else side


def _left(regressions: Iterable[Group], covered: Mapping[_Item, Waiver]) -> tuple[Group, ...]:
    groups = [
        replace(
            group,
            findings=tuple(f for f in group.findings if _Item(f.case, f.target, f.kind, f.cause) not in covered),
        )
        for group in regressions
    ]
    return tuple(group for group in groups if group.findings)


def _objection(
    waivers: Waivers, waiver: Waiver, mine: Sequence[_Item], judged: Sequence[CaseRecord]
) -> WaiverProblem | None:
    """What is wrong with a waiver that has not expired, by the ``judged`` ones of its cases; None if nothing is."""
    if waiver.kind not in FAILURES.values():
        if mine or not judged:
            return None
        return _remove(waivers, waiver, f"none of its {len(judged)} cases in this run has this regression")
    passing = [record.case for record in judged if record.status is Status.PASS]
    if passing and mine:
        failing = sorted({item.case for item in mine})
        change = hunk(
            waivers.text,
            waiver.file,
            key_span(waivers.text, waiver.span, Waiver.table, "cases"),
            toml_patterns(narrowest(failing, passing)),
        )
        text = f"{len(passing)} of its cases pass unexpectedly, such as {passing[0]}: narrow cases to the failing ones"
        return WaiverProblem(waiver, text, change)
    if passing:
        return _remove(waivers, waiver, f"its cases pass unexpectedly, such as {passing[0]}")
    if judged and not mine:
        return _remove(waivers, waiver, f"none of its {len(judged)} cases in this run fails in this way")
    return None


def _remove(waivers: Waivers, waiver: Waiver, why: str) -> WaiverProblem:
    count = waiver.span.stop - waiver.span.start
    text = f"{why}: remove these {count} lines"
    return WaiverProblem(waiver, text, hunk(waivers.text, waiver.file, waiver.span))


def _expired(waivers: Waivers, waiver: Waiver, mine: Sequence[_Item]) -> WaiverProblem:
    if not mine:
        return _remove(waivers, waiver, f"expired on {waiver.expires} and covers nothing in this run")
    place = key_span(waivers.text, waiver.span, Waiver.table, "expires")
    change = hunk(waivers.text, waiver.file, place, [f"expires = <a later day that {waiver.owner} stands for>"])
    text = (
        f"expired on {waiver.expires} and excuses nothing: {waiver.owner} renews line {place.start + 1} or removes it"
    )
    return WaiverProblem(waiver, text, change)


def suggested(group: Group, comparison: Comparison, passing: Sequence[str] = ()) -> str:
    """The waiver that would accept ``group``, with the cases that are ``passing`` left out. What a person has to decide
    is in angle brackets, which is no TOML: it cannot be used without being read."""
    found, before = comparison.candidate.stack, comparison.baseline.stack
    known = [name for name in VERSIONED if isinstance(found.get(name), str)]
    moved = [name for name in known if found[name] != before.get(name)] or known[:2]
    stack = ", ".join(f"{name} = {toml_text('==' + found[name].partition('+')[0])}" for name in moved)
    lines = [f"[[{Waiver.table}]]", *toml_patterns(narrowest([finding.case for finding in group.findings], passing))]
    if group.kind is not Kind.NEW_FAIL:
        lines.append(f'kind = "{group.kind.value}"')
    placeholders = {
        "reason": "why this is acceptable",
        "issue": "https link",
        "owner": "who looks after it",
        "expires": "YYYY-MM-DD",
    }
    lines += [f"stack = {{ {stack} }}", *(f"{key} = <{what}>" for key, what in placeholders.items())]
    return "\n".join(lines)
