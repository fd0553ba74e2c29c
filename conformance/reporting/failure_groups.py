"""Groups the failing cases of one run by what failed and why, wrong results first, spills and lost features last."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from conformance.gate.runs.failure_causes import failure_cause, first_line, normalised
from conformance.records import CaseRecord, Check, CheckKind, FaultClass, Status, Verdict
from conformance.reporting.text import clean, one_line

#: Characters of what one case's check said.
NOTE_LIMIT = 160


class Meaning(str, Enum):
    """Says what it means that a case failed. The order is that of a list, the gravest first."""

    WRONG = "wrong result"
    UNSTABLE = "results that differ from run to run"
    UNORDERED = "missing wait, fence or barrier"
    RACE = "race between programs"
    MEMORY = "access outside the operands"
    GRID = "unexpected grid"
    CRASH = "crash"
    TIMEOUT = "timeout"
    COMPILE = "compile error"
    OOM = "out of memory"
    ERROR = "error outside the checks"
    CHECK = "failed check"
    LIMIT = "limit of the hardware exceeded"
    CODE = "unexpected code"
    SPILLS = "register spills"
    UNEXPECTED_PASS = "unexpected pass"
    MACHINE = "fault of the machine"


_BY_CHECK = {
    CheckKind.NUMERICS: Meaning.WRONG,
    CheckKind.EXECUTED: Meaning.WRONG,
    CheckKind.RACES: Meaning.RACE,
    CheckKind.REPEAT: Meaning.UNSTABLE,
    CheckKind.MEMORY: Meaning.MEMORY,
    CheckKind.GRID: Meaning.GRID,
    CheckKind.COMPILE: Meaning.COMPILE,
    CheckKind.RESOURCES: Meaning.LIMIT,
    CheckKind.REQUIRES: Meaning.CODE,
    CheckKind.FORBIDS: Meaning.CODE,
    CheckKind.CODEGEN: Meaning.CODE,
    CheckKind.SPILLS: Meaning.SPILLS,
}
_BY_STATUS = {
    Status.COMPILE_ERROR: Meaning.COMPILE,
    Status.CRASH: Meaning.CRASH,
    Status.TIMEOUT: Meaning.TIMEOUT,
    Status.OOM: Meaning.OOM,
    Status.FLAKY: Meaning.UNSTABLE,
    Status.UNEXPECTED_PASS: Meaning.UNEXPECTED_PASS,
}
#: Checks of the code that judge its order, by the first part of their subject.
_ORDER = "order/"
_RANK = {meaning: rank for rank, meaning in enumerate(Meaning)}


def _meaning_of_check(name: str) -> Meaning:
    check = Check.parse(name)
    if check.kind is CheckKind.CODEGEN and check.subject.startswith(_ORDER):
        return Meaning.UNORDERED
    return _BY_CHECK.get(check.kind, Meaning.CHECK)


@dataclass
class FailureGroup:
    """Cases that failed for one cause: for each kernel their ids with what the failing check said, and the record of
    the first one."""

    meaning: Meaning
    cause: str
    kernels: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    targets: set[str] = field(default_factory=set)
    examples: dict[str, CaseRecord] = field(default_factory=dict)

    @property
    def count(self) -> int:
        return sum(map(len, self.kernels.values()))

    @property
    def example(self) -> CaseRecord:
        """The record of the first case of the first kernel."""
        return self.examples[next(iter(self.kernels))]

    def add(self, record: CaseRecord, note: str) -> None:
        kernel = record.kernel or "no kernel"
        self.kernels.setdefault(kernel, []).append((record.case, note))
        if record.target:
            self.targets.add(record.target)
        if kernel not in self.examples or record.case < self.examples[kernel].case:
            self.examples[kernel] = record

    def sort(self) -> None:
        """Puts kernels with most cases first, and cases in the order of their ids."""
        ordered = sorted(self.kernels.items(), key=lambda item: (-len(item[1]), item[0]))
        self.kernels = {kernel: sorted(cases) for kernel, cases in ordered}


def failure(record: CaseRecord) -> tuple[Meaning, str, str]:
    """Returns the meaning and the cause of the failure of ``record``, and the text of its gravest failing check."""
    if record.fault is not None and record.fault_class is FaultClass.INFRASTRUCTURE:
        text = record.fault.text
        return Meaning.MACHINE, f"{record.fault.kind}: {normalised(first_line(text))}", one_line(text)[:NOTE_LIMIT]
    failing = sorted(record.failing, key=lambda pair: _RANK[_meaning_of_check(pair[0])])
    meaning = _BY_STATUS.get(record.status) or (_meaning_of_check(failing[0][0]) if failing else Meaning.ERROR)
    cause = failure_cause(record, tuple(failing))
    if record.status is Status.UNEXPECTED_PASS and record.reason is not None:
        cause = f"remove the expected failure {record.reason.subject}, or narrow it"
    note = one_line(first_line(failing[0][1] if failing else record.diagnosis))[:NOTE_LIMIT]
    return meaning, cause, note


class FailureGroups:
    """Takes the records of failing cases, one at a time. Of each group one record for each kernel is kept whole."""

    def __init__(self) -> None:
        self._groups: dict[tuple[Meaning, str], FailureGroup] = {}

    def add(self, record: CaseRecord) -> None:
        """Takes the record of a case that failed."""
        meaning, cause, note = failure(record)
        group = self._groups.setdefault((meaning, cause), FailureGroup(meaning, cause))
        group.add(record, note)

    def ranked(self) -> list[FailureGroup]:
        """Returns the groups, the gravest first, then the largest."""
        for group in self._groups.values():
            group.sort()
        return sorted(self._groups.values(), key=lambda group: (_RANK[group.meaning], -group.count, group.cause))


def example_text(record: CaseRecord) -> str:
    """Returns the diagnosis of a failing case, and what its failing checks say beyond it."""
    unsaid = [verdict for verdict in record.verdicts if not verdict.passed and not _is_in(verdict, record.diagnosis)]
    texts = [record.diagnosis, *(f"{verdict.check}: {verdict.text}" for verdict in unsaid)]
    return clean("\n".join(text for text in texts if text))


def _is_in(verdict: Verdict, diagnosis: str) -> bool:
    return (verdict.text or verdict.check) in diagnosis
