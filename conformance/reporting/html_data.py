"""The data of the HTML report: columns for the list of cases, and each record in full."""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from msgspec.structs import asdict

from conformance.gate.runs.bill_of_materials import VARIABLE
from conformance.gate.shortened_text import MARK, first_words
from conformance.gate.verdict.known_findings import signature
from conformance.records import CaseRecord, Reading, RunInfo, Status, jsonable
from conformance.reporting import decision, sweep
from conformance.reporting.case_command import case_command
from conformance.reporting.comparison import assembler_rows, broken_lines, stack_changes, threshold_lines
from conformance.reporting.failure_groups import failure
from conformance.reporting.first_line import answer
from conformance.reporting.listed_cases import CONFIGS_LIMIT, RANK, RANKED, ListedCases
from conformance.user_files.findings import Comparison, Side

NOTE_LIMIT = 160  # characters of a diagnosis or reason in the list of cases
CASE_LIMIT = 2_000  # characters of a case id
RECORD_LIMIT = 256_000  # characters of one record's JSON; what is longer is cut and says so


@dataclass(frozen=True)
class ReportedRun:
    """A run's folder with the records read there; ``info`` is None where its run.json could not be read."""

    folder: Path
    reading: Reading
    info: RunInfo | None = None


def header(run: ReportedRun, listed: ListedCases) -> dict[str, Any]:
    """The run as a whole: the answer, the stack and the problems."""
    info, counts = run.info, listed.statuses
    selected = info.selected if info else None
    unrecorded = max(0, (selected or 0) - listed.distinct)
    outside = sum(counts[status] for status, group in RANKED.items() if group == "outside")
    problems = [*(info.problems if info else ()), *run.reading.problems]
    return {
        "id": _cut(info.id if info else run.folder.name, CASE_LIMIT),
        "facts": [*_facts(info), *(["warning", _cut(str(noted), CASE_LIMIT)] for noted in listed.noted)],
        "stack": _text_of({**info.stack, **info.bill} if info else listed.stack),
        "bill": list(_text_of(info.bill)) if info else [],
        "statuses": [[status.value, group, counts[status]] for status, group in RANKED.items()],
        "recorded": listed.recorded,
        "listed": len(listed.order),
        "selected": selected,
        "unrecorded": unrecorded,
        "passed": counts[Status.PASS],
        "claimed": listed.recorded + unrecorded - outside,
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
    if len(text) <= limit:
        return text
    words = first_words(text, limit)
    return f"{words if words != MARK else text[:limit] + ' ' + MARK} ({len(text)} characters)"


def columns(records: Iterable[CaseRecord], weights: Sequence[int] = ()) -> dict[str, Any]:
    """Returns the list of cases by column. A text that repeats is an index into its column's entry of ``tables``.
    ``weights`` are the numbers of cases for which the rows stand, if one stands for several."""
    texts: dict[str, list[str]] = {name: [] for name in _TEXTS}
    lists: dict[str, list[Any]] = {"case": [], "status": [], "seconds": []}
    shared: dict[str, str] = {}  # one copy of each text
    for record in records:
        lists["case"].append(_cut(record.case, CASE_LIMIT))
        lists["status"].append(RANK[record.status])
        lists["seconds"].append(_seconds(record))
        for name, text_of in _TEXTS.items():
            text = _cut(text_of(record), CASE_LIMIT)
            texts[name].append(shared.setdefault(text, text))
    tables, numbered = {}, {}
    for name, column in texts.items():
        tables[name] = sorted(set(column))
        place = {text: number for number, text in enumerate(tables[name])}
        numbered[name] = [place[text] for text in column]
    weighted = {"weight": list(weights)} if any(weight > 1 for weight in weights) else {}
    return {**lists, "tables": tables, **numbered, **weighted}


def _cause(record: CaseRecord) -> str:
    """Returns the cause of a case's failure, in the same words for all cases of one cause; "" if it did not fail, or
    only as expected."""
    if RANKED[record.status] != "bad":
        return ""
    meaning, cause, _ = failure(record)
    return f"{meaning.value}: {cause}"


def _id(value: Mapping[str, Any] | None) -> str:
    name = (value or {}).get("id")
    return name if isinstance(name, str) else ""


def _seconds(record: CaseRecord) -> float | None:
    total = record.durations.get("total")
    return round(total, 3) if total is not None and abs(total) < 1e9 else None


def _note(record: CaseRecord) -> str:
    """Returns the first line that explains a case's status, for the list of cases."""
    failed = next((f"{verdict.check}: {verdict.text}" for verdict in record.verdicts if not verdict.passed), "")
    text = (
        record.diagnosis.strip()
        or failed
        or (f"{record.reason.subject}: {record.reason.detail}" if record.reason else "")
    )
    return text.split("\n", 1)[0][:NOTE_LIMIT]


_TEXTS: Mapping[str, Callable[[CaseRecord], str]] = {
    "suite": lambda record: record.suite,
    "kernel": lambda record: record.kernel or "(none)",
    "target": lambda record: record.target or "(none)",
    "reason": lambda record: record.reason.code.value if record.reason else "",
    "executor": lambda record: record.executor or "(none)",
    "config": lambda record: _id(record.config),
    "cause": _cause,
    "note": _note,
}


def line(record: CaseRecord) -> str:
    """The record as JSON for the page, cut where it is past the limit. A seed is text: it may be past 2**53."""
    data = {field.name: getattr(record, field.name) for field in dataclasses.fields(record)}
    data |= {
        "reason": record.reason and vars(record.reason),
        "verdicts": [asdict(verdict) for verdict in record.verdicts],
        "seed": None if record.seed is None else str(record.seed),
        "repro": case_command(record),
        "reruns": [str(rerun) for rerun in record.reruns],
    }
    try:
        text = json.dumps(data, allow_nan=False, separators=(",", ":"), default=jsonable)
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
        "repro": case_command(record)[:CASE_LIMIT],
    }


def configs(rows: Iterable[sweep.Row], before: Iterable[sweep.Row] = ()) -> list[list[Any]]:
    """Returns the sweep over config spaces: kernel, dtype, target, config, and the figures now and in the baseline."""
    now, then = ({(r.kernel, r.dtype, r.target, r.config): r for r in side} for side in (rows, before))
    keys = sorted({**now, **then})[:CONFIGS_LIMIT]
    return [[*key, *(_figures(side[key]) if key in side else None for side in (now, then))] for key in keys]


def _figures(row: sweep.Row) -> list[Any]:
    statuses = sorted(row.statuses, key=RANK.__getitem__)
    figures = (row.us, row.registers, row.spills, row.shared, row.compile_s)
    bounded = [value if value is not None and abs(value) < 1e15 else None for value in figures]
    return [[status.value for status in statuses], *bounded]


#: Components of a stack as their makers write them; what is not here keeps its name. The harness is no part of a stack.
_COMPONENTS = {"torch": "PyTorch", "triton": "Triton", "driver": "driver", "device": "", "python": "Python"}


def component_name(name: str) -> str:
    """Returns a component of a stack as people write it.

    >>> component_name("triton"), component_name("ptxas")
    ('Triton', 'ptxas')
    """
    return _COMPONENTS.get(name, name)


def stacks_title(baseline: Mapping[str, Any], candidate: Mapping[str, Any]) -> str:
    """Returns a title of what replaces what, such as "Triton 3.8.0 to 3.9.0"; "The same stack" if nothing differs, and
    other words if a run does not say what its stack was."""
    names = [*_COMPONENTS, *(name for name in {**baseline, **candidate} if name not in (*_COMPONENTS, "harness"))]
    parts = [
        f"{component_name(name)} {baseline.get(name) or 'none'} to {candidate.get(name) or 'none'}".strip()
        for name in sorted(names, key=lambda name: name != "triton")
        if baseline.get(name) != candidate.get(name)
    ]
    unknown = not (set(baseline) - {"harness"} and set(candidate) - {"harness"})
    return _cut(", ".join(parts), 300) or ("Stacks that are not recorded" if unknown else "The same stack")


def _title(comparison: Comparison) -> str:
    """Returns the title of a comparison: what differs in versions or variables, or else in what makes code."""
    sides = comparison.baseline, comparison.candidate
    title = stacks_title(*map(_with_variables, sides))
    others = [name for name, *_ in stack_changes(*sides) if name != "harness"] if title == "The same stack" else []
    return f"The same versions, and another {', '.join(others[:3])}" if others else title


def _with_variables(side: Side) -> dict[str, Any]:
    """Returns the stack of ``side``, and the variables that change its code."""
    named = {name.removeprefix(VARIABLE): value for name, value in side.bill.items() if name.startswith(VARIABLE)}
    return {**side.stack, **named}


def comparison_data(comparison: Comparison, run: ReportedRun) -> dict[str, Any]:
    """Returns the groups of a comparison with their findings, and what follows for who decides. ``run`` is the
    candidate's."""
    unseen = decision.not_looked_at(comparison, run.info, run.folder)
    return {
        "unseen": [_cut(text, CASE_LIMIT) for text in unseen],
        "next": decision.next_steps(comparison, run.info),
        "scripts": [_cut(text, CASE_LIMIT) for text in comparison.scripts],
        "history": [_cut(text, CASE_LIMIT) for text in comparison.history],
        "title": _title(comparison),
        "safe": comparison.safe,
        "verdict": "safe" if comparison.safe else "no answer" if comparison.broken else "not safe",
        "answer": _cut(answer(comparison), CASE_LIMIT),
        "reach": decision.reach(comparison, run.info),
        "compared": comparison.compared,
        "unchanged": comparison.unchanged,
        "objections": [_cut(text, CASE_LIMIT) for text in (*broken_lines(comparison), *comparison.objections)],
        "warnings": [_cut(text, CASE_LIMIT) for text in comparison.warnings],
        "thresholds": {str(name): value for name, value in comparison.thresholds.items()},
        "other_thresholds": [_cut(text, CASE_LIMIT) for text in threshold_lines(comparison)],
        "severities": dict(Counter(group.severity.value for group in comparison.groups)),
        "names": [_cut(side.name, 500) for side in (comparison.baseline, comparison.candidate)],
        "stacks": [_text_of({**side.stack, **side.bill}) for side in (comparison.baseline, comparison.candidate)],
        "assemblers": [[_cut(text, 500) for text in row] for row in assembler_rows(comparison)],
        "problems": [_cut(text, CASE_LIMIT) for text in comparison.baseline.problems[:200]],
        "groups": [
            {
                "kind": group.kind.value,
                "meaning": decision.meaning(comparison, group),
                "severity": group.severity.value,
                "cause": _cut(group.cause, CASE_LIMIT),
                "signature": signature(group.kind, group.cause),
                "notes": [_cut(note, CASE_LIMIT) for note in group.notes],
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
