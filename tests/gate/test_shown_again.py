"""Another run shows a finding by its record, or by the rules that made the finding; or it is unknown."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
from made_records import Record, by, changed, compared, failing, observing, record, then, timed, without, write_run

from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.verdict.shown_again import Shows, sight
from conformance.user_files.findings import Finding, Kind
from conformance.user_files.thresholds import DEFAULT

GOOD = record()
WRONG = failing("numerics/transparent", "12 of 95040 elements are wrong")
OTHER = failing("memory", "guard bytes were written")


def altered(*changes) -> Record:
    one = copy.deepcopy(GOOD)
    for change in changes:
        one = changed([one], change)[0]
    return one


def ended(status: str, **fields):
    def change(one: Record) -> None:
        one.update(status=status, verdicts=[], diagnosis="", executor=None, **fields)
        one["observed"] = {}

    return change


def unobserved(*parts: str):
    return lambda one: [one["observed"].pop(part) for part in parts]


def spills(count: int):
    """So many spills in code that was not timed: a time would decide whether they matter."""

    def change(one: Record) -> None:
        one["observed"]["resources"]["spills"] = count
        del one["observed"]["run"]

    return change


SPILLS = spills(512)
NO_WGMMA = observing("code", features=["TMA_LOAD", "TMA_STORE"])
UNFENCED = observing("code", sync={"barrier": 4, "unfenced products": 2})
SYNC = observing("code", sync={"barrier": 4})
REFUSED = ended("not-applicable", reason={"code": "capability", "subject": "tma", "detail": "it has none"})
NO_DEVICE = {"code": "no-device", "subject": "sm_90", "detail": "there is none"}
NOT_RUN = ended("not-run", reason=NO_DEVICE)


def compiled(one: Record) -> None:
    """Compiled, and not run for want of a device."""
    observed = one["observed"]
    NOT_RUN(one)
    one["observed"] = {"resources": observed["resources"]}


def expected(one: Record) -> None:
    WRONG(one)
    one["status"] = "expected-fail"
    one["reason"] = {"code": "known-defect", "subject": "a-defect", "detail": ""}


#: The candidate's record and that of another run; the kind, and whether the other run shows it.
CASES = [
    # a failure that the record of a run says
    (WRONG, None, Kind.NEW_FAIL, Shows.NO, ""),
    (WRONG, WRONG, Kind.NEW_FAIL, Shows.YES, ""),
    (WRONG, failing("numerics/transparent", "7 of 11 elements are wrong"), Kind.NEW_FAIL, Shows.YES, ""),
    (WRONG, OTHER, Kind.NEW_FAIL, Shows.UNKNOWN, "it fails in another way: memory: guard bytes were written"),
    (WRONG, REFUSED, Kind.NEW_FAIL, Shows.UNKNOWN, "not-applicable"),
    (WRONG, NOT_RUN, Kind.NEW_FAIL, Shows.UNKNOWN, "it was neither compiled nor run there, and run on a device with"),
    (WRONG, by("interpreter"), Kind.NEW_FAIL, Shows.UNKNOWN, "it was interpreted there, and run on a device with"),
    (WRONG, expected, Kind.NEW_FAIL, Shows.YES, ""),
    (ended("crash"), None, Kind.NEW_CRASH, Shows.NO, ""),
    (ended("crash"), ended("crash"), Kind.NEW_CRASH, Shows.YES, ""),
    (ended("crash"), ended("timeout"), Kind.NEW_CRASH, Shows.UNKNOWN, "it fails in another way: timeout"),
    (ended("compile-error"), None, Kind.NEW_FAIL, Shows.NO, ""),
    (ended("compile-error"), compiled, Kind.NEW_FAIL, Shows.NO, ""),
    (ended("compile-error"), NOT_RUN, Kind.NEW_FAIL, Shows.UNKNOWN, "it was neither compiled nor run"),
    (ended("crash"), NOT_RUN, Kind.NEW_CRASH, Shows.UNKNOWN, "it was neither compiled nor run"),
    # a check of the code needs no run
    (failing("codegen/requires/WGMMA", "it is absent"), by(None), None, Shows.NO, ""),
    # coverage
    (REFUSED, None, Kind.LOST_COVERAGE, Shows.NO, ""),
    (REFUSED, REFUSED, Kind.LOST_COVERAGE, Shows.YES, ""),
    (by("interpreter"), None, Kind.LOST_COVERAGE, Shows.NO, ""),
    (by("interpreter"), by("interpreter"), Kind.LOST_COVERAGE, Shows.YES, ""),
    (by("interpreter"), by("ttgir"), Kind.LOST_COVERAGE, Shows.UNKNOWN, "it was run by: ttgir"),
    (by("ttgir"), by("interpreter"), Kind.LOST_COVERAGE, Shows.YES, ""),
    (by("interpreter"), then(by("interpreter"), without("grid")), Kind.LOST_COVERAGE, Shows.YES, ""),
    (without("memory"), None, Kind.LOST_COVERAGE, Shows.NO, ""),
    (without("memory"), without("memory"), Kind.LOST_COVERAGE, Shows.YES, ""),
    (without("memory"), without("grid"), Kind.LOST_COVERAGE, Shows.NO, ""),
    (without("memory", "grid"), without("memory"), Kind.LOST_COVERAGE, Shows.UNKNOWN, "only a part was judged"),
    (unobserved("run"), None, Kind.LOST_COVERAGE, Shows.NO, ""),
    (unobserved("run"), unobserved("run"), Kind.LOST_COVERAGE, Shows.YES, ""),
    # a difference that exists between two runs
    (SPILLS, None, Kind.MORE_SPILLS, Shows.NO, ""),
    (SPILLS, SPILLS, Kind.MORE_SPILLS, Shows.YES, ""),
    (SPILLS, spills(480), Kind.MORE_SPILLS, Shows.YES, ""),
    (SPILLS, unobserved("resources"), Kind.MORE_SPILLS, Shows.UNKNOWN, "its code was not recorded (pass)"),
    (SPILLS, observing("resources", registers=0), Kind.MORE_SPILLS, Shows.UNKNOWN, "was not read"),
    (SPILLS, REFUSED, Kind.MORE_SPILLS, Shows.UNKNOWN, "its code was not recorded (not-applicable"),
    (NO_WGMMA, None, Kind.FEATURE_LOST, Shows.NO, ""),
    (NO_WGMMA, NO_WGMMA, Kind.FEATURE_LOST, Shows.YES, ""),
    (NO_WGMMA, unobserved("code"), Kind.FEATURE_LOST, Shows.UNKNOWN, "was not read"),
    (timed(2), None, Kind.SLOWER, Shows.NO, ""),
    (timed(2), timed(2), Kind.SLOWER, Shows.YES, ""),
    (timed(2), unobserved("run"), Kind.SLOWER, Shows.UNKNOWN, "it was not timed on the same device"),
]


def finding_of(tmp_path, before: Record, after: Record, kind: Kind | None) -> Finding:
    comparison = compared(tmp_path, [before], [after])
    return next(one for group in comparison.groups for one in group.findings if kind in (None, one.kind))


@pytest.mark.parametrize(("candidate", "other", "kind", "shows", "why"), CASES)
def test_what_another_run_shows(tmp_path, candidate, other, kind, shows, why):
    after, before = altered(candidate), altered(*([other] if other else []))
    one = finding_of(tmp_path, GOOD, after, kind)
    assert_sight(tmp_path, one, before, after, shows, why)


def assert_sight(tmp_path, one, before, after, shows, why):
    records = [
        read_compared_run(write_run(tmp_path / str(n), [side])).records for n, side in enumerate((before, after))
    ]
    seen = sight(one, *(side.get(one.case) for side in records), DEFAULT, same_device=True)
    assert (seen.shows, why in seen.why, bool(seen.why)) == (shows, True, shows is Shows.UNKNOWN), seen


def lost_memory(tmp_path):
    """The finding about a case that is judged without the check ``memory`` and never had ``grid``."""
    before, after = altered(without("grid")), altered(without("grid", "memory"))
    return finding_of(tmp_path, before, after, Kind.LOST_COVERAGE), after


def test_a_lost_check_is_looked_for_whatever_else_the_other_run_judged(tmp_path):
    one, after = lost_memory(tmp_path)
    assert one.detail == "memory"
    assert_sight(tmp_path, one, altered(without("memory")), after, Shows.YES, "")
    assert_sight(tmp_path, one, GOOD, after, Shows.NO, "")
    counted = replace(one, detail=f"seen in 1 of 2 baseline runs; {one.detail}")
    assert_sight(tmp_path, counted, GOOD, after, Shows.NO, "")


def test_lost_figures_are_looked_for_whatever_else_the_other_run_judged(tmp_path):
    before, after = altered(without("grid")), altered(without("grid"), unobserved("run"))
    one = finding_of(tmp_path, before, after, Kind.LOST_COVERAGE)
    assert one.cause.startswith("no longer timed")
    assert_sight(tmp_path, one, altered(unobserved("run")), after, Shows.YES, "")
    assert_sight(tmp_path, one, GOOD, after, Shows.NO, "")


def test_a_lost_case_that_the_other_run_never_had_is_unknown(tmp_path):
    records = read_compared_run(write_run(tmp_path, [GOOD])).records
    one = Finding(Kind.LOST_COVERAGE, GOOD["case"], "mm", "sm_90", "not recorded", "pass", "not recorded")
    seen = sight(one, None, None, DEFAULT, same_device=True)
    assert (seen.shows, seen.why) == (Shows.UNKNOWN, "the case is not in its run")
    assert sight(one, records[GOOD["case"]], None, DEFAULT, same_device=True).shows is Shows.NO


def test_counts_that_no_older_record_has_are_unknown(tmp_path):
    """Without the counts of a record no fault of the order is found: that is no sign that it has the same."""
    before, after = altered(SYNC), altered(UNFENCED)
    one = Finding(Kind.ORDER_LOST, GOOD["case"], "mm", "sm_90", "unfenced products on sm_90", "none", "2")
    assert_sight(tmp_path, one, GOOD, after, Shows.UNKNOWN, "was not read from its code")
    assert_sight(tmp_path, one, after, after, Shows.YES, "")
    assert before["observed"]["code"]["sync"] == {"barrier": 4}


def test_a_failure_of_both_sides_is_looked_for_in_the_records(tmp_path):
    after = altered(WRONG)
    one = finding_of(tmp_path, altered(WRONG), after, Kind.STILL_FAIL)
    assert_sight(tmp_path, one, GOOD, after, Shows.NO, "")
    assert_sight(tmp_path, one, altered(WRONG), after, Shows.YES, "")


def test_an_expected_failure_is_known_by_how_it_fails(tmp_path):
    """Its entry may not cover the older release, so the record fails there without it."""
    after = altered(expected)
    one = next(one for group in compared(tmp_path, [GOOD], [after]).groups for one in group.findings)
    assert_sight(tmp_path, one, altered(WRONG), after, Shows.YES, "")
    assert_sight(tmp_path, one, GOOD, after, Shows.NO, "")
    assert_sight(tmp_path, one, altered(OTHER), after, Shows.UNKNOWN, "fails in another way")


def test_a_case_that_is_not_there_is_unknown(tmp_path):
    one = finding_of(tmp_path, GOOD, altered(WRONG), Kind.NEW_FAIL)
    assert sight(one, None, None, DEFAULT, same_device=True).shows is Shows.UNKNOWN


FENCE = "codegen/order/fence"


def unfenced(status: str):
    def change(one: Record) -> None:
        failing(FENCE, "a product at line 12 has no fence")(one)
        one["status"] = status
        one["reason"] = {"code": "known-defect", "subject": "no-fence", "detail": ""}

    return change


def fenced(one: Record) -> None:
    one["verdicts"].append({"check": FENCE, "passed": True, "text": "", "details": {}})


@pytest.mark.parametrize("status", ["fail", "expected-fail"])
def test_a_fault_of_the_order_is_new_only_where_the_order_was_judged(tmp_path, status):
    after = altered(unfenced(status))
    one = next(one for group in compared(tmp_path, [altered(fenced)], [after]).groups for one in group.findings)
    assert_sight(tmp_path, one, altered(fenced), after, Shows.NO, "")
    assert_sight(tmp_path, one, after, after, Shows.YES, "")
    assert_sight(tmp_path, one, GOOD, after, Shows.UNKNOWN, f"{FENCE} was not judged there")


def test_wrong_numbers_of_both_runs_are_no_sign_of_the_same_order(tmp_path):
    after = altered(WRONG, failing(FENCE, "a product at line 12 has no fence"))
    found = compared(tmp_path, [altered(fenced)], [after])
    one = next(one for group in found.groups for one in group.findings if one.kind is Kind.ORDER_LOST)
    assert_sight(tmp_path, one, altered(fenced, WRONG), after, Shows.UNKNOWN, "it fails in another way")


def test_a_fault_of_the_order_that_both_sides_have_is_named(tmp_path):
    """It shows itself in no number, so two green runs would hide it; other known defects of both sides are no news."""
    both = altered(unfenced("expected-fail"))
    (group,) = compared(tmp_path / "order", [both], [both]).groups
    assert (group.kind, group.cause) == (Kind.STILL_FAIL, "expected: known-defect (no-fence)")
    one = group.findings[0]
    assert_sight(tmp_path, one, both, both, Shows.YES, "")
    assert_sight(tmp_path, one, altered(fenced), both, Shows.NO, "")
    numbers = altered(expected)
    assert compared(tmp_path / "numbers", [numbers], [numbers]).groups == ()
