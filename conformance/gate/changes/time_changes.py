"""Compares times: of each case, of the config that is best for a problem, and of compiling."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from statistics import median

from conformance.gate.changes import median_intervals, thresholds
from conformance.gate.changes.median_intervals import TimeAnswer, TimeChange
from conformance.gate.changes.status_changes import finding
from conformance.gate.findings import Finding, Kind
from conformance.gate.runs.run_reader import ComparedRecord
from conformance.records import Status

Pairs = Iterable[tuple[ComparedRecord, ComparedRecord]]
_Choice = tuple[str, str, str, str]  # kernel, problem, dtype and variant, target


def time_findings(pairs: Pairs) -> Iterator[Finding]:
    """Findings SLOWER, FASTER and AMBIGUOUS, one per case whose times differ."""
    for before, after in pairs:
        if not before.samples or not after.samples or before.timed != after.timed:
            continue
        fewer = len(before.samples) >= median_intervals.FEWEST_SAMPLES > len(after.samples)
        if fewer and before.status is after.status is Status.PASS:
            continue  # reported as lost coverage
        if median_intervals.agree(before.samples, after.samples, thresholds.TIME):
            continue
        change = median_intervals.compare(before.samples, after.samples, thresholds.TIME)
        if change.answer is TimeAnswer.SAME:
            continue
        kind = Kind[change.answer.name]
        on = f" on {after.target}" if after.target else ""
        cause = change.why if kind is Kind.AMBIGUOUS else f"{change.answer.value}{on}"
        shown = f"{change.before_us:.4g} us", f"{change.after_us:.4g} us"
        yield finding(kind, after, cause, *shown, ratio=change.ratio, detail=_interval(change))


def _interval(change: TimeChange) -> str:
    if change.interval is None:
        return ""
    return f"ratio {change.interval.low:.3f} to {change.interval.high:.3f} with at least 95 %"


def moved_choices(before: Mapping[str, ComparedRecord], after: Mapping[str, ComparedRecord]) -> Iterator[Finding]:
    """Findings BEST_CONFIG_MOVED: for a kernel, problem, dtype and target, the config that was best in the baseline is
    slower than the candidate's best by more than the threshold. The detail says how much keeping it costs.

    Both intervals are of the candidate's times. They do not account for the best being the least of many medians.
    """
    now = _by_choice(after.values())
    for choice, group in _by_choice(before.values()).items():
        old = after.get(min(group, key=_time).case)
        if choice not in now or old is None or not old.samples:
            continue
        best = min(now[choice], key=_time)
        change = median_intervals.compare(best.samples, old.samples, thresholds.TIME)
        if best.config == old.config or change.answer is not TimeAnswer.SLOWER:
            continue
        kernel, problem, options, target = choice
        lost = f"keeping {old.config} costs {change.ratio - 1:.1%} ({_interval(change)})"
        where = f"{problem} {options}".strip()
        cause = f"the best config of {kernel} moved on {target}"
        yield finding(
            *(Kind.BEST_CONFIG_MOVED, old, cause, f"{old.config}", f"{best.config}"),
            ratio=change.ratio,
            detail=f"{where}: {lost}",
        )


def _by_choice(records: Iterable[ComparedRecord]) -> dict[_Choice, list[ComparedRecord]]:
    groups: defaultdict[_Choice, list[ComparedRecord]] = defaultdict(list)
    for record in records:
        if record.kernel and record.config and record.target and record.timed and record.samples:
            groups[record.kernel, record.timed, record.options, record.target].append(record)
    return groups


def _time(record: ComparedRecord) -> float:
    return median_intervals.median(record.samples)


def compile_findings(pairs: Pairs) -> Iterator[Finding]:
    """Findings SLOWER_COMPILE and FASTER_COMPILE, per kernel and target. Each compilation is measured only once, so the
    median of the ratios over several uncached ones counts."""
    groups: defaultdict[tuple[str, str], list[tuple[float, float]]] = defaultdict(list)
    for before, after in pairs:
        if before.compile_s and after.compile_s and after.kernel and after.target:
            groups[after.kernel, after.target].append((before.compile_s, after.compile_s))
    for (kernel, target), seconds in sorted(groups.items()):
        if len(seconds) < thresholds.COMPILE_TIME_LEAST_CASES:
            continue
        ratio = median(now / was for was, now in seconds)
        was, now = median(was for was, _ in seconds), median(now for _, now in seconds)
        if abs(now - was) < thresholds.COMPILE_TIME_LEAST_S or max(ratio, 1 / ratio) <= 1 + thresholds.COMPILE_TIME:
            continue
        kind = Kind.SLOWER_COMPILE if ratio > 1 else Kind.FASTER_COMPILE
        case = f"{kernel} on {target}, {len(seconds)} cases"
        cause = f"{kind.value.lower().replace('_', ' ')} on {target}"
        yield Finding(kind, case, kernel, target, cause, f"{was:.2f} s", f"{now:.2f} s", ratio, "medians")
