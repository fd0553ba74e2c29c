"""The verdict of the gate has every reason, the worst first. Skipping cases improves none of its figures."""

from __future__ import annotations

from dataclasses import replace
from datetime import date

import pytest

from conformance.gate.mustpass import mustpass_check as owed
from conformance.gate.mustpass import mustpass_lists as mustpass
from conformance.gate.mustpass import profiles
from conformance.gate.verdict import apply_waivers
from conformance.gate.verdict.gate_verdict import GateVerdict, Part, decide, lines
from conformance.records import CaseRecord, Reason, ReasonCode, RunInfo, Status, Verdict
from conformance.user_files import waiver_file
from conformance.user_files.findings import Comparison, Finding, Group, Kind, Side
from tests.gate.sample_entries import waiver

STACK = {"torch": "2.13.0", "triton": "3.9.0"}
CASE = "test_a.py::test_x[{}-fp16-sm_90]"
RECORDS = tuple(
    CaseRecord(
        *(CASE.format(kernel), "a", Status.PASS),
        executor="device",
        target="sm_90",
        stack=STACK,
        verdicts=(Verdict("memory", True),),
    )
    for kernel in ("mm", "addmm", "int_mm")
)
RUN = RunInfo("r", "2026-09-01", "quick", 0, ("sm_90",), stack=STACK, selected=3, wall_s=1.0)
LISTS = mustpass.lists_of(RUN, RECORDS)
PROFILES = profiles.parsed(
    {
        "f": '[[profile]]\nid = "baseline"\nabout = "x"\nkernels = ["mm", "addmm"]\n'
        '[[profile]]\nid = "int8"\nabout = "x"\nkernels = ["int_mm"]\n'
        '[[target]]\nid = "sm_90"\nclaims = ["baseline"]\n'
    }
)


def comparison(*findings: tuple[Kind, str], problems: tuple[str, ...] = ()) -> Comparison:
    findings = [Finding(kind, CASE.format(kernel), kernel, "sm_90", "a cause", "", "") for kind, kernel in findings]
    side = Side("new", STACK, "quick", 0, 3, {}, problems)
    groups = tuple(Group(finding.kind, finding.cause, (finding,)) for finding in findings)
    return Comparison(replace(side, name="old", stack={**STACK, "triton": "3.8.0"}, problems=()), side, groups, 3, 0)


def verdict(records=RECORDS, compared: Comparison | None = None, toml: str = "", run_problems=()) -> GateVerdict:
    """The gate's command decides by its inputs."""
    accepted = waiver_file.parsed(toml, "w.toml")
    waived = apply_waivers.apply(accepted, records, date(2026, 9, 1), compared, complete=True)
    by_target = {mustpass_list.target: mustpass_list for mustpass_list in LISTS}
    return decide(
        comparison=compared,
        waivers=waived,
        checked=owed.check(LISTS, RUN, records, waived.excused),
        claims=profiles.claims(PROFILES, by_target, records, waived.excused),
        not_claimed=profiles.not_claimed(PROFILES, by_target, records),
        run_problems=run_problems,
        passing=[record.case for record in records if record.status is Status.PASS],
    )


def but(kernel: str, **fields) -> tuple[CaseRecord, ...]:
    return tuple(replace(record, **fields) if f"[{kernel}-" in record.case else record for record in RECORDS)


def test_a_candidate_like_its_baseline_passes():
    decided = verdict(compared=comparison((Kind.FASTER, "mm"), (Kind.STILL_FAIL, "mm")))
    assert decided.passed
    assert lines(decided) == [
        "gate: passed",
        "sm_90: 3 of 3 owed cases proven, level device (3 pass:device)",
        "claims proven: 1 of 1",
        "claim: sm_90: baseline proven at level device: 2 cases",
        "note: sm_90: int8 is shown and not claimed",
    ]


def test_a_failure_fails_by_each_rule_that_it_breaks_in_order():
    decided = verdict(but("mm", status=Status.FAIL), comparison((Kind.NEW_FAIL, "mm")), run_problems=("torn line",))
    assert [reason.part for reason in decided.reasons] == [Part.RUN, Part.REGRESSION, Part.MUSTPASS, Part.CLAIM]
    assert decided.reasons[1].text == "NEW_FAIL: a cause (1 case)"
    assert f'cases = "{CASE.format("mm")}"' in decided.reasons[1].edit
    text = "\n".join(lines(decided))
    assert "gate: FAILED, 4 reasons" in text
    assert f"mustpass: sm_90: 1 differing\n    {CASE.format('mm')}: pass:device is owed, fail found\n" in text
    assert "sm_90: 2 of 3 owed cases proven" in text
    assert "\n    [[waiver]]\n" in text


def test_a_waived_failure_passes_and_neither_counts_nor_hides():
    toml = waiver(cases=f'"{CASE.format("mm")}"')
    decided = verdict(but("mm", status=Status.FAIL), comparison((Kind.NEW_FAIL, "mm")), toml)
    assert decided.passed
    text = lines(decided)
    assert "sm_90: 2 of 3 owed cases proven, level device (2 pass:device)" in text
    assert "claims excused: 1 of 1" in text
    why = "slow path until the fix (w.toml:1: waiver of NEW_FAIL (https://example.org/7, me))"
    assert f"waived: NEW_FAIL {CASE.format('mm')}: {why}" in text


def test_a_waiver_that_is_not_needed_fails_with_its_edit():
    decided = verdict(toml=waiver(cases=f'"{CASE.format("mm")}"'))
    (reason,) = decided.reasons
    assert reason.part is Part.WAIVER
    assert "pass unexpectedly" in reason.text
    assert "-[[waiver]]" in reason.edit
    assert not decided.passed


REFUSED = {"status": Status.NOT_APPLICABLE, "reason": Reason(ReasonCode.CAPABILITY, "x", "y"), "executor": None}


@pytest.mark.parametrize("records", [RECORDS[1:], but("mm", **REFUSED)], ids=["left-out", "refused"])
def test_skipping_fails_and_never_improves_the_headline(records):
    failing = verdict(but("mm", status=Status.FAIL))
    skipping = verdict(records)
    assert not skipping.passed
    assert {Part.MUSTPASS, Part.CLAIM} == {reason.part for reason in skipping.reasons}
    assert [(headline.proven, headline.owed) for headline in skipping.headlines] == [(2, 3)]
    assert [(headline.proven, headline.owed) for headline in failing.headlines] == [(2, 3)]


def test_a_run_without_a_list_fails():
    decided = decide(checked=owed.check([], RUN, RECORDS))
    assert [reason.part for reason in decided.reasons] == [Part.MUSTPASS]
    assert decided.reasons[0].text.startswith("sm_90: no mustpass list for tier quick, level device")


def test_unusable_lines_of_either_run_fail():
    decided = verdict(compared=comparison(problems=("records.jsonl:3: not a line of JSON",)))
    assert [reason.text for reason in decided.reasons] == ["new: records.jsonl:3: not a line of JSON"]


def test_a_baseline_that_is_not_whole_fails():
    compared = replace(comparison(), objections=("the baseline's run is incomplete: it did not end",))
    assert [reason.text for reason in decide(comparison=compared).reasons] == list(compared.objections)


def test_regressions_fail_without_waivers_and_lists():
    decided = decide(comparison=comparison((Kind.SLOWER, "mm")))
    assert [reason.part for reason in decided.reasons] == [Part.REGRESSION]
    assert decide().passed


def test_claims_that_failed_come_before_those_that_nothing_proves():
    claim = profiles.Claim("sm_90", "a", profiles.State.NOT_PROVEN, None, 1, 0, "x")
    decided = decide(claims=[claim, replace(claim, profile="b", state=profiles.State.FAILED)])
    assert [reason.text for reason in decided.reasons] == ["sm_90: b failed: x", "sm_90: a not proven: x"]


def test_long_reasons_show_their_first_cases():
    claim = profiles.Claim("sm_90", "a", profiles.State.FAILED, None, 9, 0, "x", tuple(map(str, range(9))))
    text = lines(decide(claims=[claim]))
    assert text[2:] == ["claim: sm_90: a failed: x", *(f"    {case}" for case in range(5)), "    and 4 more"]
