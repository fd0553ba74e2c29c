"""A finding about order says what the executor's verdict was, and what running TTGIR cannot show of it."""

from __future__ import annotations

import copy
from typing import Any

import made_records
import pytest
from made_records import BASE, KERNEL, Record, changed

from conformance.gate.changes import sync_changes
from conformance.user_files.findings import Finding

#: What a record may hold of its TTGIR: verdicts, ``observed.ttgir``, the executor; and what is then said of it.
RIGHT = {"check": "executed/ttgir", "passed": True, "text": "right in 12 runs, in 7 orders", "details": {}}
LATE = {"check": "executed/ttgir", "passed": False, "text": "wgmma reads what a copy still writes", "details": {}}
NUMBERS = {"check": "executed/ttgir/numerics/wide-A", "passed": False, "text": "order 'late': 3 wrong", "details": {}}
LAYOUT = {"check": "executed/layouts", "passed": False, "text": "A has other fragments", "details": {}}
FITTING = {"check": "executed/layouts", "passed": True, "text": "every layout fits", "details": {}}
RAN = {"orders": 7, "fills": 4}
FAILING: dict[str, tuple[list[Record], Record | None, str, str]] = {
    "a fault": ([LATE], RAN, "interpreter", "its TTGIR is wrong: wgmma reads what a copy still writes"),
    "numbers": ([NUMBERS], RAN, "interpreter", "its TTGIR is wrong: order 'late': 3 wrong"),
    "a layout, with right runs": ([LAYOUT, RIGHT], RAN, "ttgir", "its TTGIR is wrong: A has other fragments"),
    "the second plan": ([RIGHT, LATE], RAN, "ttgir", "its TTGIR is wrong: wgmma reads what a copy still writes"),
    "wrong on the device, too": ([], {**RAN, "wrong": "a race"}, "device", "its TTGIR is wrong: a race"),
}
OTHERS: dict[str, tuple[list[Record], Record | None, str | None, str]] = {
    "none": ([], None, "device", "its TTGIR was not run"),
    "layouts alone": ([FITTING], None, "ttgir", "its TTGIR was run, and the record lacks the verdict"),
    "unknown": ([], {"unknown": "tt.foo"}, "interpreter", "its TTGIR was not run: tt.foo"),
    "orders of a failure that an old run explained": (
        *([], RAN, "device"),
        "its TTGIR was run, and the record lacks the verdict",
    ),
    "one plan of two": ([RIGHT], RAN, "interpreter", f"its TTGIR is {RIGHT['text']}, and part of it was not run"),
    "an unknown second plan": (
        *([RIGHT], {"unknown": "tt.foo"}, "ttgir"),
        f"its TTGIR is {RIGHT['text']}, and part of it was not run: tt.foo",
    ),
}
PASSING: dict[str, tuple[list[Record], Record | None, str | None, str]] = {
    "right": ([RIGHT], RAN, "ttgir", "its TTGIR is right in 12 runs, in 7 orders"),
    "right beside a device": ([RIGHT], RAN, "device", "its TTGIR is right in 12 runs, in 7 orders"),
    "right, run to explain": ([], {**RAN, "passed": True}, "device", "its TTGIR is right in 7 orders"),
}
#: Each count that may go wrong, and one of each part of the code; with what running TTGIR does not show of it.
UNSEEN = {
    "accumulator round trips": "time",
    "waits behind their barrier": "barriers between the warps of a block",
    "LDS stores open at a barrier": "waits for LDS",
    "LDS loads open at a barrier": "waits for LDS",
    "commits behind a wait without a barrier": "barriers between the warps of a block",
    "products behind copies without a proxy fence": "fences behind cp.async",
    "products without a wait": "what the compiler makes of the waits of TTGIR",
    "barrier": "barriers between the warps of a block",
    "mbarrier wait": "what the compiler makes of the waits of TTGIR",
    "fence": "fences that are added below TTGIR",
    "tcgen05.ld in loops": "time",
}
USUAL = {"barrier": 4, "mbarrier wait": 3, "fence": 2, "tcgen05.ld in loops": 2}


def finding_of(tmp_path: Any, count: str, verdicts: list[Record], ttgir: Record | None, executor: str | None) -> str:
    """Returns the findings about code whose ``count`` is 9 now, in cases with these verdicts on their TTGIR."""

    def plant(one: Record) -> None:
        one["observed"]["code"]["sync"] = {**USUAL, count: 9}
        one["verdicts"] += copy.deepcopy(verdicts)
        one["executor"] = executor
        if ttgir is not None:
            one["observed"]["ttgir"] = ttgir
        wrong = [verdict for verdict in verdicts if not verdict["passed"]]
        if wrong or "wrong" in (ttgir or {}):
            one.update(status="fail", diagnosis="wrong")

    before = copy.deepcopy(BASE[:8])
    for one in before:
        one["observed"]["code"]["sync"] = dict(USUAL)
        del one["observed"]["run"]  # times have a sentence of their own
    comparison = made_records.compared(tmp_path, before, changed(before, plant, **KERNEL))
    findings: list[Finding] = [one for group in comparison.groups for one in group.findings if count in one.cause]
    assert findings, [group.cause for group in comparison.groups]
    assert all("9" in one.after for one in findings)
    (text,) = {one.detail for one in findings}
    return text


@pytest.mark.parametrize("count", UNSEEN)
@pytest.mark.parametrize("record", FAILING)
def test_a_failing_record_is_said_to_be_wrong(tmp_path, count, record):
    verdicts, ttgir, executor, sentence = FAILING[record]
    text = finding_of(tmp_path, count, verdicts, ttgir, executor)
    assert text.endswith(sentence)
    assert "right" not in text


@pytest.mark.parametrize("count", UNSEEN)
@pytest.mark.parametrize("record", OTHERS)
def test_a_record_without_a_whole_verdict_is_not_said_to_be_right(tmp_path, count, record):
    verdicts, ttgir, executor, sentence = OTHERS[record]
    text = finding_of(tmp_path, count, verdicts, ttgir, executor)
    assert sentence in text
    assert ("right" in text) == ("part of it was not run" in text)


@pytest.mark.parametrize("count", UNSEEN)
@pytest.mark.parametrize("record", PASSING)
def test_a_passing_record_says_what_it_does_not_show(tmp_path, count, record):
    verdicts, ttgir, executor, sentence = PASSING[record]
    text = finding_of(tmp_path, count, verdicts, ttgir, executor)
    assert text == f"{sentence}; that does not show {UNSEEN[count]}"


def test_every_kind_of_order_is_planted():
    assert {*sync_changes._FAULTS} <= {*UNSEEN}
