"""Compares times: of each case, of the config that is best for a problem, and of compiling."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from statistics import median

from conformance.gate.changes import median_intervals
from conformance.gate.changes.median_intervals import TimeAnswer, TimeChange
from conformance.gate.changes.status_changes import fails, finding
from conformance.records import CaseRecord, Status
from conformance.user_files.findings import Finding, Kind
from conformance.user_files.thresholds import DEFAULT, Thresholds

_Choice = tuple[str, str, str, str, str]  # kernel, problem, dtype and variant, target, device
#: Gives the thresholds of the kernel with this name.
ThresholdsOf = Callable[[str | None], Thresholds]

#: What may cost time. Where the time was measured, it decides whether it did.
_MAY_COST = (Kind.ACCUMULATOR_MOVED, Kind.MORE_SPILLS, Kind.LESS_OCCUPANCY)


def weighed(finding: Finding, before: CaseRecord, after: CaseRecord, thresholds: Thresholds) -> Finding:
    """``finding`` about the code of a case. If it may cost time, and one device measured the times of both sides, which
    did not get worse, it is minor. A faster device would hide what the code costs."""
    if finding.kind not in _MAY_COST or not comparable(before, after) or on_other_device(before, after):
        return finding
    if fails(before) or fails(after):  # a wrong kernel's time excuses nothing
        return finding
    change = median_intervals.compare(before.figures.samples, after.figures.samples, thresholds.slower.share)
    if change.answer not in (TimeAnswer.SAME, TimeAnswer.FASTER):
        return finding
    text = f"took no longer on the device: {change.before_us:.4g} us before, {change.after_us:.4g} us now"
    return replace(finding, minor=True, detail="; ".join(filter(None, (finding.detail, text))))


def comparable(before: CaseRecord, after: CaseRecord) -> bool:
    """True if both sides hold times of one problem."""
    return bool(before.figures.samples and after.figures.samples and before.figures.timed == after.figures.timed)


def on_other_device(before: CaseRecord, after: CaseRecord) -> bool:
    """True if another device of the kind timed the one than the other, as far as the records say which it was."""
    devices = {before.figures.timed_on, after.figures.timed_on}
    return len(devices) == 2 and None not in devices


def _share(before: CaseRecord, after: CaseRecord, thresholds: Thresholds) -> float:
    limits = thresholds.slower
    return max(limits.share, limits.other_device_share) if on_other_device(before, after) else limits.share


def time_finding(before: CaseRecord, after: CaseRecord, thresholds: Thresholds = DEFAULT) -> Finding | None:
    """Returns the finding SLOWER, FASTER or AMBIGUOUS of a case whose times differ; None if they do not."""
    if not comparable(before, after):
        return None
    fewer = len(before.figures.samples) >= median_intervals.FEWEST_SAMPLES > len(after.figures.samples)
    if fewer and before.status is after.status is Status.PASS:
        return None  # reported as lost coverage
    share = _share(before, after, thresholds)
    if median_intervals.agree(before.figures.samples, after.figures.samples, share):
        return None
    change = median_intervals.compare(before.figures.samples, after.figures.samples, share)
    if change.answer is TimeAnswer.SAME:
        return None
    kind = Kind[change.answer.name]
    on = f" on {after.target}" if after.target else ""
    cause = change.why if kind is Kind.AMBIGUOUS else f"{change.answer.value}{on}"
    shown = f"{change.before_us:.4g} us", f"{change.after_us:.4g} us"
    return finding(kind, after, cause, *shown, ratio=change.ratio, detail=_interval(change))


def _interval(change: TimeChange) -> str:
    if change.interval is None:
        return ""
    return f"ratio {change.interval.low:.3f} to {change.interval.high:.3f} with at least 95 %"


class MovedChoices:
    """Finds where the best config moved for a kernel, problem, dtype and target. There the baseline's best config is
    now slower than the candidate's best by more than the threshold. Of each side it keeps the best."""

    def __init__(self, thresholds: ThresholdsOf) -> None:
        self._thresholds = thresholds
        self._before: dict[_Choice, tuple[CaseRecord, CaseRecord | None]] = {}
        self._after: dict[_Choice, CaseRecord] = {}

    def add(self, before: CaseRecord | None, after: CaseRecord | None) -> None:
        """Takes one case of either side or both, in the order of the case ids: the first of equals counts."""
        choice = before and _choice(before)
        if before and choice and (choice not in self._before or _time(before) < _time(self._before[choice][0])):
            self._before[choice] = before, after
        choice = after and _choice(after)
        if after and choice and (choice not in self._after or _time(after) < _time(self._after[choice])):
            self._after[choice] = after

    def findings(self) -> Iterator[Finding]:
        """Findings BEST_CONFIG_MOVED. The detail says how much keeping the config costs.

        Both intervals are of the candidate's times. They do not account for the best being the least of many medians.
        """
        for choice, (_, old) in self._before.items():
            if choice not in self._after or old is None or not old.figures.samples:
                continue
            best = self._after[choice]
            share = _share(best, old, self._thresholds(choice[0]))
            change = median_intervals.compare(best.figures.samples, old.figures.samples, share)
            was, now = _config(old), _config(best)
            if was == now or change.answer is not TimeAnswer.SLOWER:
                continue
            kernel, problem, options, target, _ = choice
            lost = f"keeping {was} costs {change.ratio - 1:.1%} ({_interval(change)})"
            where = f"{problem} {options}".strip()
            cause = f"the best config of {kernel} moved on {target}"
            yield finding(
                *(Kind.BEST_CONFIG_MOVED, old, cause, was, now),
                ratio=change.ratio,
                detail=f"{where}: {lost}",
            )


def _choice(record: CaseRecord) -> _Choice | None:
    if record.kernel and record.config and record.target and record.figures.timed and record.figures.samples:
        options = f"{record.options.get('dtype', '')} {record.options.get('variant', '')}".strip()
        return record.kernel, record.figures.timed, options, record.target, str(record.stack.get("device"))
    return None


def _config(record: CaseRecord) -> str:
    return str(record.config and record.config.get("id"))


def _time(record: CaseRecord) -> float:
    return median(record.figures.samples)


class CompileTimes:
    """Compares the seconds of compiling per kernel and target. Each compilation is measured only once, so the median of
    the ratios over several uncached ones counts."""

    def __init__(self, thresholds: ThresholdsOf) -> None:
        self._thresholds = thresholds
        self._seconds: defaultdict[tuple[str, str], tuple[array[float], array[float]]] = defaultdict(
            lambda: (array("d"), array("d"))
        )

    def add(self, before: CaseRecord, after: CaseRecord) -> None:
        """Takes one case of both sides."""
        if before.figures.compiled_in and after.figures.compiled_in and after.kernel and after.target:
            was, now = self._seconds[after.kernel, after.target]
            was.append(before.figures.compiled_in)
            now.append(after.figures.compiled_in)

    def findings(self) -> Iterator[Finding]:
        """Findings SLOWER_COMPILE and FASTER_COMPILE."""
        for (kernel, target), (before, after) in sorted(self._seconds.items()):
            limits = self._thresholds(kernel).slower_compile
            if len(before) < limits.cases:
                continue
            ratio = median(now / was for was, now in zip(before, after, strict=True))
            was, now = median(before), median(after)
            small = abs(now - was) < limits.seconds
            if small or max(ratio, 1 / ratio) <= 1 + limits.share:
                continue
            kind = Kind.SLOWER_COMPILE if ratio > 1 else Kind.FASTER_COMPILE
            case = f"{kernel} on {target}, {len(before)} cases"
            cause = f"{kind.value.lower().replace('_', ' ')} on {target}"
            yield Finding(kind, case, kernel, target, cause, f"{was:.2f} s", f"{now:.2f} s", ratio, "medians")
