"""A comparison after the user's waivers: covered findings stay visible, and a wrong waiver is an objection."""

from __future__ import annotations

from datetime import date

import pytest

from conformance.gate.verdict import apply_waivers, gate_verdict
from conformance.gate.verdict.gate_verdict import with_policy
from conformance.gate.verdict.group_notes import grouped
from conformance.records import CaseRecord, Status
from conformance.user_files import waiver_file
from conformance.user_files.findings import Comparison, Finding, Kind, Side
from tests.gate.sample_entries import waiver

CASES = ("test_a.py::test[mm-sm_80]", "test_a.py::test[mm-sm_90]")
SIDE = Side("run", {"triton": "3.9.0"}, "quick", 0, 2, {"pass": 2})


def after(cases: str, expires: str = "2999-01-01", **fields: object) -> Comparison:
    """The comparison after a waiver of spills in ``cases``; ``fields`` are those of the comparison before."""
    findings = [Finding(Kind.MORE_SPILLS, case, "mm", case[-6:-1], "more spills", "0", "8") for case in CASES]
    findings.append(Finding(Kind.FASTER, CASES[0], "mm", "sm_80", "faster", "2", "1"))
    comparison = Comparison(SIDE, SIDE, grouped(findings), 2, 0, **fields)
    records = [CaseRecord(case, "a", Status.PASS, kernel="mm", stack=SIDE.stack) for case in CASES]
    text = waiver(cases=f'"{cases}"', kind='"MORE_SPILLS"', expires=expires)
    waived = apply_waivers.apply(waiver_file.parsed(text, "waivers.toml"), records, date(2026, 1, 1), comparison)
    verdict = gate_verdict.decide(comparison=comparison, waivers=waived)
    assert verdict.passed == (not waived.uncovered and not waived.problems and not comparison.objections)
    return with_policy(comparison, verdict, waived.uncovered)


def kinds(comparison: Comparison) -> dict[str, list[str]]:
    return {group.kind.value: [one.case for one in group.findings] for group in comparison.groups}


def test_a_waived_regression_stays_visible_and_fails_nothing():
    final = after("test_a.py*")
    assert kinds(final) == {"WAIVED": list(CASES), "FASTER": [CASES[0]]}
    assert final.safe
    assert {one.target for group in final.groups for one in group.findings if one.kind is Kind.WAIVED} == {
        "sm_80",
        "sm_90",
    }


def test_what_no_waiver_covers_is_left():
    final = after("*sm_80]")
    assert kinds(final) == {"MORE_SPILLS": [CASES[1]], "WAIVED": [CASES[0]], "FASTER": [CASES[0]]}
    assert not final.safe


def test_objections_of_the_comparison_itself_stay_after_waivers():
    objections = ("the baseline's run is incomplete: x",)
    final = after("test_a.py*", objections=objections)
    assert kinds(final) == {"WAIVED": list(CASES), "FASTER": [CASES[0]]}
    assert final.objections == objections
    assert not final.safe


@pytest.mark.parametrize(
    ("cases", "expires", "message"), [("test_a.py*", "2025-01-01", "expired"), ("*none*", "2999-01-01", None)]
)
def test_a_waiver_that_does_not_hold_covers_nothing(cases: str, expires: str, message: str | None):
    final = after(cases, expires)
    assert kinds(final)["MORE_SPILLS"] == list(CASES)
    assert [message in objection for objection in final.objections] == ([True] if message else [])
    assert ["has no case here" in warning for warning in final.warnings] == ([] if message else [True])
