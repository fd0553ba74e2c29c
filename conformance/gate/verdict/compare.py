"""Compares two runs: each case's status, code, time and numbers, and what the runs did not record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace

from conformance.faults import Fault
from conformance.gate.changes import lost_cases, time_changes
from conformance.gate.changes.code_changes import code_findings, explained, kind_of_check, verdict_findings
from conformance.gate.changes.config_changes import ComparedTables, table_findings
from conformance.gate.changes.lane_changes import lane_findings
from conformance.gate.changes.limit_changes import limit_findings, past_limit
from conformance.gate.changes.occupancy import occupancy
from conformance.gate.changes.status_changes import (
    fails,
    finding,
    known_defect_finding,
    newly_failing,
    repeats,
    status_finding,
)
from conformance.gate.runs.failure_causes import failure_cause
from conformance.gate.runs.judged_records import UsedAssemblers
from conformance.gate.runs.run_reader import ComparedRecords, ComparedRun
from conformance.gate.runs.side_faults import CaseFaults, failed_beside_cases, side_faults, unclassed_problems
from conformance.gate.shards.union import DEVICE
from conformance.gate.shortened_text import first_words
from conformance.gate.verdict.group_notes import grouped, noted
from conformance.gate.verdict.scope import ScopeCount, narrowed
from conformance.records import CaseRecord, Check, CheckKind, Status
from conformance.user_files.findings import GAINS, BrokenSide, Comparison, Finding, Kind, Side
from conformance.user_files.thresholds import UNMOVED, KernelThresholds, Tables, Thresholds

_FAILED = (Kind.NEW_FAIL, Kind.NONDETERMINISTIC)


def compare(baseline: ComparedRun, candidate: ComparedRun, thresholds: Tables = UNMOVED) -> Comparison:
    """Compares the candidate with the baseline. The differences past the thresholds are findings in groups of one
    cause, ranked; ``thresholds`` are those of the user's file. The records of one case are held at a time; only the
    findings are kept."""
    limits = KernelThresholds(thresholds, baseline.run, candidate.run)
    same_seed = baseline.seed == candidate.seed
    same_device = baseline.stack.get(DEVICE) == candidate.stack.get(DEVICE)
    mixed = _on_mixed_devices(baseline) or _on_mixed_devices(candidate)
    findings: list[Finding] = []
    lost: list[tuple[Finding, lost_cases.Groups, str]] = []  # their cause is known when all cases were seen
    tables = ComparedTables((baseline.stack.get("torch"), candidate.stack.get("torch")))
    absences = lost_cases.Absences(len(baseline.records), len(candidate.records))
    choices, compile_times = time_changes.MovedChoices(limits.of), time_changes.CompileTimes(limits.of)
    blind, assembled = _Blind(), (UsedAssemblers(baseline.stack), UsedAssemblers(candidate.stack))
    compared = unchanged = 0
    of_cases = {"baseline": CaseFaults(), "candidate": CaseFaults()}
    reach, kernels = ScopeCount(), set[str]()
    for was, now in _in_order(baseline.records, candidate.records):
        reach.add(was, now)
        kernels |= {record.kernel for record in (was, now) if record and record.kernel}
        own = limits.of(now.kernel if now else None)
        tables.add(was, now)
        if was is not None:
            absences.add(was, now)
        on_same = _on_same_device(was, now) if mixed else same_device
        if on_same:
            choices.add(None if fails(was) else was, None if fails(now) else now)
        for side, record in zip(assembled, (was, now), strict=True):
            side.add(record)
        broken = [faults.add(record) for faults, record in zip(of_cases.values(), (was, now), strict=True)]
        if any(broken):  # what the machine did says nothing of the stacks
            continue
        became = status_finding(was, now, lambda record: "")
        if now is None:
            assert was is not None
            lost += [(became, lost_cases.groups_of(was), was.figures.torch_row)] if became else []
            continue
        of_case = _case_findings(was, now, became, own, same_device=on_same)
        if was is not None:
            of_case += [*_drift(was, now)] if same_seed else []
            of_case += table_findings(was, now)
            if not fails(now):  # a failing case gains nothing
                compile_times.add(was, now)
            blind.add(was, now)
            compared += 1
            unchanged += not of_case
        findings += of_case
    sides = {"baseline": baseline, "candidate": candidate}
    broken_sides = [_broken(name, side_faults(side, of_cases[name])) for name, side in sides.items()]
    whole = all(side is None or side.side != "candidate" for side in broken_sides)
    for one, groups, row in lost if whole else ():  # cases of an unfinished run are not lost
        findings.append(tables.excused(replace(one, cause=absences.cause(groups)), row))
    moved = [*choices.findings()]
    unchanged -= len({finding.case for finding in moved} - {finding.case for finding in findings})
    findings += [*moved, *compile_times.findings()]
    before, after = (side.by_target() for side in assembled)
    assemblers = {target: (before[target], after[target]) for target in before if target in after}
    of_kernels = limits.others(kernels)
    return Comparison(
        baseline=_side(baseline),
        candidate=_side(candidate),
        groups=noted(grouped(findings), assemblers, of_kernels),
        compared=compared,
        unchanged=unchanged,
        warnings=(
            *lost_cases.warnings(baseline, candidate),
            *(f"in the baseline's run: {text}" for text in failed_beside_cases(baseline)),
            *blind.warnings(),
            *tables.warnings(),
            *limits.warnings(kernels),
        ),
        objections=tuple(_objections(sides, broken_sides)),
        thresholds=limits.usual.named(),
        own_thresholds=of_kernels,
        assemblers=assemblers,
        scope=reach.scope(),
        narrowing=narrowed(baseline, candidate, reach.cases),
        broken=tuple(side for side in broken_sides if side is not None),
    )


def _on_mixed_devices(side: ComparedRun) -> bool:
    return side.run is not None and side.run.merged is not None and side.run.merged.mixed_devices


def _on_same_device(was: CaseRecord | None, now: CaseRecord | None) -> bool:
    """True if both records are of one kind of device. Each says its own if a run was merged from several devices."""
    return was is not None and now is not None and was.stack.get(DEVICE) == now.stack.get(DEVICE)


def _broken(name: str, faults: tuple[Fault, ...]) -> BrokenSide | None:
    """The side ``name`` with what broke its run; None if nothing did."""
    return BrokenSide(name, faults[0].fault_class, faults) if faults else None


def _objections(sides: Mapping[str, ComparedRun], broken: Iterable[BrokenSide | None]) -> Iterator[str]:
    """Yields sentences about what else went wrong in the run of a side. A broken side is no answer as it is, and its
    problems follow from that."""
    for (name, side), is_broken in zip(sides.items(), broken, strict=True):
        texts = failed_beside_cases(side) if name == "candidate" else []
        texts += [] if is_broken else unclassed_problems(side)
        for text in dict.fromkeys(texts):
            yield f"in the {name}'s run: {text}"


def case_findings(
    before: CaseRecord | None, after: CaseRecord, thresholds: Thresholds, *, same_device: bool
) -> list[Finding]:
    """Returns the findings about the status, the code and the time of one case that the candidate recorded."""
    became = status_finding(before, after, lambda record: "")
    return _case_findings(before, after, became, thresholds, same_device=same_device)


def _case_findings(
    before: CaseRecord | None,
    after: CaseRecord,
    became: Finding | None,
    thresholds: Thresholds,
    *,
    same_device: bool,
) -> list[Finding]:
    """:func:`case_findings` where the finding about the status is known: ``became``."""
    findings = _statuses_and_code(before, after, became, thresholds)
    if before is not None:
        findings += lane_findings(before, after)
    if before is not None and same_device:
        findings = [time_changes.weighed(one, before, after, thresholds) for one in findings]
        timed = time_changes.time_finding(before, after, thresholds)
        findings += [timed] if timed else []
    return [one for one in findings if one.kind not in GAINS] if fails(after) else findings


def _in_order(before: ComparedRecords, after: ComparedRecords) -> Iterator[tuple[CaseRecord | None, CaseRecord | None]]:
    """Yields the two records of each case, in the order of the case ids; None where a side has none."""
    olds, news = before.in_order(), after.in_order()
    was, now = next(olds, None), next(news, None)
    while was is not None or now is not None:
        if now is None or (was is not None and was.case < now.case):
            yield was, None
            was = next(olds, None)
        elif was is None or now.case < was.case:
            yield None, now
            now = next(news, None)
        else:
            yield was, now
            was, now = next(olds, None), next(news, None)


def _side(side: ComparedRun) -> Side:
    return Side(
        name=side.name,
        stack=side.stack,
        tier=side.tier,
        seed=side.seed,
        cases=len(side.records),
        statuses=side.statuses(),
        problems=side.problems,
        bill=side.run.bill if side.run else {},
        started=side.run.started if side.run else "",
    )


def _statuses_and_code(
    before: CaseRecord | None, after: CaseRecord | None, became: Finding | None, thresholds: Thresholds
) -> list[Finding]:
    """Returns the findings about the status and the code of one case. ``became`` is the finding about the status. It is
    left out if it only repeats the findings about the code."""
    if before and after and (past_limit(before) or past_limit(after)):
        return limit_findings(before, after, became)
    code = code_findings(before, after, thresholds) if before and after else []
    if after is None or not after.failing:
        return [*([became] if became else []), *code]
    if became and became.kind is Kind.NEW_KNOWN_DEFECT:  # which says what the expected checks say
        return [became, *code]
    if became is None or became.kind in _FAILED or became.kind is Kind.STILL_FAIL:
        code += verdict_findings(before, after, code, thresholds)
    if became and became.kind is Kind.NEW_FAIL:
        became = _beside(code, after, became)
    elif before and (became is None or became.kind is Kind.STILL_FAIL):
        became = _worse(code, before, after, became)
    earlier = {check for check, _ in before.failing} if before else set()
    kinds = {kind_of_check(check) for check, _ in after.failing if check not in earlier}
    code = [_failing(one) if one.kind in kinds else one for one in code]
    if became is None and fails(after) and not fails(before) and not any(one.newly_fails for one in code):
        code[:1] = map(_failing, code[:1])
    return [*([became] if became else []), *code]


def _beside(code: list[Finding], after: CaseRecord, became: Finding) -> Finding | None:
    """Returns the new failure ``became`` without the checks that the findings ``code`` report; None if no other
    failed."""
    if explained(after.failing, code):
        return None
    others = tuple(pair for pair in after.failing if kind_of_check(pair[0]) is None)
    if not others:
        return became
    return replace(became, cause=failure_cause(after, others), detail=first_words(others[0][1], 500))


def _failing(one: Finding) -> Finding:
    """``one``, marked as what the case newly fails by, and in words where its texts do not show that."""
    text = "" if one.after == "fail" else "the case fails by this now"
    return replace(one, detail="; ".join(filter(None, (one.detail, text))), newly_fails=True)


def _worse(code: list[Finding], before: CaseRecord, after: CaseRecord, became: Finding | None) -> Finding | None:
    """Returns the finding about a case that failed in the baseline, too. ``became`` is the finding about that failure,
    None if it is still expected. A check that failed newly makes it a new failure, unless ``code`` reports that check.
    """
    failing = newly_failing(before, after)
    others = tuple(pair for pair in failing if kind_of_check(pair[0]) is None)
    if not others or explained(failing, code):
        return became
    shown = repeats(others) or others
    detail = f"{first_words(shown[0][1], 400)}; failed before: {failure_cause(before)}"
    was, now = (became.before, became.after) if became else ("failed as expected", "fails in more ways")
    if after.status is Status.EXPECTED_FAIL:
        return known_defect_finding(after, was, now, f"{shown[0][0]}: {detail}")
    kind = Kind.NONDETERMINISTIC if repeats(others) else Kind.NEW_FAIL
    return replace(finding(kind, after, failure_cause(after, shown), was, now, detail=detail), newly_fails=True)


def _drift(before: CaseRecord, after: CaseRecord) -> Iterator[Finding]:
    """Yields the finding NUMERICS_DRIFT of a case that passed on both sides, with other bits in its outputs."""
    if not before.status is after.status is Status.PASS:
        return
    was, now = before.figures.outputs, after.figures.outputs
    if was == now or was is None or now is None:
        return
    fills = [fill for fill, bits in now.items() if was.get(fill, bits) != bits]
    if fills:
        judged = all(_judges(record, fill) for record in (before, after) for fill in fills)
        cause = "other bits, inside the bound" if judged else "other bits, of which no check judged the numbers"
        yield finding(Kind.NUMERICS_DRIFT, after, cause, "", "", detail=f"fills {', '.join(sorted(fills)[:8])}")


def _judges(record: CaseRecord, fill: str) -> bool:
    """Returns True if a check of ``record`` judged the numbers that ``fill`` gave."""
    checks = (Check.parse(text) for text in record.checks)
    return any(check.kind is CheckKind.NUMERICS and check.subject.partition("/")[0] == fill for check in checks)


class _Blind:
    """Counts the figures that only one side recorded, so that they were not compared. What the candidate no longer
    records of the code is lost coverage instead."""

    def __init__(self) -> None:
        self._code = self._timed = self._outputs = 0
        self._instructions: Counter[tuple[str | None, str | None]] = Counter()
        self._occupancy: Counter[str] = Counter()

    def add(self, before: CaseRecord, after: CaseRecord) -> None:
        was, now = before.figures, after.figures
        self._code += bool(now.code) and not was.code
        self._timed += bool(was.samples and now.samples) and was.timed != now.timed
        failed = fails(before) or fails(after)  # and may have no outputs
        self._outputs += not failed and bool(was.outputs) != bool(now.outputs)
        if was.code and now.code and was.code.instructions_of != now.code.instructions_of:
            self._instructions[was.code.instructions_of, now.code.instructions_of] += 1
        if was.resources and now.resources and was.resources != now.resources:
            comparable = occupancy(before.target, was.resources) and occupancy(after.target, now.resources)
            self._occupancy[after.target or "no target"] += comparable is None

    def warnings(self) -> Iterator[str]:
        if self._code:
            yield (
                f"features and instructions of the code could not be compared in {self._code} cases: the baseline "
                "lacks them"
            )
        for (was, now), count in sorted(self._instructions.items(), key=str):
            yield (f"instructions could not be compared in {count} cases: {was or 'none'} before, {now or 'none'} now")
        if self._occupancy.total():
            where = ", ".join(sorted(target for target, count in self._occupancy.items() if count))
            yield (
                f"occupancy could not be compared in {self._occupancy.total()} cases on {where}, whose resources "
                "differ: the target's limits, or a block's registers and threads, are not known"
            )
        if self._timed:
            yield f"times could not be compared in {self._timed} cases: another problem was timed"
        if self._outputs:
            yield f"digests of outputs could not be compared in {self._outputs} cases: one side lacks them"
