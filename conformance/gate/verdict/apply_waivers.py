"""Applies waivers to a candidate: what they cover, and which of them are themselves at fault."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date

from conformance.gate.changes.code_changes import kind_of_check
from conformance.records import CaseRecord, Status
from conformance.user_files.case_list import Ids
from conformance.user_files.findings import NEW_FAILURES, Comparison, Finding, Group, Kind
from conformance.user_files.toml_edits import hunk, key_span, narrowest, toml_patterns, toml_text
from conformance.user_files.toml_entries import VERSIONED, holds
from conformance.user_files.waiver_file import FAILURES, Waiver, Waivers

#: Kinds of failures, of which a case that passes has none.
_FAILURES = (*dict.fromkeys(FAILURES.values()), Kind.NEW_KNOWN_DEFECT)


@dataclass(frozen=True)
class WaivedCase:
    """A finding or a failing record that ``waiver`` covers: the first in the file that does."""

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
class AppliedWaivers:
    """The effect of waivers on a candidate. ``uncovered`` are the regressions that none covers. ``excused`` are the
    failing cases that one covers: also those that fail only by a covered spill or lost feature. ``notes`` name the
    waivers of which this run says nothing."""

    uncovered: tuple[Group, ...] = ()
    waived: tuple[WaivedCase, ...] = ()
    excused: frozenset[str] = frozenset()
    problems: tuple[WaiverProblem, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Waivable:
    """A fault that a waiver can cover: a finding of the comparison, or a failing record. Each of its ``texts`` must
    contain the waiver's ``seen``."""

    case: str
    target: str | None
    kind: Kind
    text: str
    of_record: bool = False
    texts: tuple[str, ...] = field(default=(), compare=False)


@dataclass(frozen=True)
class _Match:
    """A waiver and what it meets in a run: the ``faults`` that it covers and its ``cases``. ``here`` are the cases that
    ran on its stack, ``judged`` those whose result shows whether the waiver is still needed. ``minor``: one of them has
    a warning of the waiver's kind, which may be a regression in another run."""

    waiver: Waiver
    faults: Sequence[_Waivable]
    cases: Sequence[CaseRecord]
    here: Sequence[CaseRecord]
    judged: Sequence[CaseRecord]
    minor: bool

    @property
    def note(self) -> str:
        """Returns the reason for which the run says nothing about a waiver that covers no fault."""
        if self.minor:
            return f"{self.waiver}: what it accepts is a warning in this run"
        if self.here:
            return f"{self.waiver}: was not judged in this run"
        return f"{self.waiver}: {'is not about this stack' if self.cases else 'has no case here'}"


class _Candidate:
    """The faults of a candidate, by case."""

    def __init__(self, records: Iterable[CaseRecord], comparison: Comparison | None) -> None:
        self.records = {record.case: record for record in records}
        self.regressions = comparison.regressions if comparison else ()
        self.faults = _faults(self.regressions, self.records)
        groups = comparison.groups if comparison else ()
        self._minor = {(one.case, one.kind) for group in groups for one in group.findings if one.minor}
        self._compared = comparison is not None
        self._stack = comparison.candidate.stack if comparison else {}
        self._faults_by_case: dict[str, list[_Waivable]] = {}
        for fault in self.faults:
            self._faults_by_case.setdefault(fault.case, []).append(fault)
        self._ids = Ids([*self.records, *self._faults_by_case])

    def match(self, waiver: Waiver) -> _Match:
        """Returns the faults that ``waiver`` covers, and those of its cases that the run has."""
        ids = sorted({case for pattern in waiver.patterns for case in self._ids.matching(pattern)})
        faults = [fault for case in ids for fault in self._faults_by_case.get(case, ()) if self._covers(waiver, fault)]
        records = [self.records[case] for case in ids if case in self.records]
        cases = [record for record in records if waiver.is_for(record.target)]
        here = [record for record in cases if holds(waiver.stack, record.stack)]
        judged = [record for record in here if record.status is not Status.NOT_RUN]
        shown = self._compared or waiver.kind in FAILURES.values()  # only a comparison shows the other kinds
        minor = any((record.case, waiver.kind) in self._minor for record in here)
        return _Match(waiver, faults, cases, here, judged if shown else [], minor)

    def _covers(self, waiver: Waiver, fault: _Waivable) -> bool:
        """A case that was lost has no record of its own: its stack is that of the candidate's run."""
        record = self.records.get(fault.case)
        stack = record.stack if record else self._stack
        return waiver.accepts(fault.target, fault.kind, fault.texts) and holds(waiver.stack, stack)


def apply(
    waivers: Waivers,
    records: Iterable[CaseRecord],
    today: date,
    comparison: Comparison | None = None,
    *,
    complete: bool = False,
) -> AppliedWaivers:
    """Applies ``waivers`` to the candidate's ``records`` and to its ``comparison`` with a baseline.

    A waiver is judged by those of its cases that the run has. One without such a case is noted. In a ``complete`` run,
    which has every case that is owed, it is a problem: it matches nothing.
    """
    candidate = _Candidate(records, comparison)
    covered: dict[_Waivable, Waiver] = {}
    problems: list[WaiverProblem] = []
    notes: list[str] = []
    for waiver in waivers.entries:
        match = candidate.match(waiver)
        if waiver.expires < today:
            problems.append(_expired(waivers, match))
            continue
        for fault in match.faults:
            covered.setdefault(fault, waiver)
        problem = _objection(waivers, match)
        if problem is None and complete and not match.faults and not match.cases:
            problem = _remove(waivers, waiver, "it matches no case of the run or of the mustpass lists")
        if problem is not None:
            problems.append(problem)
        elif not match.faults:
            notes.append(match.note)
    waived: dict[tuple[str, Kind], WaivedCase] = {}  # each fault once, though it may be a finding and a record
    for fault, waiver in covered.items():
        waived.setdefault((fault.case, fault.kind), WaivedCase(waiver, fault.case, fault.kind, fault.text))
    return AppliedWaivers(
        _uncovered(candidate.regressions, covered),
        tuple(waived.values()),
        _excused(candidate.faults, covered),
        tuple(problems),
        tuple(notes),
    )


def _faults(regressions: Iterable[Group], records: Mapping[str, CaseRecord]) -> list[_Waivable]:
    """Returns all that a waiver could cover: the regressions, and the records that failed."""
    findings = [finding for group in regressions for finding in group.findings]
    faults = [
        _Waivable(one.case, one.target, one.kind, one.cause, texts=_finding_texts(one, records.get(one.case)))
        for one in findings
    ]
    faults += [
        _Waivable(
            record.case, record.target, FAILURES[record.status], record.status.value, True, _failure_texts(record)
        )
        for record in records.values()
        if record.status in FAILURES
    ]
    return faults


def _failure_texts(record: CaseRecord, *, about_code: bool = True) -> tuple[str, ...]:
    """Returns every failing check of ``record`` with its text; the diagnosis if no check failed. Without ``about_code``
    the checks that are findings about the code are left out."""
    failing = [verdict for verdict in record.verdicts if not verdict.passed]
    if not about_code:
        failing = [verdict for verdict in failing if kind_of_check(verdict.check) is None]
    return tuple(f"{verdict.check}: {verdict.text}" for verdict in failing) or (record.diagnosis,)


def _finding_texts(finding: Finding, record: CaseRecord | None) -> tuple[str, ...]:
    if record is None or finding.kind not in NEW_FAILURES:
        return (finding.cause,)
    if finding.kind is Kind.NEW_KNOWN_DEFECT:  # the cause names the entry, of which seen may be a part, too
        return tuple(f"{text}; {finding.cause}" for text in _failure_texts(record))
    return _failure_texts(record, about_code=False)


def _excused(faults: Iterable[_Waivable], covered: Mapping[_Waivable, Waiver]) -> frozenset[str]:
    """The cases whose result may differ from what is owed: a waiver covers their failure, or every finding behind it. A
    lost feature or a spill fails the case and is a finding of its own. Lost time fails no case."""
    excused = {fault.case for fault in covered if fault.kind in FAILURES.values()}
    behind = {fault.case for fault in covered if fault.kind is not Kind.SLOWER}
    open_findings = {fault.case for fault in faults if fault not in covered and not fault.of_record}
    return frozenset(excused | (behind - open_findings))


def _uncovered(regressions: Iterable[Group], covered: Mapping[_Waivable, Waiver]) -> tuple[Group, ...]:
    """``regressions`` without the findings that a waiver covers, and without the groups of which none is left."""

    def is_open(finding: Finding) -> bool:
        return _Waivable(finding.case, finding.target, finding.kind, finding.cause) not in covered

    groups = [replace(group, findings=tuple(filter(is_open, group.findings))) for group in regressions]
    return tuple(group for group in groups if group.findings)


def _objection(waivers: Waivers, match: _Match) -> WaiverProblem | None:
    """Returns the problem of a waiver that has not expired, by those of its cases that were judged; None if there is
    none."""
    waiver, faults, judged = match.waiver, match.faults, match.judged
    if waiver.kind not in _FAILURES:
        if faults or not judged or match.minor:  # on a device, noise may part a warning from a regression
            return None
        return _remove(waivers, waiver, f"none of its {len(judged)} cases in this run has this regression")
    passing = [record.case for record in judged if record.status is Status.PASS]
    if passing and faults:
        failing = sorted({fault.case for fault in faults})
        place = key_span(waivers.text, waiver.span, Waiver.table, "cases")
        edit = hunk(waivers.text, waiver.file, place, toml_patterns(narrowest(failing, passing)))
        text = f"{len(passing)} of its cases pass unexpectedly, such as {passing[0]}: narrow cases to the failing ones"
        return WaiverProblem(waiver, text, edit)
    if passing:
        return _remove(waivers, waiver, f"its cases pass unexpectedly, such as {passing[0]}")
    if judged and not faults:
        return _remove(waivers, waiver, f"none of its {len(judged)} cases in this run fails in this way")
    return None


def _remove(waivers: Waivers, waiver: Waiver, why: str) -> WaiverProblem:
    count = waiver.span.stop - waiver.span.start
    text = f"{why}: remove these {count} lines"
    return WaiverProblem(waiver, text, hunk(waivers.text, waiver.file, waiver.span))


def _expired(waivers: Waivers, match: _Match) -> WaiverProblem:
    waiver = match.waiver
    if not match.faults:
        return _remove(waivers, waiver, f"expired on {waiver.expires} and covers nothing in this run")
    place = key_span(waivers.text, waiver.span, Waiver.table, "expires")
    edit = hunk(waivers.text, waiver.file, place, [f"expires = <a later day that {waiver.owner} stands for>"])
    text = (
        f"expired on {waiver.expires} and excuses nothing: {waiver.owner} renews line {place.start + 1} or removes it"
    )
    return WaiverProblem(waiver, text, edit)


def suggested(group: Group, comparison: Comparison, passing: Sequence[str] = ()) -> str:
    """The waiver that would accept ``group``, with the cases that are ``passing`` left out. What a person has to decide
    is in angle brackets, which is no TOML: it cannot be used without being read."""
    versions, before = comparison.candidate.stack, comparison.baseline.stack
    components = [name for name in VERSIONED if isinstance(versions.get(name), str)]
    moved = [name for name in components if versions[name] != before.get(name)] or components[:2]
    stack = ", ".join(f"{name} = {toml_text('==' + versions[name].partition('+')[0])}" for name in moved)
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
