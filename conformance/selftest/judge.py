"""Judges what an ordinary run said of the planted faults, and what became of the innocent cases next to them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from msgspec.structs import replace

from conformance.gate.evidence.selftest_result import FaultResult
from conformance.records import CaseRecord, Status
from conformance.selftest.faults import PlantedFault

_NOT_JUDGED = (Status.NOT_APPLICABLE, Status.NOT_RUN)
#: Characters of a diagnosis that a sentence quotes.
_QUOTED = 120


@dataclass(frozen=True)
class SeenRun:
    """One run that the self-test made: the ``records`` by kernel, the ``marks`` that the faults left, and sentences
    about the run as a whole."""

    records: Mapping[str, Sequence[CaseRecord]] = field(default_factory=dict)
    marks: Collection[str] = ()
    problems: tuple[str, ...] = ()


def by_kernel(records: Sequence[CaseRecord]) -> dict[str, list[CaseRecord]]:
    """Returns the records of each kernel."""
    grouped: dict[str, list[CaseRecord]] = defaultdict(list)
    for record in records:
        grouped[record.kernel or ""].append(record)
    return grouped


def judged(fault: PlantedFault, run: SeenRun, neighbours: Sequence[str]) -> FaultResult:
    """Returns the result of ``fault``, which was planted in ``run`` between the kernels ``neighbours``."""
    records = run.records.get(fault.planted_kernel, [])
    record = records[0] if len(records) == 1 else None
    passed = [name for name in neighbours if _statuses(run, name) == [Status.PASS]]
    common = FaultResult(fault.name, fault.planted, fault.expected, passed=len(passed), innocent=len(neighbours))
    if record is not None and fault.device and record.status in _NOT_JUDGED:
        return replace(common, not_run=str(record.reason), observed=record.status.value)
    problems = [f"the fault was not planted: it left no mark {mark}" for mark in fault.marks if mark not in run.marks]
    if record is None:
        problems.append(f"its case has {len(records)} records, one is required")
    else:
        problems += _misreported(fault, record)
    problems += [
        f"the innocent case of {name} ended as {', '.join(_statuses(run, name)) or 'nothing: it has no record'}"
        for name in neighbours
        if name not in passed
    ]
    return replace(
        common,
        observed=record.status.value if record is not None else "",
        check=_seen_by(fault, record) if record is not None else "",
        problems=(*problems, *run.problems),
        seconds=record.durations.get("total", 0.0) if record is not None else 0.0,
    )


def _statuses(run: SeenRun, kernel: str) -> list[str]:
    return [record.status.value for record in run.records.get(kernel, [])]


def _seen_by(fault: PlantedFault, record: CaseRecord) -> str:
    """Returns the check that saw the fault: one that failed as expected, or else the first that failed."""
    names = [name for name, _ in record.failing]
    return next((name for name in names if name.startswith(fault.checks or "\0")), names[0] if names else "")


def _misreported(fault: PlantedFault, record: CaseRecord) -> list[str]:
    """Returns a sentence for each part of ``record`` that is not as ``fault`` must be reported."""
    status, problems = record.status.value, []
    quoted = f" ({record.diagnosis[:_QUOTED]!r})" if record.diagnosis else ""
    if status not in fault.statuses:
        problems.append(f"its case ended as {status}{quoted}, {' or '.join(fault.statuses)} is required")
    elif status == Status.FAIL.value and not _seen_by(fault, record).startswith(fault.checks or ""):
        failed = _seen_by(fault, record) or "no check"
        problems.append(f"{failed} failed, a check of {' or '.join(fault.checks)} is required")
    elif fault.words not in record.diagnosis and not any(fault.words in text for _, text in record.failing):
        problems.append(f"its diagnosis{quoted} does not say {fault.words!r}")
    kind = record.fault.kind if record.fault is not None else ""
    if kind not in fault.kinds and status in fault.statuses:
        problems.append(
            f"its fault is {kind or 'none of the machine'}, {' or '.join(map(repr, fault.kinds))} is required"
        )
    return problems
