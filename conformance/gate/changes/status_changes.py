"""Maps a case's status in the baseline and in the candidate to a finding.

``expected-fail`` is a failure that an expected failure of the suites accepts. A case that newly fails so is reported as
NEW_EXPECTED_FAIL, a warning that does not fail the gate: the entry is the decision. A case that no entry covers any
more is NEW_FAIL; one that passes is FIXED. ``unexpected-pass`` counts as a pass here, because the run itself fails
until the entry is removed. A failing case that is no longer run is LOST_COVERAGE, never FIXED.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from enum import Enum

from conformance.gate.changes.median_intervals import FEWEST_SAMPLES
from conformance.gate.findings import Finding, Kind
from conformance.gate.runs.failure_causes import failure_cause, normalised
from conformance.gate.runs.run_reader import ComparedRecord
from conformance.records import Check, CheckKind, Status


class Standing(Enum):
    """How far a case came. BUILT: compiled, and there is no device to run it on."""

    GOOD = "good"
    BUILT = "built"
    ACCEPTED = "accepted"
    FLAKY = "flaky"
    FAILED = "failed"
    CRASHED = "crashed"
    ABSENT = "absent"


_STANDING = {
    Status.PASS: Standing.GOOD,
    Status.UNEXPECTED_PASS: Standing.GOOD,
    Status.NOT_RUN: Standing.BUILT,
    Status.EXPECTED_FAIL: Standing.ACCEPTED,
    Status.FLAKY: Standing.FLAKY,
    Status.FAIL: Standing.FAILED,
    Status.COMPILE_ERROR: Standing.FAILED,
    Status.CRASH: Standing.CRASHED,
    Status.TIMEOUT: Standing.CRASHED,
    Status.OOM: Standing.CRASHED,
    Status.NOT_APPLICABLE: Standing.ABSENT,
}
_BAD = (Standing.FAILED, Standing.CRASHED, Standing.FLAKY)
_NEW, _CRASH, _RANDOM, _EXPECTED = Kind.NEW_FAIL, Kind.NEW_CRASH, Kind.NONDETERMINISTIC, Kind.NEW_EXPECTED_FAIL
_STILL, _LOST, _FIXED, _MORE = Kind.STILL_FAIL, Kind.LOST_COVERAGE, Kind.FIXED, Kind.NEW_COVERAGE
#: By what a case is now, and by what it was: the columns are in the order of the standings. What the two standings do
#: not decide is in :func:`_kind`.
_KINDS: Mapping[Standing, tuple[Kind | None, ...]] = {
    # was: good, built, accepted, flaky, failed, crashed, absent
    Standing.GOOD: (None, _MORE, _FIXED, _FIXED, _FIXED, _FIXED, _MORE),
    Standing.BUILT: (_LOST, None, _LOST, _LOST, _LOST, _LOST, _MORE),
    Standing.ACCEPTED: (_EXPECTED, _EXPECTED, _STILL, _STILL, _STILL, _STILL, _EXPECTED),
    Standing.FLAKY: (_RANDOM, _RANDOM, _RANDOM, _STILL, _STILL, _STILL, _RANDOM),
    Standing.FAILED: (_NEW, _NEW, _NEW, _NEW, _STILL, _STILL, _NEW),
    Standing.CRASHED: (_CRASH, _CRASH, _CRASH, _CRASH, _CRASH, _STILL, _CRASH),
    Standing.ABSENT: (_LOST, _LOST, _LOST, _LOST, _LOST, _LOST, None),
}
_COLUMNS = tuple(Standing)
_FAILURES = (Kind.NEW_CRASH, Kind.NEW_FAIL, Kind.NONDETERMINISTIC, Kind.NEW_EXPECTED_FAIL, Kind.STILL_FAIL)
#: Checks that every case of its sort has; what other checks are called depends on what was generated.
_JUDGING = (
    *(CheckKind.NUMERICS, CheckKind.MEMORY, CheckKind.REPEAT, CheckKind.GRID),
    *(CheckKind.REQUIRES, CheckKind.FORBIDS, CheckKind.CODEGEN, CheckKind.RESOURCES, CheckKind.SPILLS),
)
#: Checks that name a fill only where they fail.
_BY_FILL_IF_FAILING = (CheckKind.MEMORY, CheckKind.REPEAT)
_EXECUTORS = (None, "interpreter", "device")

#: Failing checks with what they say.
Failing = tuple[tuple[str, str], ...]


def standing(record: ComparedRecord | None) -> Standing:
    return Standing.ABSENT if record is None else _STANDING[record.status]


def finding(
    kind: Kind,
    record: ComparedRecord,
    cause: str,
    before: str,
    after: str,
    ratio: float | None = None,
    detail: str = "",
) -> Finding:
    """A finding about the case of ``record``."""
    return Finding(kind, record.case, record.kernel, record.target, cause, before, after, ratio, detail)


def outcome(
    before: ComparedRecord | None, after: ComparedRecord | None, absence: Callable[[ComparedRecord], str]
) -> Finding | None:
    """What the two statuses say; None if nothing became worse or better. ``absence`` gives the cause for a case of the
    baseline that the candidate did not record. One of the two records is there."""
    was, now = standing(before), standing(after)
    record = after or before
    assert record is not None
    kind = _kind(was, now, before, after)
    if kind is None:
        return _evidence(before, after) if before and after and was is now is not Standing.ABSENT else None
    if kind is Kind.FIXED and before and after:
        less = _less(before, after)
        if less is not None:
            return less
    cause, detail = record.reason or record.status.value, ""
    if kind in _FAILURES and after:
        cause, detail = _failure(before, after, kind)
    elif kind is Kind.LOST_COVERAGE and before:
        cause = absence(before) if after is None else normalised(f"{after.status.value} {after.reason}")
    elif kind is Kind.FIXED and before:
        cause = failure_cause(before) if was is not Standing.ACCEPTED else f"was accepted: {before.reason}"
        if after and after.status is Status.UNEXPECTED_PASS:
            detail = "its expected failure no longer fails: remove it"
    elif kind is Kind.NEW_COVERAGE:
        cause = f"was {_shown(before)}"
    return finding(kind, record, cause, _shown(before), _shown(after), detail=detail)


def _kind(was: Standing, now: Standing, before: ComparedRecord | None, after: ComparedRecord | None) -> Kind | None:
    kind = _KINDS[now][_COLUMNS.index(was)]
    if was is now is Standing.FAILED and before and after and before.status is not after.status:
        kind = Kind.NEW_FAIL  # did not compile, and is wrong now: an autotuner would choose it; or the reverse
    if was is Standing.CRASHED and after and after.status is Status.FAIL:
        kind = Kind.NEW_FAIL  # what ran out of memory or time, on this machine perhaps, is wrong now
    if was is now is Standing.ACCEPTED and before and after and before.reason == after.reason:
        return None
    if now is Standing.BUILT and was in _BAD and before and before.executor is None:
        return Kind.FIXED  # it never got to run, and came as far now as it can without a device
    return Kind.NONDETERMINISTIC if kind is Kind.NEW_FAIL and after and repeats(after.failing) else kind


def repeats(failing: Failing) -> Failing:
    """Those of ``failing`` that say that two runs of one input differ."""
    return tuple(pair for pair in failing if _is_repeat(pair[0]))


def _is_repeat(check: str) -> bool:
    return Check.parse(check).kind is CheckKind.REPEAT


def newly_failing(before: ComparedRecord, after: ComparedRecord) -> Failing:
    """The failing checks of a case that failed before too, accepted or not, of whose subjects none failed then: of one
    that failed in its numbers, such as those of its memory. Each directive about the code is a subject of its own. Of a
    failure that nothing accepts, those that passed then are new, too."""
    if before.status is not after.status or after.status not in (Status.FAIL, Status.EXPECTED_FAIL):
        return ()
    failed = {check for check, _ in before.failing}
    subjects = {_subject_of(check) for check in failed} | {"diagnosis"}  # which only explains the others
    passed = set(before.checks) - failed if after.status is Status.FAIL else set()
    return tuple(pair for pair in after.failing if pair[0] in passed or _subject_of(pair[0]) not in subjects)


def _subject_of(check: str) -> str:
    """What a check is about: the kind, but each directive about the code by itself."""
    parsed = Check.parse(check)
    about_code = parsed.kind in (CheckKind.REQUIRES, CheckKind.FORBIDS, CheckKind.CODEGEN)
    return parsed.name if about_code else parsed.group


def _failure(before: ComparedRecord | None, after: ComparedRecord, kind: Kind) -> tuple[str, str]:
    """The cause of a failure, and what else there is to say."""
    if after.status is Status.EXPECTED_FAIL:
        return f"accepted: {after.reason}", "fails, which a waiver accepts"
    failing = after.failing
    repeated = repeats(failing)
    if kind is Kind.NONDETERMINISTIC and repeated:
        others = [Check.parse(check).name for check, _ in failing if not _is_repeat(check)]
        return failure_cause(after, repeated), f"failed too: {', '.join(others[:5])}" if others else ""
    cause = failure_cause(after)
    if kind is Kind.STILL_FAIL and before is not None:
        earlier = failure_cause(before)
        return cause, f"another cause before: {earlier}" if earlier != cause else ""
    return cause, failing[0][1][:500] if failing else after.diagnosis[:500]


def _evidence(before: ComparedRecord, after: ComparedRecord) -> Finding | None:
    """The outcome is the same, but is it as well founded? What was lost comes before what was gained."""
    if _STANDING[after.status] not in (Standing.GOOD, Standing.BUILT):
        return None
    gained = _gain(before.executor, after.executor) > 0
    return _less(before, after) or (_other_executor(Kind.NEW_COVERAGE, before, after) if gained else None)


def _less(before: ComparedRecord, after: ComparedRecord) -> Finding | None:
    """What of the case is no longer judged or measured: a pass that was judged by less is not the pass it was."""
    if _gain(before.executor, after.executor) < 0:
        return _other_executor(Kind.LOST_COVERAGE, before, after)
    if before.checks != after.checks:
        had, has = _judging(before), _judging(after)
        for check, _ in before.failing:
            parsed = Check.parse(check)
            if parsed.kind in _BY_FILL_IF_FAILING:
                had.pop(parsed.name, None)
        lost = sorted(had.keys() - has.keys())
        if lost:
            cause = f"no longer checked: {', '.join(lost[:3])}" + (" and more" if len(lost) > 3 else "")
            return finding(Kind.LOST_COVERAGE, after, cause, "checked", "not checked", detail=", ".join(lost))
        fewer = sorted(name for name in had if has[name] < had[name])
        if fewer:
            counts = f"{fewer[0]}: {had[fewer[0]]}", f"{fewer[0]}: {has[fewer[0]]}"
            return finding(Kind.LOST_COVERAGE, after, "judged fewer times", *counts, detail=", ".join(fewer))
    if before.resources is not None and after.resources is None:
        return finding(Kind.LOST_COVERAGE, after, "no longer compiled", "compiled", "not compiled")
    if before.resources and before.resources.registers and after.resources and not after.resources.registers:
        return finding(Kind.LOST_COVERAGE, after, "registers and spills are no longer read", "read", "not read")
    if before.code and not after.code:
        cause = "the features and instructions of the code are no longer recorded"
        return finding(Kind.LOST_COVERAGE, after, cause, "recorded", "not recorded")
    if before.samples and not after.samples:
        why = "refused: " + normalised(after.refused) if after.refused else "not timed"
        return finding(Kind.LOST_COVERAGE, after, f"no longer timed: {why}", "timed", why)
    if len(before.samples) >= FEWEST_SAMPLES > len(after.samples):
        counts = f"{len(before.samples)} measurements", f"{len(after.samples)} measurements"
        return finding(Kind.LOST_COVERAGE, after, "measured too few times to tell", *counts)
    return None


def _gain(before: str | None, after: str | None) -> int:
    """How much more an executor shows than the one before; 0 where either is not known."""
    if before == after or not {before, after} <= {*_EXECUTORS}:
        return 0
    return _EXECUTORS.index(after) - _EXECUTORS.index(before)


def _other_executor(kind: Kind, before: ComparedRecord, after: ComparedRecord) -> Finding:
    was, now = before.executor or "not", after.executor or "not"
    return finding(kind, after, f"run by: {was} before, {now} now", was, now)


def _judging(record: ComparedRecord) -> Counter[str]:
    """How often each check that judges the case was made: once for each config, if it names any."""
    checks = map(Check.parse, record.checks)
    return Counter(check.name for check in checks if check.kind in _JUDGING)


def _shown(record: ComparedRecord | None) -> str:
    if record is None:
        return "not recorded"
    return record.status.value + (f": {record.reason}" if record.reason else "")
