"""Compares two runs: each case's status, code, time and numbers, and what the runs did not record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from conformance.gate.changes import lost_cases, time_changes
from conformance.gate.changes.code_changes import code_findings, explained, kind_of_check, verdict_findings
from conformance.gate.changes.status_changes import finding, newly_failing, repeats, status_finding
from conformance.gate.changes.thresholds import THRESHOLDS
from conformance.gate.findings import Comparison, Finding, Kind, Side
from conformance.gate.runs.failure_causes import failure_cause
from conformance.gate.runs.run_reader import ComparedRecord, ComparedRun
from conformance.gate.verdict.groups import grouped
from conformance.records import Status

_FAILED = (Kind.NEW_FAIL, Kind.NONDETERMINISTIC)
#: Cases of the baseline that count as having run.
_RAN = tuple(status for status in Status if status is not Status.NOT_APPLICABLE)


def compare(baseline: ComparedRun, candidate: ComparedRun) -> Comparison:
    """Compares the candidate with the baseline. The differences are findings in groups of one cause, ranked."""
    before, after = baseline.records, candidate.records
    absence = lost_cases.absences(before, after)
    findings: list[Finding] = []
    for case in {**before, **after}:  # in the order of the files; grouping sorts the findings
        was, now = before.get(case), after.get(case)
        if was is not now:
            findings += _statuses_and_code(was, now, status_finding(was, now, absence))
    pairs = [(before[case], after[case]) for case in before if case in after]
    passed = [pair for pair in pairs if pair[0].status is pair[1].status is Status.PASS]
    if baseline.seed == candidate.seed:
        findings += _drift(passed)
    if baseline.stack.get("device") == candidate.stack.get("device"):
        findings += time_changes.time_findings(pairs)
        findings += time_changes.moved_choices(before, after)
    findings += time_changes.compile_findings(pairs)
    missing = sum(case not in after for case, record in before.items() if record.status in _RAN)
    findings += lost_cases.incomplete(candidate, missing)
    touched = {finding.case for finding in findings}
    return Comparison(
        baseline=_side(baseline),
        candidate=_side(candidate),
        groups=grouped(findings),
        compared=len(pairs),
        unchanged=sum(was.case not in touched for was, _ in pairs),
        warnings=(*lost_cases.warnings(baseline, candidate), *_blind(pairs)),
        objections=tuple(lost_cases.objections(baseline)),
        thresholds=THRESHOLDS,
    )


def _side(side: ComparedRun) -> Side:
    return Side(
        name=side.name,
        stack=side.stack,
        tier=side.tier,
        seed=side.seed,
        cases=len(side.records),
        statuses=side.statuses(),
        problems=side.problems,
    )


def _statuses_and_code(
    before: ComparedRecord | None, after: ComparedRecord | None, became: Finding | None
) -> list[Finding]:
    """The findings about the status and the code of one case. ``became`` is the finding about the status. It is left
    out if it only repeats the findings about the code."""
    code = code_findings(before, after) if before and after else []
    if after is None or not after.failing:
        return [*([became] if became else []), *code]
    if after.status is Status.EXPECTED_FAIL and (before is None or before.status is not Status.EXPECTED_FAIL):
        return [*([became] if became else []), *code]
    if became is None or became.kind in _FAILED or became.kind is Kind.STILL_FAIL:
        code += verdict_findings(before, after, code)
    if became and became.kind is Kind.NEW_FAIL:
        became = _beside(code, after, became)
    elif before and (became is None or became.kind is Kind.STILL_FAIL):
        became = _worse(code, before, after, became)
    return [*([became] if became else []), *code]


def _beside(code: list[Finding], after: ComparedRecord, became: Finding) -> Finding | None:
    """The new failure ``became`` without the checks that the findings ``code`` report; None if no other failed."""
    if explained(after.failing, code):
        return None
    others = tuple(pair for pair in after.failing if kind_of_check(pair[0]) is None)
    if not others:
        return became
    cause = failure_cause(after, others)
    return finding(became.kind, after, cause, became.before, became.after, detail=others[0][1][:500])


def _worse(
    code: list[Finding], before: ComparedRecord, after: ComparedRecord, became: Finding | None
) -> Finding | None:
    """The finding about a case that failed in the baseline, too. ``became`` is the finding about that failure, None
    if it is still expected. A check that failed newly makes it a new failure, unless ``code`` reports that check."""
    failing = newly_failing(before, after)
    others = tuple(pair for pair in failing if kind_of_check(pair[0]) is None)
    if not others or explained(failing, code):
        return became
    kind = Kind.NONDETERMINISTIC if repeats(others) else Kind.NEW_FAIL
    shown = repeats(others) or others
    detail = f"{shown[0][1][:400]}; failed before: {failure_cause(before)}"
    was, now = (became.before, became.after) if became else ("failed as expected", "fails in more ways")
    return finding(kind, after, failure_cause(after, shown), was, now, detail=detail)


def _drift(passed: list[tuple[ComparedRecord, ComparedRecord]]) -> Iterator[Finding]:
    """Findings NUMERICS_DRIFT: cases that passed on both sides, with other bits in their outputs."""
    for before, after in passed:
        if before.outputs == after.outputs or before.outputs is None or after.outputs is None:
            continue
        fills = [fill for fill, bits in after.outputs.items() if before.outputs.get(fill, bits) != bits]
        if fills:
            cause = "other bits, inside the bound"
            shown = ", ".join(sorted(fills)[:8])
            yield finding(Kind.NUMERICS_DRIFT, after, cause, "", "", detail=f"fills {shown}")


def _blind(pairs: list[tuple[ComparedRecord, ComparedRecord]]) -> Iterator[str]:
    """Warnings about figures that only one side recorded, so that they were not compared. What the candidate no longer
    records of the code is lost coverage instead."""
    code = sum(bool(after.code) and not before.code for before, after in pairs)
    if code:
        yield f"features and instructions of the code could not be compared in {code} cases: the baseline lacks them"
    kinds: Counter[tuple[str | None, str | None]] = Counter()
    for before, after in pairs:
        if before.code and after.code:
            kinds[before.code.instructions_of, after.code.instructions_of] += 1
    for (was, now), count in sorted(kinds.items(), key=str):
        if was != now:
            yield f"instructions could not be compared in {count} cases: {was or 'none'} before, {now or 'none'} now"
    timed = sum(bool(before.samples and after.samples) and before.timed != after.timed for before, after in pairs)
    if timed:
        yield f"times could not be compared in {timed} cases: another problem was timed"
    outputs = sum(bool(before.outputs) != bool(after.outputs) for before, after in pairs)
    if outputs:
        yield f"digests of outputs could not be compared in {outputs} cases: one side lacks them"
