"""The data of the HTML report: columns for the list of cases, and each record in full."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance.gate.findings import Comparison
from conformance.records import CaseRecord, Reading, RunInfo, Status, jsonable
from conformance.reporting import sweep

NOTE_LIMIT = 160  # characters of a diagnosis or reason in the list of cases
CASE_LIMIT = 2_000  # characters of a case id
RECORD_LIMIT = 256_000  # characters of one record's JSON; what is longer is cut and says so

#: Every status with what it means for the answer, the worst first. A case that was not run comes before a passed one,
#: because it proves nothing. A refusal to which the kernel is entitled comes last.
RANKED: Mapping[Status, str] = {
    Status.CRASH: "bad",
    Status.TIMEOUT: "bad",
    Status.OOM: "bad",
    Status.COMPILE_ERROR: "bad",
    Status.FAIL: "bad",
    Status.FLAKY: "bad",
    Status.UNEXPECTED_PASS: "bad",
    Status.EXPECTED_FAIL: "expected",
    Status.NOT_RUN: "unproven",
    Status.PASS: "good",
    Status.NOT_APPLICABLE: "outside",
}
_RANK = {status: rank for rank, status in enumerate(RANKED)}


@dataclass(frozen=True)
class ReportedRun:
    """A run's folder with the records read there; ``info`` is None where its run.json could not be read."""

    folder: Path
    reading: Reading
    info: RunInfo | None = None


def ranked(records: Iterable[CaseRecord]) -> list[CaseRecord]:
    """The worst status first, then by case id."""
    return sorted(records, key=lambda record: (_RANK[record.status], record.case))


def header(run: ReportedRun) -> dict[str, Any]:
    """The run as a whole: the answer, the stack and the problems."""
    info, records = run.info, run.reading.records
    counts = Counter(record.status for record in records)
    selected = info.selected if info else None
    unrecorded = max(0, (selected or 0) - len({record.case for record in records}))
    outside = sum(counts[status] for status, group in RANKED.items() if group == "outside")
    problems = [*(info.problems if info else ()), *run.reading.problems]
    return {
        "id": _cut(info.id if info else run.folder.name, CASE_LIMIT),
        "facts": _facts(info),
        "stack": _text_of(info.stack if info else (records[0].stack if records else {})),
        "statuses": [[status.value, group, counts[status]] for status, group in RANKED.items()],
        "recorded": len(records),
        "selected": selected,
        "unrecorded": unrecorded,
        "passed": counts[Status.PASS],
        "claimed": len(records) + unrecorded - outside,
        "problems": [_cut(problem, CASE_LIMIT) for problem in problems[:200]],
        "problem_count": len(problems),
    }


def _facts(info: RunInfo | None) -> list[list[str]]:
    if info is None:
        return []
    wall = "did not end" if info.wall_s is None else f"{info.wall_s:.1f} s"
    facts = [
        ("started", info.started),
        ("tier", info.tier),
        ("seed", str(info.seed)),
        ("targets", ", ".join(info.targets) or "default"),
        ("workers", str(info.workers)),
        ("GPUs", ", ".join(info.gpus) or "none"),
        ("wall-clock time", wall),
    ]
    return [[name, _cut(text, 500)] for name, text in facts]


def _text_of(stack: Mapping[str, Any]) -> dict[str, str]:
    return {_cut(str(name), 100): _cut(str(value), 500) for name, value in stack.items() if value is not None}


def _cut(text: str, limit: int) -> str:
    return text if len(text) <= limit else text[:limit] + f" ... ({len(text)} characters)"


def columns(records: Sequence[CaseRecord]) -> dict[str, Any]:
    """The list of cases by column. A text that repeats is an index into its column's entry of ``tables``."""
    texts = {
        "suite": [record.suite for record in records],
        "kernel": [record.kernel or "(none)" for record in records],
        "target": [record.target or "(none)" for record in records],
        "reason": [record.reason.code.value if record.reason else "" for record in records],
        "executor": [record.executor or "(none)" for record in records],
        "config": [_id(record.config) for record in records],
        "note": [_note(record) for record in records],
    }
    tables, numbered = {}, {}
    for name, column in texts.items():
        cut = [_cut(text, CASE_LIMIT) for text in column]
        tables[name] = sorted(set(cut))
        place = {text: number for number, text in enumerate(tables[name])}
        numbered[name] = [place[text] for text in cut]
    return {
        "case": [_cut(record.case, CASE_LIMIT) for record in records],
        "status": [_RANK[record.status] for record in records],
        "seconds": [_seconds(record) for record in records],
        "tables": tables,
        **numbered,
    }


def _id(value: Mapping[str, Any] | None) -> str:
    name = (value or {}).get("id")
    return name if isinstance(name, str) else ""


def _seconds(record: CaseRecord) -> float | None:
    total = record.durations.get("total")
    return round(total, 3) if total is not None and abs(total) < 1e9 else None


def _note(record: CaseRecord) -> str:
    """The first line that explains a case's status, for the list of cases."""
    failed = next((f"{verdict.check}: {verdict.text}" for verdict in record.verdicts if not verdict.passed), "")
    text = (
        record.diagnosis.strip()
        or failed
        or (f"{record.reason.subject}: {record.reason.detail}" if record.reason else "")
    )
    return text.split("\n", 1)[0][:NOTE_LIMIT]


def line(record: CaseRecord) -> str:
    """The record as JSON for the page, cut where it is past the limit. A seed is text: it may be past 2**53."""
    data = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    data |= {
        "reason": record.reason and vars(record.reason),
        "verdicts": [vars(verdict) for verdict in record.verdicts],
        "seed": None if record.seed is None else str(record.seed),
    }
    try:
        text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    except (ValueError, RecursionError):  # a number past the range of float, or values nested too deep
        text = _strict(data)
    return text if len(text) <= RECORD_LIMIT else json.dumps(_stub(record, f"its record has {len(text)} characters"))


def _strict(data: Mapping[str, Any]) -> str:
    try:
        return json.dumps(jsonable(data), allow_nan=False, separators=(",", ":"))
    except RecursionError:
        return " " * (RECORD_LIMIT + 1)


def _stub(record: CaseRecord, why: str) -> dict[str, Any]:
    failed = [verdict for verdict in record.verdicts if not verdict.passed][:20]
    return {
        "case": _cut(record.case, CASE_LIMIT),
        "status": record.status.value,
        "left_out": f"{why}, more than {RECORD_LIMIT}: the report holds only a part of it",
        "verdicts": [
            {"check": v.check[:200], "passed": False, "text": v.text[:CASE_LIMIT], "details": {}} for v in failed
        ],
        "diagnosis": record.diagnosis[:CASE_LIMIT],
        "repro": record.repro[:CASE_LIMIT],
    }


def configs(records: Iterable[CaseRecord], before: Iterable[CaseRecord] = ()) -> list[list[Any]]:
    """The sweep over config spaces: kernel, dtype, target, config, and the figures now and in the baseline."""
    sides = [
        {(r.kernel, r.dtype, r.target, r.config): _figures(r) for r in sweep.rows(side)} for side in (records, before)
    ]
    now, then = sides
    return [[*key, now.get(key), then.get(key)] for key in sorted({**now, **then})]


def _figures(row: sweep.Row) -> list[Any]:
    statuses = sorted(row.statuses, key=lambda status: _RANK[status])
    figures = (row.us, row.registers, row.spills, row.shared, row.compile_s)
    bounded = [value if value is not None and abs(value) < 1e15 else None for value in figures]
    return [[status.value for status in statuses], *bounded]


def comparison_data(comparison: Comparison) -> dict[str, Any]:
    """The groups of a comparison, with their findings."""
    return {
        "safe": comparison.safe,
        "compared": comparison.compared,
        "unchanged": comparison.unchanged,
        "objections": [_cut(text, CASE_LIMIT) for text in comparison.objections],
        "warnings": [_cut(text, CASE_LIMIT) for text in comparison.warnings],
        "thresholds": {str(name): value for name, value in comparison.thresholds.items()},
        "severities": dict(Counter(group.severity.value for group in comparison.groups)),
        "names": [_cut(side.name, 500) for side in (comparison.baseline, comparison.candidate)],
        "stacks": [_text_of(side.stack) for side in (comparison.baseline, comparison.candidate)],
        "problems": [_cut(text, CASE_LIMIT) for text in comparison.baseline.problems[:200]],
        "groups": [
            {
                "kind": group.kind.value,
                "severity": group.severity.value,
                "cause": _cut(group.cause, CASE_LIMIT),
                "findings": [
                    [
                        _cut(finding.case, CASE_LIMIT),
                        finding.kernel or "",
                        finding.target or "",
                        _cut(finding.before, CASE_LIMIT),
                        _cut(finding.after, CASE_LIMIT),
                        finding.ratio if finding.ratio is not None and math.isfinite(finding.ratio) else None,
                        _cut(finding.detail, CASE_LIMIT),
                    ]
                    for finding in group.findings
                ],
            }
            for group in comparison.groups
        ],
    }
