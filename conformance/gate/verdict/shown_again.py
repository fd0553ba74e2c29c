"""Says whether another run shows a finding, too: that of an older release, or one more of the baseline.

A failure is looked for in the record of the other run. A difference of the code or of the time exists only between two
runs. So the rules that made the finding compare the candidate with the other run, which shows what both have in common.
A record that proves less than the finding needs shows nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum

from conformance.gate.changes.occupancy import occupancy
from conformance.gate.changes.status_changes import Standing, is_order_check, never_compiled, standing, status_finding
from conformance.gate.changes.time_changes import comparable, on_other_device
from conformance.gate.runs.failure_causes import failure_cause
from conformance.gate.verdict.compare import case_findings
from conformance.gate.verdict.known_findings import stable_cause
from conformance.proof_level import ProofLevel, is_ttgir_check, level_by
from conformance.records import CaseRecord, Check, CheckKind, ExecutorName, Status, Verdict
from conformance.user_files.findings import Finding, Kind, Severity
from conformance.user_files.thresholds import Thresholds

#: Kinds whose findings are made of counts of instructions that synchronise.
_OF_ORDER = (Kind.WAIT_MOVED, Kind.LDS_ACROSS_BARRIER, Kind.ORDER_LOST, Kind.ACCUMULATOR_MOVED)
#: Kinds of which one case has one finding at most, whatever is named as the cause.
_ONE_A_CASE = (Kind.MORE_SPILLS, Kind.LESS_OCCUPANCY, Kind.SLOWER, Kind.LIMIT_CROSSED)
#: Kinds of regressions that no record shows by itself. The record of the case shows the others.
_BETWEEN_TWO = (Kind.FEATURE_LOST, *_OF_ORDER, *_ONE_A_CASE)
_OF_CODE = (CheckKind.REQUIRES, CheckKind.FORBIDS, CheckKind.CODEGEN, CheckKind.RESOURCES, CheckKind.SPILLS)
_EXECUTORS = (None, *(name.value for name in ExecutorName))
#: How the causes of lost coverage begin whose details name checks, and that of another executor.
_LOST_CHECKS = ("no longer checked: ", "judged fewer times")
_OTHER_EXECUTOR = "run by: "


class Shows(Enum):
    """Says whether a run shows a finding."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


@dataclass(frozen=True)
class Sight:
    """Says whether a run shows a finding, and for :attr:`Shows.UNKNOWN` why that is not known."""

    shows: Shows
    why: str = ""


_YES, _NO = Sight(Shows.YES), Sight(Shows.NO)


def sight(
    one: Finding,
    other: CaseRecord | None,
    candidate: CaseRecord | None,
    thresholds: Thresholds,
    *,
    same_device: bool,
) -> Sight:
    """Returns the evidence of whether the record ``other`` of another run shows the finding ``one``. ``candidate`` is
    the record that the finding was made of. ``thresholds`` are those of its kernel; ``same_device``: both runs had the
    same device."""
    if one.kind is Kind.LOST_COVERAGE:
        return _lost(one, other, candidate)
    if other is None or candidate is None:
        return _unknown("the case is not in its run")
    if one.kind not in _BETWEEN_TWO:
        return _failure(one, other, candidate)
    if one.kind in _OF_ORDER and one.newly_fails and any(is_order_check(check) for check, _ in candidate.failing):
        verdicts = (Verdict(v.check, v.passed or not is_order_check(v.check), v.text) for v in candidate.verdicts)
        return _failure(one, other, replace(candidate, verdicts=tuple(verdicts)))
    if why := _not_measured(one.kind, other, candidate, same_device) or _no_order(other, candidate.failing):
        return _unknown(why)
    alike = [
        each
        for each in case_findings(other, candidate, thresholds, same_device=same_device)
        if each.kind is one.kind and (one.kind in _ONE_A_CASE or each.cause == one.cause)
    ]
    return _NO if any(each.severity is Severity.REGRESSION for each in alike) else _YES


def _unknown(why: str) -> Sight:
    return Sight(Shows.UNKNOWN, why)


def _status(record: CaseRecord) -> str:
    return record.status.value + (f": {record.reason_name}" if record.reason else "")


def _lost(one: Finding, other: CaseRecord | None, candidate: CaseRecord | None) -> Sight:
    """Returns the evidence of whether the other run lacks what the candidate lost. The other run may judge more than
    the candidate in another respect. Without the check ``memory`` it shows that this was lost, whether or not it has
    the check ``grid``."""
    if other is None:
        return _unknown("the case is not in its run")
    lost = _lost_between(other, candidate)
    if lost is None:
        return _YES
    if candidate is None:
        return _NO
    if one.cause.startswith(_LOST_CHECKS):
        return _lost_checks(one, other, candidate)
    if lost.cause == one.cause:
        return _NO
    if one.cause.startswith(_OTHER_EXECUTOR):
        if not lost.cause.startswith(_OTHER_EXECUTOR):
            return _YES
        was = one.before if one.before in _EXECUTORS else None
        enough = _EXECUTORS.index(other.executor) >= _EXECUTORS.index(was)
        return _NO if enough else _unknown(f"it was run by: {other.executor}")
    passed = tuple(Verdict(check, True) for check in candidate.checks)
    lost = _lost_between(replace(other, executor=candidate.executor, verdicts=passed), candidate)
    if lost is None:
        return _YES
    return _NO if lost.cause == one.cause else _unknown(f"the candidate lost something else since: {lost.cause}")


def _lost_between(other: CaseRecord, candidate: CaseRecord | None) -> Finding | None:
    """Returns the finding that the candidate lost something that the other run judged or measured; None if it
    did not."""
    became = status_finding(other, candidate, lambda record: "")
    return became if became is not None and became.kind is Kind.LOST_COVERAGE else None


def _lost_checks(one: Finding, other: CaseRecord, candidate: CaseRecord) -> Sight:
    """Returns the evidence of whether the other run made the checks that ``one`` names no more often than the
    candidate."""
    names = one.detail.rpartition("; ")[2].split(", ")  # the number of runs that show it may come first
    more_often = [name for name in names if _times_made(name, other) > _times_made(name, candidate)]
    if len(more_often) == len(names):
        return _NO
    return _unknown(f"only a part was judged there: {', '.join(more_often[:3])}") if more_often else _YES


def _times_made(name: str, record: CaseRecord) -> int:
    """Returns the number of times that the check was made. A run of the TTGIR that fails has other names than one that
    passes."""
    ttgir = is_ttgir_check(name)
    return sum(is_ttgir_check(check) if ttgir else Check.parse(check).name == name for check in record.checks)


def _failure(one: Finding, other: CaseRecord, candidate: CaseRecord) -> Sight:
    own, named = _causes(candidate), stable_cause(one.cause)
    causes = {named} if named in own else set(own)  # that of an expected failure names its entry alone
    if standing(other) is Standing.ABSENT:
        return _unknown(_status(other))
    if standing(other) in (Standing.PASSED, Standing.COMPILED):
        why = _proves_less(other, candidate, [own[cause] for cause in causes])
        why = why or _no_order(other, candidate.failing)
        return _unknown(why) if why else _NO
    accepted = other.status is candidate.status is Status.EXPECTED_FAIL
    as_expected = accepted and other.reason_name == candidate.reason_name
    if as_expected or causes & _causes(other).keys():
        return _YES
    return _unknown(f"it fails in another way: {failure_cause(other)}")


def _causes(record: CaseRecord) -> dict[str, str]:
    """Returns the causes by which ``record`` failed, each with the check that failed, "" where none did."""
    causes = {stable_cause(failure_cause(record, (pair,))): pair[0] for pair in record.failing}
    return causes or {stable_cause(failure_cause(record)): ""}


def _proves_less(other: CaseRecord, candidate: CaseRecord, failing: list[str]) -> str:
    """Returns the reason why the record ``other``, of a case that did not fail, does not show that the ``failing``
    checks would pass; "" if it does."""
    level = level_by(other.executor, other.checks)
    of_code = failing and all(check and Check.parse(check).kind in _OF_CODE for check in failing)
    if of_code or never_compiled(candidate):
        compiled = level >= ProofLevel.COMPILED or other.figures.resources is not None
        return "" if compiled else f"it was {level.words}"
    needed = level_by(candidate.executor, candidate.checks)
    ran = _EXECUTORS.index(candidate.executor) if candidate.executor in _EXECUTORS else 0
    has_run = _EXECUTORS.index(other.executor) if other.executor in _EXECUTORS else 0
    if level < needed or (has_run < ran and candidate.status is not Status.COMPILE_ERROR):
        return f"it was {level.words} there, and {needed.words} with the candidate"
    return ""


def _no_order(other: CaseRecord, failing: Iterable[tuple[str, str]]) -> str:
    """Returns the reason why the record ``other`` does not show that the ``failing`` checks of the order would pass.
    Such a check is recorded only where the order could be followed. "" if none of them fails, or all were made."""
    missing = [check for check, _ in failing if is_order_check(check) and check not in other.checks]
    return f"{missing[0]} was not judged there" if missing else ""


def _not_measured(kind: Kind, other: CaseRecord, candidate: CaseRecord, same_device: bool) -> str:
    """Returns the reason why the figures of the two records cannot be compared for a finding of ``kind``; "" if they
    can."""
    if kind is Kind.SLOWER:
        timed = same_device and comparable(other, candidate) and not on_other_device(other, candidate)
        return "" if timed else f"it was not timed on the same device ({_status(other)})"
    was, now = other.figures.resources, candidate.figures.resources
    had, has = other.figures.code, candidate.figures.code
    if was is None or now is None:
        return f"its code was not recorded ({_status(other)})"
    if kind is Kind.LIMIT_CROSSED:
        return ""
    if kind is Kind.MORE_SPILLS:
        read = bool(was.registers and now.registers) and was.spill_unit == now.spill_unit
    elif kind is Kind.LESS_OCCUPANCY:
        read = occupancy(other.target, was) is not None
    elif kind is Kind.FEATURE_LOST:
        read = had is not None and has is not None and had.instructions_of == has.instructions_of
    else:
        read = had is not None and had.sync is not None
    return "" if read else "what the finding is about was not read from its code"
