"""The file of expected failures: its rules, which cases an entry concerns, and what it excuses."""

from __future__ import annotations

from datetime import date

import pytest

from conformance.records import CaseRecord, Status, Verdict
from conformance.user_files.expected_failures import ExpectedFailure, ExpectedFailures, parsed, read_expected_failures
from conformance.user_files.toml_entries import EntryError
from tests.gate.sample_entries import LINK, entry

BROKEN = {
    "unknown top key": ("[defaults]\n" + entry(), "unknown key defaults"),
    "missing key": (entry(seen=None, owner=None), "'known': missing key `seen`"),
    "missing id": (entry(id=None), "expected failure 1: missing key `id`"),
    "id with spaces": (entry(id='"a b"'), "text without spaces is required"),
    "empty cases": (entry(cases='""'), "a pattern of case ids is required"),
    "date as text": (entry(expires='"2027-06-30"'), "a date without quotes"),
    "date with time": (entry(expires="2027-06-30T00:00:00"), "a date without quotes"),
    "bad specifier": (entry(stack='{ torch = "2.13" }'), "stack.torch = '2.13': a version specifier"),
    "no specifier": (entry(stack="{}"), "one version specifier or more"),
    "specifier of no text": (entry(stack="{ torch = 2 }"), "stack = {'torch': 2}: a table of one version specifier"),
    "unknown component": (entry(stack='{ pytorch = ">=2" }'), "unknown component; the components are torch"),
    "link": (entry(upstream='"http://example.org"'), "an https link is required"),
    "empty seen": (entry(seen='" "'), "text that the diagnosis contains"),
    "empty owner": (entry(owner="3"), "owner = 3: text is required"),
    "targets": (entry(targets='"sm_90"'), "a list of patterns"),
    "status": (entry(status='"expected-fail"'), "one of fail, crash, timeout, oom"),
    "intermittent": (entry(intermittent='"yes"'), "true or false is required"),
    "duplicate": (entry() + entry(), "'known' is twice"),
    "duplicate of a built-in": (entry(id='"inductor-addmm-tma-store-range-symbol"'), "expected_failures.toml too"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_file_is_an_error_that_says_what_is_wrong(tmp_path, fault):
    text, message = BROKEN[fault]
    file = tmp_path / "known.toml"
    file.write_text(text)
    with pytest.raises(EntryError) as error:
        read_expected_failures([file])
    assert str(file) in str(error.value)
    assert message in str(error.value)


def known_failure(stack: dict[str, str], expires: date) -> ExpectedFailure:
    return ExpectedFailure(id="known", cases="*", stack=stack, upstream=LINK, seen="x", owner="me", expires=expires)


RANGE = {"torch": ">=2.13,<2.14"}
NIGHTLY = {"torch": ">=2.13.dev0", "device": "NVIDIA H?00*"}
WITHOUT_DEVICE = {"torch": ">=2.13", "device": "none"}


@pytest.mark.parametrize(
    ("stack", "torch", "device", "held"),
    [
        (RANGE, "2.13.0", None, True),
        (RANGE, "2.13.0+cpu", None, True),
        (RANGE, "2.13.1a0+git1234567", None, True),
        (RANGE, "2.13.0rc2", None, False),
        (RANGE, "2.14.0.dev20261001+cu130", None, False),
        (RANGE, "2.14.0", None, False),
        (RANGE, "2.12.1", None, False),
        (RANGE, "not a version", None, False),
        (RANGE, None, None, False),
        (NIGHTLY, "2.13.0.dev20260101", "NVIDIA H200", True),
        (NIGHTLY, "2.13.0.dev20260101", None, False),
        (NIGHTLY, "2.12", "NVIDIA H200", False),
        (WITHOUT_DEVICE, "2.13.0", None, True),
        (WITHOUT_DEVICE, "2.13.0", "NVIDIA H200", False),
    ],
)
def test_an_entry_concerns_the_stacks_in_all_of_its_ranges(stack, torch, device, held):
    record = CaseRecord("a", "s", Status.FAIL, stack={"torch": torch, "device": device})
    assert known_failure(stack, date(2999, 1, 1)).concerns(record) is held


def test_an_entry_holds_on_its_last_day(monkeypatch):
    class Clock:
        @staticmethod
        def now(zone):
            return Clock

        @staticmethod
        def date():
            return Clock.today

    monkeypatch.setattr("conformance.user_files.expected_failures.datetime", Clock)
    failure = known_failure({}, date(2027, 6, 30))
    Clock.today = date(2027, 6, 30)
    assert not failure.expired()
    Clock.today = date(2027, 7, 1)
    assert failure.expired()


@pytest.mark.parametrize(
    ("checks", "failing", "others"),
    [
        (None, ("numerics/hot",), None),
        (None, ("numerics/hot", "numerics/randn"), "numerics/randn"),
        ("['numerics/*']", ("numerics/hot", "numerics/randn@64x64x64-s2-w4"), None),
        ("['numerics/*']", ("numerics/hot", "memory"), "memory"),
        ("['numerics/*']", ("numerics/hot", "codegen/requires/TMA_STORE"), "codegen/requires/TMA_STORE"),
    ],
)
def test_an_entry_excuses_no_other_check(checks, failing, others):
    (failure,) = parsed(entry(seen='"numerics/hot"', checks=checks), "f")
    verdicts = (Verdict("grid", True, "3"), *(Verdict(check, False, "wrong") for check in failing))
    record = CaseRecord("test_bad.py::test_x", "bad", Status.FAIL, stack={"python": "3.11"}, verdicts=verdicts)
    outcome = ExpectedFailures((failure,)).failure(record, Status.FAIL, "numerics/hot: wrong")
    assert outcome.status is (Status.FAIL if others else Status.EXPECTED_FAIL)
    assert (f"does not excuse that {others} failed" in outcome.diagnosis) is bool(others)


def test_two_entries_may_concern_one_case():
    text = entry(seen='"first"') + entry(id='"second"', seen='"2nd"')
    both = ExpectedFailures(tuple(parsed(text, "f")))
    record = CaseRecord("test_bad.py::test_x", "bad", Status.FAIL, stack={"python": "3.11"})
    assert both.failure(record, Status.FAIL, "a 2nd fault").reason.subject == "second"
    outcome = both.failure(record, Status.FAIL, "a third fault")
    assert "'first'" in outcome.diagnosis
    assert "'2nd'" in outcome.diagnosis


def test_the_built_in_entries_are_valid_and_hold_where_they_should():
    failures = read_expected_failures()
    record = CaseRecord(
        "test_inductor_gemm.py::test_addmm_persistent_tma[sm_90-store=True]",
        "inductor_gemm",
        Status.FAIL,
        stack={"torch": "2.13.0+cpu"},
    )
    outcome = failures.failure(record, Status.FAIL, "InductorError: Unregistered range symbol xindex")
    assert outcome.status is Status.EXPECTED_FAIL
    for other in (
        CaseRecord(record.case.replace("True", "False"), record.suite, Status.FAIL, stack=record.stack),
        CaseRecord(record.case, record.suite, Status.FAIL, stack={"torch": "2.14.0"}),
    ):
        assert failures.failure(other, Status.FAIL, "Unregistered range symbol").status is Status.FAIL


def test_a_measured_fusion_may_fail_on_a_device_with_torch_2_11():
    failures = read_expected_failures()
    stack = {"torch": "2.11.0+cu130", "device": "NVIDIA H200"}
    case = "test_inductor_prologues.py::test_pending_fusion_pro_and_epi[measured={}-sm_90]"
    message = (
        "InductorError <- TypeError: InductorError: TypeError: launcher() got multiple values for argument 'stream'"
    )
    for measured, status in ((True, Status.EXPECTED_FAIL), (False, Status.COMPILE_ERROR)):
        record = CaseRecord(case.format(measured), "inductor_prologues", Status.PASS, stack=stack)
        assert failures.failure(record, Status.COMPILE_ERROR, message).status is status
        assert failures.success(record) is None


@pytest.mark.parametrize(
    ("checks", "excused"), [(["codegen/order/fence"], True), (["numerics/exact", "codegen/x"], False)]
)
def test_a_fault_of_the_compiler_excuses_code_and_no_numbers(checks: list[str], excused: bool) -> None:
    entry_of_all = ExpectedFailure(
        id="known", cases="*", stack={"torch": ">=2"}, upstream=LINK, seen="x", owner="me", expires=date(2999, 1, 1),
        checks=("numerics/*", "codegen/*"),
    )  # fmt: skip
    verdicts = tuple(Verdict(check, False, "x") for check in checks)
    record = CaseRecord("a", "s", Status.FAIL, stack={"torch": "2.13"}, verdicts=verdicts, diagnosis="x")
    expected = ExpectedFailures((entry_of_all,))
    assert expected.applied(record).status is Status.EXPECTED_FAIL
    assert expected.applied_to_code(record).status is (Status.EXPECTED_FAIL if excused else Status.FAIL)
