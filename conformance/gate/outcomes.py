"""What became of a case's outcome: a table of what it was and what it is.

Accepted failures: ``waived`` is a failure that an expected failure of the suites accepts. A case that becomes waived is
reported as NEW_WAIVED, which warns and does not fail the gate: the entry is the decision. One that no entry covers any
more is NEW_FAIL, one that passes is FIXED. ``unexpected-pass`` passes; that its waiver must go is
the waivers' business. A failing case that is no longer run is LOST_COVERAGE, never fixed.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum

from conformance.gate.causes import check_name, failure_cause, normalised
from conformance.gate.findings import Finding, Kind
from conformance.gate.reading import Entry
from conformance.records import Status


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
    Status.WAIVED: Standing.ACCEPTED,
    Status.FLAKY: Standing.FLAKY,
    Status.FAIL: Standing.FAILED,
    Status.COMPILE_ERROR: Standing.FAILED,
    Status.CRASH: Standing.CRASHED,
    Status.TIMEOUT: Standing.CRASHED,
    Status.OOM: Standing.CRASHED,
    Status.NOT_APPLICABLE: Standing.ABSENT,
    Status.NOT_CLAIMED: Standing.ABSENT,
    Status.MISSING: Standing.ABSENT,
}
_BAD = (Standing.FAILED, Standing.CRASHED, Standing.FLAKY)
_FAILURES = (Kind.NEW_CRASH, Kind.NEW_FAIL, Kind.NONDETERMINISTIC, Kind.NEW_WAIVED, Kind.STILL_FAIL)
#: Checks that judge a case; what other checks are called depends on what was generated.
_JUDGING = ("numerics", "memory", "repeat", "grid", "codegen", "resources", "spills")
_EXECUTORS = (None, "interpreter", "device")


def standing(entry: Entry | None) -> Standing:
    return Standing.ABSENT if entry is None else _STANDING[entry.status]


def finding(
    kind: Kind, entry: Entry, cause: str, before: str, after: str, ratio: float | None = None, detail: str = ""
) -> Finding:
    """A finding about the case of ``entry``."""
    return Finding(kind, entry.case, entry.kernel, entry.target, cause, before, after, ratio, detail)


def outcome(before: Entry | None, after: Entry | None, absence: Callable[[Entry], str]) -> Finding | None:
    """What the two statuses say; None if nothing became worse or better. ``absence`` gives the cause for a case of the
    baseline that the candidate did not record. One of the two entries is there."""
    was, now = standing(before), standing(after)
    entry = after or before
    assert entry is not None
    kind = _kind(was, now, before, after)
    if kind is None:
        return _evidence(before, after) if before and after and was is now is not Standing.ABSENT else None
    cause, detail = entry.reason or entry.status.value, ""
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
    return finding(kind, entry, cause, _shown(before), _shown(after), detail=detail)


def _kind(was: Standing, now: Standing, before: Entry | None, after: Entry | None) -> Kind | None:
    if now is Standing.ABSENT:
        return Kind.LOST_COVERAGE if was is not Standing.ABSENT else None
    if now is Standing.CRASHED:
        return Kind.STILL_FAIL if was is Standing.CRASHED else Kind.NEW_CRASH
    if now is Standing.FLAKY:
        return Kind.STILL_FAIL if was in _BAD else Kind.NONDETERMINISTIC
    if now is Standing.FAILED:
        if was in (Standing.FAILED, Standing.CRASHED):
            return Kind.STILL_FAIL
        return Kind.NONDETERMINISTIC if after and _repeat_failed(after) else Kind.NEW_FAIL
    if now is Standing.ACCEPTED:
        if was in _BAD or was is Standing.ACCEPTED:
            return None if was is Standing.ACCEPTED and _same_failure(before, after) else Kind.STILL_FAIL
        return Kind.NEW_WAIVED
    if was is now:
        return None
    if was is Standing.ABSENT or (was is Standing.BUILT and now is Standing.GOOD):
        return Kind.NEW_COVERAGE
    if now is Standing.BUILT:
        # A case that never got to run, and now compiles, came as far as it can without a device.
        return Kind.FIXED if was in _BAD and before and before.executor is None else Kind.LOST_COVERAGE
    return Kind.FIXED


def _repeat_failed(entry: Entry) -> bool:
    return any(check.startswith("repeat") for check, _ in entry.failing)


def _same_failure(before: Entry | None, after: Entry | None) -> bool:
    return bool(before and after and before.reason == after.reason)


def _failure(before: Entry | None, after: Entry, kind: Kind) -> tuple[str, str]:
    """The cause of a failure, and what else there is to say."""
    if after.status is Status.WAIVED:
        return f"accepted: {after.reason}", "fails, which a waiver accepts"
    failing = after.failing
    if kind is Kind.NONDETERMINISTIC and _repeat_failed(after):
        failing = tuple(pair for pair in failing if pair[0].startswith("repeat"))
        others = [check_name(check) for check, _ in after.failing if not check.startswith("repeat")]
        return failure_cause(after, failing), f"failed too: {', '.join(others[:5])}" if others else ""
    cause = failure_cause(after)
    if kind is Kind.STILL_FAIL and before is not None:
        earlier = failure_cause(before)
        return cause, f"another cause before: {earlier}" if earlier != cause else ""
    return cause, failing[0][1][:500] if failing else after.diagnosis[:500]


def _evidence(before: Entry, after: Entry) -> Finding | None:
    """The outcome is the same, but is it as well founded? A pass that was judged by less is not the pass it was."""
    if _STANDING[after.status] not in (Standing.GOOD, Standing.BUILT):
        return None
    if before.executor != after.executor and {before.executor, after.executor} <= set(_EXECUTORS):
        weaker = _EXECUTORS.index(after.executor) < _EXECUTORS.index(before.executor)
        kind = Kind.LOST_COVERAGE if weaker else Kind.NEW_COVERAGE
        shown = f"{before.executor or 'not'}", f"{after.executor or 'not'}"
        return finding(kind, after, f"run by: {shown[0]} before, {shown[1]} now", *shown)
    if before.checks != after.checks:
        lost = sorted(_judging(before) - _judging(after))
        if lost:
            cause = f"no longer checked: {', '.join(lost[:3])}" + (" and more" if len(lost) > 3 else "")
            return finding(Kind.LOST_COVERAGE, after, cause, "checked", "not checked", detail=", ".join(lost))
    if before.resources is not None and after.resources is None:
        return finding(Kind.LOST_COVERAGE, after, "no longer compiled", "compiled", "not compiled")
    if before.samples and not after.samples:
        why = "refused: " + normalised(after.refused) if after.refused else "not timed"
        return finding(Kind.LOST_COVERAGE, after, f"no longer timed: {why}", "timed", why)
    return None


def _judging(entry: Entry) -> set[str]:
    return {check_name(check) for check in entry.checks if check.partition("/")[0].partition("@")[0] in _JUDGING}


def _shown(entry: Entry | None) -> str:
    if entry is None:
        return "not recorded"
    return entry.status.value + (f": {entry.reason}" if entry.reason else "")
