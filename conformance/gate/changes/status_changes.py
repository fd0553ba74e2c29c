"""Maps a case's status in the baseline and in the candidate to a finding.

``expected-fail`` is a failure that an expected failure of the suites knows. The entry says what the defect is, and
accepts nothing. A case that newly fails so is NEW_KNOWN_DEFECT, a regression like NEW_FAIL. So is one that fails by
another defect than before, or in more ways. A case that no entry covers any more is NEW_FAIL; one that passes is FIXED.
``unexpected-pass`` counts as a pass here, because the run itself fails until the entry is removed. A failing case that
is no longer run is LOST_COVERAGE, never FIXED.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from enum import Enum

from conformance.gate.changes.median_intervals import FEWEST_SAMPLES
from conformance.gate.runs.failure_causes import failure_cause, normalised
from conformance.gate.runs.known_defects import harm_of, known_defect, words_of
from conformance.gate.shortened_text import first_words
from conformance.records import CaseRecord, Check, CheckKind, ExecutorName, Status
from conformance.user_files.findings import COSTS, NEW_FAILURES, Finding, Harm, Kind


class Standing(Enum):
    """The stages that a case can reach."""

    PASSED = "passed"
    COMPILED = "compiled"  # and there was no device to run it on
    EXPECTED = "failed as expected"
    FLAKY = "flaky"
    FAILED = "failed"
    CRASHED = "crashed"
    ABSENT = "absent"  # refused, or not recorded


_STANDING = {
    Status.PASS: Standing.PASSED,
    Status.UNEXPECTED_PASS: Standing.PASSED,
    Status.NOT_RUN: Standing.COMPILED,
    Status.EXPECTED_FAIL: Standing.EXPECTED,
    Status.FLAKY: Standing.FLAKY,
    Status.FAIL: Standing.FAILED,
    Status.COMPILE_ERROR: Standing.FAILED,
    Status.CRASH: Standing.CRASHED,
    Status.TIMEOUT: Standing.CRASHED,
    Status.OOM: Standing.CRASHED,
    Status.NOT_APPLICABLE: Standing.ABSENT,
}
#: For each way to fail in the candidate: the finding if it is new, and the standings of the baseline that make it old.
#: Whether a failure by a known defect is new depends on more than the standing. So does a flaky case that failed.
_FAILURES = {
    Standing.EXPECTED: (Kind.NEW_KNOWN_DEFECT, ()),
    Standing.FLAKY: (Kind.NONDETERMINISTIC, (Standing.FLAKY, Standing.CRASHED)),
    Standing.FAILED: (Kind.NEW_FAIL, (Standing.FAILED, Standing.CRASHED)),
    Standing.CRASHED: (Kind.NEW_CRASH, (Standing.CRASHED,)),
}
_FAILURE_KINDS = (Kind.STILL_FAIL, *(kind for kind, _ in _FAILURES.values()))
#: Kinds of checks whose loss is lost coverage. The names of others depend on what was generated.
_JUDGING = (
    *(CheckKind.NUMERICS, CheckKind.MEMORY, CheckKind.REPEAT, CheckKind.GRID),
    *(CheckKind.REQUIRES, CheckKind.FORBIDS, CheckKind.CODEGEN, CheckKind.RESOURCES, CheckKind.SPILLS),
    CheckKind.EXECUTED,
)
#: Checks that name a fill only where they fail.
_BY_FILL_IF_FAILING = (CheckKind.MEMORY, CheckKind.REPEAT)
#: A check of the code that is recorded where it passes, too, as those of the order are. Each other one names a fault of
#: the compiler, and is recorded only where it fails.
_JUDGED_IS_LAUNCHED = str(Check(CheckKind.CODEGEN, "judged-is-launched"))
_EXECUTORS = (None, *(name.value for name in ExecutorName))
#: What no older record excuses.
_WRONG = (Harm.WRONG, Harm.RACE, Harm.MEMORY)

#: Failing checks with what they say.
Failing = tuple[tuple[str, str], ...]


def standing(record: CaseRecord | None) -> Standing:
    """Returns the :class:`Standing` that the case of ``record`` reached. One that was judged and has a failing check
    has failed, whatever its status says."""
    if record is None:
        return Standing.ABSENT
    reached = _STANDING[record.status]
    judged = reached in (Standing.PASSED, Standing.COMPILED)
    return Standing.FAILED if judged and record.failing else reached


def fails(record: CaseRecord | None) -> bool:
    """Returns True if the case of ``record`` failed, expected or not."""
    return standing(record) in _FAILURES


def finding(
    kind: Kind,
    record: CaseRecord,
    cause: str,
    before: str,
    after: str,
    ratio: float | None = None,
    detail: str = "",
) -> Finding:
    """Returns a finding about the case of ``record``."""
    return Finding(kind, record.case, record.kernel, record.target, cause, before, after, ratio, detail)


def about(what: str, record: CaseRecord) -> str:
    """Returns a cause that names the target: the same loss on two targets has two causes, since their compilers
    differ."""
    return f"{what} on {record.target}" if record.target else what


def status_finding(
    before: CaseRecord | None, after: CaseRecord | None, absence: Callable[[CaseRecord], str]
) -> Finding | None:
    """Returns the finding about the statuses of one case; None if it became neither worse nor better. At least one of
    the two records is there. ``absence`` says why the candidate did not record a case of the baseline."""
    kind = _kind(before, after)
    if kind is None:
        return _evidence(before, after) if before and after else None
    if kind is Kind.FIXED and before and after:
        lost = _lost_evidence(before, after)
        if lost is not None:
            return lost
    cause, detail = _cause(kind, before, after, absence)
    record = after or before
    assert record is not None
    if kind is Kind.NEW_KNOWN_DEFECT and after:
        return known_defect_finding(after, _shown(before), _shown(after), detail)
    one = finding(kind, record, cause, _shown(before), _shown(after), detail=detail)
    return replace(one, newly_fails=kind in NEW_FAILURES)


def known_defect_finding(after: CaseRecord, was: str, now: str, detail: str) -> Finding:
    """The finding about a case that newly fails by a known defect: its class, its entry and where it is reported."""
    defect = known_defect(after)
    one = finding(Kind.NEW_KNOWN_DEFECT, after, str(defect), was, now, detail=detail)
    return replace(one, newly_fails=True, defect=defect)


def _kind(before: CaseRecord | None, after: CaseRecord | None) -> Kind | None:
    """The kind of the finding about two statuses; None if the case came as far as before, or was never there."""
    was, now = standing(before), standing(after)
    if now is Standing.ABSENT:
        return None if was is Standing.ABSENT else Kind.LOST_COVERAGE
    if now is Standing.PASSED:
        if was is Standing.PASSED:
            return None
        return Kind.NEW_COVERAGE if was in (Standing.COMPILED, Standing.ABSENT) else Kind.FIXED
    if now is Standing.COMPILED:
        return _kind_of_compiled(was, before)
    if now is Standing.EXPECTED and after:
        return _kind_of_expected(before, after)
    new, old_standings = _FAILURES[now]
    kind = Kind.STILL_FAIL if was in old_standings else new
    if before and after:
        if now is Standing.FLAKY and was is Standing.FAILED and repeats(before.failing):
            kind = Kind.STILL_FAIL  # its runs differed before, too
        if was is now is Standing.FAILED and before.status is not after.status:
            kind = Kind.NEW_FAIL  # it did not compile and is wrong now, so an autotuner would choose it; or the reverse
        if was is Standing.CRASHED and after.status is Status.FAIL:
            kind = Kind.NEW_FAIL  # it ran out of memory or time, perhaps for want of either, and is wrong now
    return Kind.NONDETERMINISTIC if kind is Kind.NEW_FAIL and after and repeats(after.failing) else kind


def _kind_of_expected(before: CaseRecord | None, after: CaseRecord) -> Kind | None:
    """The kind for a case that fails by a known defect in the candidate. It is new unless the case failed before by a
    defect that did the same, and was the same if an entry named it. What was wrong and only costs time now is no worse.
    What both sides have by one entry is no finding, but for a fault of the order: it shows itself in no number. A
    baseline of an older version may lack the harm: it counts as the same if the entry is the same. That ends where the
    candidate shows a wrong result, a race or an access outside the operands."""
    if before is None or not fails(before):
        return Kind.NEW_KNOWN_DEFECT
    was, now = harm_of(before), harm_of(after)
    accepted = standing(before) is Standing.EXPECTED
    one_entry = accepted and before.reason_name == after.reason_name
    lesser = now in COSTS and was not in (*COSTS, Harm.UNKNOWN)
    untold = accepted and Harm.UNKNOWN in (was, now) and before.figures.expected_failure is None and now not in _WRONG
    alike = was is now or untold or {was, now} == {Harm.NOT_COMPILED, Harm.RAISES}
    links = known_defect(before).link, known_defect(after).link
    if not (lesser or (alike and (not accepted or one_entry or links[0] == links[1] != ""))):
        return Kind.NEW_KNOWN_DEFECT
    ordered = any(is_order_check(check) for check, _ in after.failing)
    return None if one_entry and not ordered else Kind.STILL_FAIL


def _kind_of_compiled(was: Standing, before: CaseRecord | None) -> Kind | None:
    """The kind for a case that the candidate compiled and had no device to run it on."""
    if was is Standing.COMPILED:
        return None
    if was is Standing.ABSENT:
        return Kind.NEW_COVERAGE
    if before and was in _FAILURES and before.executor is None:
        return Kind.FIXED  # it failed before it could run, and came as far now as it can without a device
    return Kind.LOST_COVERAGE


def never_compiled(record: CaseRecord) -> bool:
    """True if the case of ``record`` failed because it was not compiled."""
    return standing(record) in _FAILURES and record.executor is None and record.figures.resources is None


def _cause(
    kind: Kind, before: CaseRecord | None, after: CaseRecord | None, absence: Callable[[CaseRecord], str]
) -> tuple[str, str]:
    """The cause of a finding of ``kind``, and what else there is to say."""
    if kind in _FAILURE_KINDS and after:
        return _failure(before, after, kind)
    if kind is Kind.LOST_COVERAGE and before:
        if after is None:
            return absence(before), ""
        return normalised(f"{after.status.value} {after.reason_name}"), first_words(after.reason_detail, 500)
    if kind is Kind.FIXED and before:
        cause = failure_cause(before)
        if standing(before) is Standing.EXPECTED:
            cause = f"was an expected failure: {before.reason_name}"
        passed = after is not None and after.status is Status.UNEXPECTED_PASS
        return cause, "its expected failure no longer fails: remove it" if passed else ""
    return f"was {_shown(before)}", ""


def repeats(failing: Failing) -> Failing:
    """Returns the checks among ``failing`` which say that two runs of one input differ."""
    return tuple(pair for pair in failing if _is_repeat(pair[0]))


def _is_repeat(check: str) -> bool:
    return Check.parse(check).kind is CheckKind.REPEAT


def is_order_check(check: str) -> bool:
    """Returns True if ``check`` judges the order of the code alone, whatever another stack does.

    >>> is_order_check("codegen/order/fence"), is_order_check("codegen/requires/WGMMA")
    (True, False)
    """
    parsed = Check.parse(check)
    return parsed.kind is CheckKind.CODEGEN and parsed.subject.startswith("order/")


def newly_failing(before: CaseRecord, after: CaseRecord) -> Failing:
    """Returns the new failures of a case that failed in the baseline too, expected or not.

    Returns the failing checks that are new: those that passed in the baseline, and those of a subject in which no check
    failed there. A failure of the memory is new where only numbers were wrong. Each directive about the code is its own
    subject. A run of TTGIR records one check if all is right, and the names of those that failed: each other name is
    new.

    If no check failed in the baseline, each one is new, unless the baseline is known to have failed by the same.
    """
    judged = (Status.FAIL, Status.EXPECTED_FAIL)
    if before.status not in judged or after.status not in judged:
        return ()
    if not before.failing and harm_of(before) is harm_of(after) is not Harm.UNKNOWN:
        return ()
    failed = {check for check, _ in before.failing}
    subjects = {_subject_of(check) for check in failed} | {"diagnosis"}  # which only explains the others
    passed = set(before.checks) - failed
    return tuple(pair for pair in after.failing if pair[0] in passed or _subject_of(pair[0]) not in subjects)


def _subject_of(check: str) -> str:
    """Returns the subject of a check: its kind; for a directive about the code or a check of a run of TTGIR, the check
    itself."""
    parsed = Check.parse(check)
    alone = parsed.kind in (CheckKind.REQUIRES, CheckKind.FORBIDS, CheckKind.CODEGEN, CheckKind.EXECUTED)
    return parsed.name if alone else parsed.group


def _failure(before: CaseRecord | None, after: CaseRecord, kind: Kind) -> tuple[str, str]:
    """The cause of a failure, and what else there is to say."""
    if after.status is Status.EXPECTED_FAIL:
        return f"expected: {after.reason_name}", words_of(after)[:500]
    failing = after.failing
    repeated = repeats(failing)
    if kind is Kind.NONDETERMINISTIC and repeated:
        others = [Check.parse(check).name for check, _ in failing if not _is_repeat(check)]
        return failure_cause(after, repeated), f"failed too: {', '.join(others[:5])}" if others else ""
    cause = failure_cause(after)
    if kind is Kind.STILL_FAIL and before is not None:
        earlier = failure_cause(before)
        return cause, f"another cause before: {earlier}" if earlier != cause else ""
    return cause, first_words(failing[0][1] if failing else after.diagnosis, 500)


def _evidence(before: CaseRecord, after: CaseRecord) -> Finding | None:
    """The finding about the evidence behind two equal outcomes; None if it is the same. A loss comes before a gain."""
    if standing(after) not in (Standing.PASSED, Standing.COMPILED):
        return None
    gained = _gain(before.executor, after.executor) > 0
    return _lost_evidence(before, after) or (_other_executor(Kind.NEW_COVERAGE, before, after) if gained else None)


def _lost_evidence(before: CaseRecord, after: CaseRecord) -> Finding | None:
    """Returns the finding that a part of the case is no longer judged or measured; None if nothing is missing."""
    if _gain(before.executor, after.executor) < 0:
        return _other_executor(Kind.LOST_COVERAGE, before, after)
    lost_checks = _lost_checks(before, after) if before.checks != after.checks else None
    return lost_checks or _lost_figures(before, after)


def _lost_checks(before: CaseRecord, after: CaseRecord) -> Finding | None:
    """Returns the checks that judged the case in the baseline and do not in the candidate, or do so for fewer
    configs."""
    had, has = _judging(before), _judging(after)
    for text, _ in before.failing:
        check = Check.parse(text)
        is_code = check.kind is CheckKind.CODEGEN
        fault = is_code and check.name != _JUDGED_IS_LAUNCHED and not is_order_check(text)
        if fault or check.kind in _BY_FILL_IF_FAILING:
            had.pop(check.name, None)
        elif check.kind is CheckKind.EXECUTED:
            had[check.name] = 1  # there is one verdict for each difference, and one where nothing differs
    lost = sorted(had.keys() - has.keys())
    if lost:
        cause = f"no longer checked: {', '.join(lost[:3])}" + (" and more" if len(lost) > 3 else "")
        return finding(Kind.LOST_COVERAGE, after, cause, "checked", "not checked", detail=", ".join(lost))
    fewer = sorted(name for name in had if has[name] < had[name])
    if fewer:
        counts = f"{fewer[0]}: {had[fewer[0]]}", f"{fewer[0]}: {has[fewer[0]]}"
        return finding(Kind.LOST_COVERAGE, after, "judged fewer times", *counts, detail=", ".join(fewer))
    return None


def _lost_figures(before: CaseRecord, after: CaseRecord) -> Finding | None:
    """The figures of the code or time that the baseline recorded and the candidate did not."""

    def lost(cause: str, was: str, now: str) -> Finding:
        return finding(Kind.LOST_COVERAGE, after, cause, was, now)

    was, now = before.figures, after.figures
    if was.resources is not None and now.resources is None:
        return lost("no longer compiled", "compiled", "not compiled")
    if was.resources and was.resources.registers and now.resources and not now.resources.registers:
        return lost("registers and spills are no longer read", "read", "not read")
    if was.code and not now.code:
        return lost("the features and instructions of the code are no longer recorded", "recorded", "not recorded")
    if was.samples and not now.samples:
        refused = now.run.refused if now.run else ""
        why = "refused: " + normalised(refused) if refused else "not timed"
        return lost(f"no longer timed: {why}", "timed", why)
    if len(was.samples) >= FEWEST_SAMPLES > len(now.samples):
        counts = f"{len(was.samples)} measurements", f"{len(now.samples)} measurements"
        return lost("measured too few times to tell", *counts)
    return None


def _gain(before: str | None, after: str | None) -> int:
    """Returns the number of levels by which an executor shows more than the one before; 0 if either is not known."""
    if before == after or not {before, after} <= {*_EXECUTORS}:
        return 0
    return _EXECUTORS.index(after) - _EXECUTORS.index(before)


def _other_executor(kind: Kind, before: CaseRecord, after: CaseRecord) -> Finding:
    was, now = before.executor or "not", after.executor or "not"
    return finding(kind, after, f"run by: {was} before, {now} now", was, now)


def _judging(record: CaseRecord) -> Counter[str]:
    """Counts how often each check that judges the case was made: once for each config, if it names any."""
    checks = map(Check.parse, record.checks)
    return Counter(check.name for check in checks if check.kind in _JUDGING)


def _shown(record: CaseRecord | None) -> str:
    if record is None:
        return "not recorded"
    return record.status.value + (f": {record.reason_name}" if record.reason else "")
