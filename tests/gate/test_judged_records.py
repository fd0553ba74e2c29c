"""A verdict on a run needs little of its records, and a million of them are held for it."""

from __future__ import annotations

from conformance.gate.mustpass import mustpass_lists
from conformance.gate.runs.judged_records import judged_records
from conformance.records import CaseRecord, Reason, ReasonCode, Status, Verdict

STACK = {"torch": "2.13.0"}
PASSED = Verdict("memory", True, "untouched", {"runs": 2})
RECORDS = [
    CaseRecord("a", "s", Status.PASS, executor="device", stack={**STACK}, verdicts=(PASSED,), diagnosis="x"),
    CaseRecord("b", "s", Status.PASS, stack={**STACK}, verdicts=(Verdict(PASSED.check, True, "other"),)),
    CaseRecord(
        "c", "s", Status.FAIL, verdicts=(PASSED, Verdict("numerics/hot", False, "1 wrong")), diagnosis="1 wrong"
    ),
    CaseRecord(
        "d", "s", Status.NOT_RUN, Reason(ReasonCode.NO_DEVICE, "gpu", "none"), target="sm_90", problem={"id": 1}
    ),
]


def test_what_is_judged_is_kept():
    judged = judged_records(iter(RECORDS))
    assert [mustpass_lists.outcome(record) for record in judged] == [*map(mustpass_lists.outcome, RECORDS)]
    for record, whole in zip(judged, RECORDS, strict=True):
        for name in ("case", "suite", "status", "reason", "kernel", "target", "executor", "tier", "seed", "stack"):
            assert getattr(record, name) == getattr(whole, name)
        assert [(v.check, v.passed) for v in record.verdicts] == [(v.check, v.passed) for v in whole.verdicts]
    assert (judged[2].diagnosis, judged[2].verdicts[1].text) == ("1 wrong", "1 wrong")


def test_equal_parts_are_held_once():
    first, second, *_ = judged_records(RECORDS)
    assert first.stack is second.stack
    assert first.verdicts is second.verdicts
    assert (first.diagnosis, first.verdicts[0].text) == ("", "")
