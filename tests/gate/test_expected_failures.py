"""A known defect that is written down excuses its own failure, and nothing else."""

from __future__ import annotations

from datetime import date

import pytest

from conformance.gate.files.expected_failures import (
    ExpectedFailure,
    ExpectedFailureError,
    ExpectedFailures,
    matches,
    parsed,
    read_expected_failures,
)
from conformance.records import CaseRecord, Status, Verdict

pytest_plugins = ["pytester"]

LINK = "https://example.org/42"
KEYS = {
    "id": '"known"',
    "cases": '"test_bad.py::test_*"',
    "stack": '{ python = ">=3" }',
    "upstream": f'"{LINK}"',
    "seen": '"Unregistered range"',
    "owner": '"me"',
    "expires": "2999-12-31",
}


def entry(**changed: str | None) -> str:
    """TOML of an entry that holds here; a key that is None is left out."""
    lines = [f"{key} = {value}" for key, value in {**KEYS, **changed}.items() if value is not None]
    return "\n".join(["[[expected_failure]]", *lines]) + "\n"


def run(project, source: str, toml: str, *arguments: str) -> pytest.RunResult:
    project.suite("bad", source)
    (project.path / "known.toml").write_text(toml)
    return project.run("--expected-failures=known.toml", *arguments)


FAILING = 'def test_bad(recorder): raise KeyError("Unregistered range symbol")\n'
PASSING = 'def test_bad(recorder): recorder.verdict("x", True)\n'


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_the_failure_that_is_known_is_expected(project, arguments):
    result = run(project, FAILING, entry(), *arguments)
    assert result.ret == pytest.ExitCode.OK
    result.assert_outcomes(xfailed=1)
    record = project.records["test_bad"]
    assert (record.status, record.outcome) == (Status.EXPECTED_FAIL, "xfailed")
    assert record.diagnosis == f"expected failure known ({LINK}):\nKeyError: 'Unregistered range symbol'"
    assert (record.reason.code.value, record.reason.subject) == ("known-defect", "known")
    assert LINK in record.reason.detail
    assert "--conformance-expected-failures=known.toml" in record.repro
    result.stdout.fnmatch_lines(
        ["*cases: 1 expected-fail", f"EXPECTED FAILURE known: {LINK}, *", "*test_bad.py::test_bad"]
    )
    assert "## Expected failures" in (project.folder / "summary.md").read_text()


WAYS = {
    "compile-error": 'def test_bad(recorder): raise CompileFailure(Status.COMPILE_ERROR, "Unregistered range")\n',
    "verdict": 'def test_bad(recorder): recorder.verdict("compiles", False, "Unregistered range")\n',
    "setup": """
@pytest.fixture
def broken(): raise RuntimeError("Unregistered range")
def test_bad(broken): pass
""",
    "verdict-told": """
def test_bad(recorder):
    recorder.verdict("compiles", False, "Unregistered range")
    raise ConformanceFailure("compiles: Unregistered range")
""",
}


@pytest.mark.parametrize("way", WAYS)
def test_each_way_to_fail_can_be_expected(project, way):
    assert run(project, WAYS[way], entry()).ret == pytest.ExitCode.OK
    assert project.statuses == {"test_bad": "expected-fail"}


UNEXCUSED = {
    "other-message": (
        'def test_bad(recorder): raise KeyError("another")\n',
        "fail",
        f"KeyError: 'another'\nexpected failure known ({LINK}) does not excuse this: "
        "a message that contains 'Unregistered range' was expected",
    ),
    "oom": (
        'def test_bad(recorder): raise MemoryError("Unregistered range")\n',
        "oom",
        "is for fail or compile-error, not for oom",
    ),
    "compiler-crash": (
        'def test_bad(recorder): raise CompileFailure(Status.CRASH, "Unregistered range")\n',
        "crash",
        "is for fail or compile-error, not for crash",
    ),
    "teardown-after-it": (
        """
@pytest.fixture
def untidy():
    yield
    raise RuntimeError("no teardown")
def test_bad(recorder, untidy): raise KeyError("Unregistered range")
""",
        "fail",
        "RuntimeError: no teardown",
    ),
    "verdict-beside-it": (
        """
def test_bad(recorder):
    recorder.verdict("memory", False, "guard overwritten")
    raise KeyError("Unregistered range")
""",
        "fail",
        "does not excuse that memory failed",
    ),
    "verdict-beside-it-in-teardown": (
        """
@pytest.fixture
def untidy():
    yield
    raise KeyError("Unregistered range")
def test_bad(recorder, untidy): recorder.verdict("memory", False, "guard overwritten")
""",
        "fail",
        "does not excuse that memory failed",
    ),
    "verdict-after-it": (
        """
@pytest.fixture
def late(recorder):
    yield
    recorder.verdict("memory", False, "guard overwritten")
def test_bad(recorder, late): raise KeyError("Unregistered range")
""",
        "fail",
        "check memory failed beside the expected failure: guard overwritten",
    ),
    "judged-nothing": (
        "def test_bad(recorder): pass\n",
        "fail",
        "without judging anything",
    ),
    "plain-skip": (
        'def test_bad(recorder): pytest.skip("Unregistered range")\n',
        "fail",
        "without a typed reason",
    ),
    "plain-xfail": (
        '@pytest.mark.xfail(reason="Unregistered range")\n' + FAILING,
        "fail",
        "without a typed reason",
    ),
}


@pytest.mark.parametrize("how", UNEXCUSED)
def test_what_is_not_the_known_failure_fails(project, how):
    source, status, diagnosis = UNEXCUSED[how]
    result = run(project, source, entry())
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    record = project.records["test_bad"]
    assert (record.status.value, record.reason) == (status, None)
    assert diagnosis in record.diagnosis


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_case_that_passes_says_which_entry_to_remove(project, arguments):
    result = run(project, PASSING, entry(), *arguments)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.statuses == {"test_bad": "unexpected-pass"}
    result.stdout.fnmatch_lines(
        [
            "UNEXPECTED-PASS test_bad.py::test_bad",
            f"*expected failure known ({LINK}): the case passed; remove the entry from *known.toml*",
        ]
    )


@pytest.mark.parametrize(
    ("source", "status"), [(PASSING, "pass"), (FAILING, "expected-fail"), (FAILING.replace("range", "rage"), "fail")]
)
def test_a_defect_that_comes_and_goes_lets_a_case_pass(project, source, status):
    result = run(project, source, entry(intermittent="true"))
    assert project.statuses == {"test_bad": status}
    assert (result.ret == pytest.ExitCode.OK) == (status != "fail")


EXPIRED = entry(expires="2001-02-03")


def test_an_expired_entry_excuses_nothing(project):
    assert run(project, FAILING, EXPIRED).ret == pytest.ExitCode.TESTS_FAILED
    record = project.records["test_bad"]
    assert record.status is Status.FAIL
    assert f"known ({LINK}) expired on 2001-02-03 and excuses nothing: me renews" in record.diagnosis


@pytest.mark.parametrize("toml", [EXPIRED, entry(stack='{ python = "<3" }'), entry(cases='"test_bad.py::test_other"')])
def test_an_entry_that_does_not_hold_lets_a_case_pass(project, toml):
    assert run(project, PASSING, toml).ret == pytest.ExitCode.OK
    assert project.statuses == {"test_bad": "pass"}


@pytest.mark.parametrize("toml", [entry(stack='{ python = "<3" }'), entry(cases='"test_bad.py::test_other"')])
def test_an_entry_that_does_not_hold_leaves_a_failure_alone(project, toml):
    assert run(project, FAILING, toml).ret == pytest.ExitCode.TESTS_FAILED
    record = project.records["test_bad"]
    assert (record.status, record.diagnosis) == (Status.FAIL, "KeyError: 'Unregistered range symbol'")


def test_typed_skips_leave_an_entry_unused(project):
    source = """
def test_a(recorder): recorder.not_run(Reason(ReasonCode.NO_DEVICE, "device", "none"))
def test_b(recorder): recorder.not_applicable(Reason(ReasonCode.DTYPE, "a", "fp8"))
"""
    assert run(project, source, entry()).ret == pytest.ExitCode.OK
    assert project.statuses == {"test_a": "not-run", "test_b": "not-applicable"}
    assert "known" not in "".join(record.diagnosis for record in project.reading.records)


def test_targets_are_those_of_the_case(project):
    source = """
@pytest.mark.parametrize("target", ["sm_90", "gfx942", None])
def test_bad(recorder, target):
    recorder.set(target=target)
    raise KeyError("Unregistered range")
"""
    assert run(project, source, entry(targets='["sm_1??", "sm_9*"]')).ret == pytest.ExitCode.TESTS_FAILED
    assert project.statuses == {
        "test_bad[sm_90]": "expected-fail",
        "test_bad[gfx942]": "fail",
        "test_bad[None]": "fail",
    }


def test_the_version_that_was_imported_counts(project):
    (project.path / "torch.py").write_text('__version__ = "2.13.1+cpu"\n')
    source = 'def test_bad(recorder):\n    import torch\n    raise KeyError("Unregistered range")\n'
    (project.path / "conftest.py").write_text("import sys, pathlib\nsys.path.insert(0, str(pathlib.Path.cwd()))\n")
    # the fake torch has no cuda for the plugin to ask about
    assert run(project, source, entry(stack='{ torch = "==2.13.1" }')).ret == pytest.ExitCode.OK
    assert project.statuses == {"test_bad": "expected-fail"}


DEATHS = {
    "crash": ("os._exit(3)", "while it ran this case"),
    "timeout": ("time.sleep(600)", "past its deadline"),
}


@pytest.mark.parametrize("death", DEATHS)
def test_death_is_expected_only_by_its_own_status(project, death):
    body, seen = DEATHS[death]
    toml = entry(cases='"*[known]"', status=f'"{death}"', seen=f'"{seen}"')
    toml += entry(id='"other"', cases='"*[other]"', seen=f'"{seen}"')
    source = f'@pytest.mark.parametrize("i", ["known", "other"])\ndef test_bad(recorder, i):\n    {body}\n'
    result = run(project, source, toml, "-n", "1", "--case-timeout", "0.5")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    result.assert_outcomes(xfailed=1, failed=1)
    assert project.statuses == {"test_bad[known]": "expected-fail", "test_bad[other]": death}
    assert f"is for fail or compile-error, not for {death}" in project.records["test_bad[other]"].diagnosis


def test_a_run_whose_only_death_is_expected_passes(project):
    project.suite("good", PASSING)
    toml = entry(status='"crash"', seen='"the process died"')
    assert run(project, "def test_bad(recorder): os._exit(3)\n", toml, "-n", "1").ret == pytest.ExitCode.OK
    assert {record.case: record.status for record in project.reading.records} == {
        "test_bad.py::test_bad": Status.EXPECTED_FAIL,
        "test_good.py::test_bad": Status.PASS,
    }
    assert project.info.problems == ()


def test_runxfail_changes_nothing(project):
    assert run(project, FAILING, entry(), "--runxfail").ret == pytest.ExitCode.OK
    assert project.statuses == {"test_bad": "expected-fail"}


BROKEN = {
    "not TOML": ("id = ", "is not TOML"),
    "unknown top key": ("[defaults]\n" + entry(), "unknown key defaults"),
    "no table": ("expected_failure = 3\n", "must be tables"),
    "unknown key": (entry(until='"x"'), "'known': unknown key until"),
    "missing key": (entry(seen=None, owner=None), "'known': key seen, owner is missing"),
    "missing id": (entry(id=None), "expected failure 1: key id is missing"),
    "id with spaces": (entry(id='"a b"'), "text without spaces is required"),
    "empty cases": (entry(cases='""'), "a pattern of case ids is required"),
    "impossible date": (entry(expires="2027-02-30"), "is not TOML"),
    "date as text": (entry(expires='"2027-06-30"'), "a date without quotes"),
    "date with time": (entry(expires="2027-06-30T00:00:00"), "a date without quotes"),
    "bad specifier": (entry(stack='{ torch = "2.13" }'), "stack.torch = '2.13': a version specifier"),
    "no specifier": (entry(stack="{}"), "one version specifier or more"),
    "specifier of no text": (entry(stack="{ torch = 2 }"), "stack.torch = 2: text is required"),
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
    with pytest.raises(ExpectedFailureError) as error:
        read_expected_failures([file])
    assert str(file) in str(error.value)
    assert message in str(error.value)


@pytest.mark.parametrize("arguments", [(), ("-n", "1"), ("--collect-only",)], ids=["alone", "xdist", "look"])
def test_a_broken_file_ends_the_run_at_its_start(project, arguments):
    result = run(project, PASSING, entry(expires='"soon"'), *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*known.toml: expected failure 'known': expires = 'soon': a date without quotes*"])
    assert not (project.path / "reports").exists()


def test_a_file_that_is_missing_ends_the_run_at_its_start(project):
    project.suite("bad", PASSING)
    result = project.run("--conformance-expected-failures=none.toml")
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*none.toml cannot be read*"])


def test_patterns_take_brackets_literally():
    assert matches("test_a.py::test_x[*store=True*]", "test_a.py::test_x[mm-store=True-4x4]")
    assert matches("*[a-b]", "test_a.py::test_x[a-b]")
    assert not matches("*[ab]", "test_a.py::test_xa")
    assert matches("*[?]", "x[1]")
    assert not matches("*[?]", "x[12]")
    assert not matches("test_x", "test_x[1]")
    assert not matches("TEST_X", "test_x")
    assert matches("a.b*", "a.b\nc")
    assert not matches("a.b", "axb")


def concerns(stack: dict[str, str], **found: str | None) -> bool:
    known = ExpectedFailure("known", "*", stack, LINK, "x", "me", date(2999, 1, 1))
    return known.concerns(CaseRecord("a", "s", Status.FAIL, stack=found))


@pytest.mark.parametrize(
    ("version", "held"),
    [
        ("2.13.0", True),
        ("2.13.0+cpu", True),
        ("2.13.1a0+git1234567", True),
        ("2.13.0rc2", False),
        ("2.14.0.dev20261001+cu130", False),
        ("2.14.0", False),
        ("2.12.1", False),
        ("not a version", False),
        (None, False),
    ],
)
def test_versions(version, held):
    assert concerns({"torch": ">=2.13,<2.14"}, torch=version) is held


def test_all_components_must_hold_and_a_device_goes_by_its_name():
    stack = {"torch": ">=2.13.dev0", "device": "NVIDIA H?00*"}
    assert concerns(stack, torch="2.13.0.dev20260101", device="NVIDIA H200")
    assert not concerns(stack, torch="2.13.0.dev20260101", device=None)
    assert not concerns(stack, torch="2.12", device="NVIDIA H200")


def test_an_entry_may_be_about_runs_without_a_device():
    stack = {"torch": ">=2.13", "device": "none"}
    assert concerns(stack, torch="2.13.0", device=None)
    assert not concerns(stack, torch="2.13.0", device="NVIDIA H200")


def test_an_entry_holds_on_its_last_day(monkeypatch):
    class Clock:
        @staticmethod
        def now(zone):
            return Clock

        @staticmethod
        def date():
            return Clock.today

    monkeypatch.setattr("conformance.gate.files.expected_failures.datetime", Clock)
    known = ExpectedFailure("known", "*", {}, LINK, "x", "me", date(2027, 6, 30))
    Clock.today = date(2027, 6, 30)
    assert not known.expired()
    Clock.today = date(2027, 7, 1)
    assert known.expired()


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
    (known,) = parsed(entry(seen='"numerics/hot"', checks=checks), "f")
    verdicts = (Verdict("grid", True, "3"), *(Verdict(check, False, "wrong") for check in failing))
    record = CaseRecord("test_bad.py::test_x", "bad", Status.FAIL, stack={"python": "3.11"}, verdicts=verdicts)
    found = ExpectedFailures((known,)).failure(record, Status.FAIL, "numerics/hot: wrong")
    assert found.status is (Status.FAIL if others else Status.EXPECTED_FAIL)
    assert (f"does not excuse that {others} failed" in found.diagnosis) is bool(others)


def test_two_entries_may_concern_one_case():
    text = entry(seen='"first"') + entry(id='"second"', seen='"2nd"')
    both = ExpectedFailures(tuple(parsed(text, "f")))
    record = CaseRecord("test_bad.py::test_x", "bad", Status.FAIL, stack={"python": "3.11"})
    assert both.failure(record, Status.FAIL, "a 2nd fault").reason.subject == "second"
    found = both.failure(record, Status.FAIL, "a third fault")
    assert "'first'" in found.diagnosis
    assert "'2nd'" in found.diagnosis


def test_the_built_in_entries_are_valid_and_hold_where_they_should():
    known = read_expected_failures()
    record = CaseRecord(
        "test_inductor_gemm.py::test_addmm_persistent_tma[sm_90-store=True]",
        "inductor_gemm",
        Status.FAIL,
        stack={"torch": "2.13.0+cpu"},
    )
    found = known.failure(record, Status.FAIL, "InductorError: Unregistered range symbol xindex")
    assert found.status is Status.EXPECTED_FAIL
    for other in (
        CaseRecord(record.case.replace("True", "False"), record.suite, Status.FAIL, stack=record.stack),
        CaseRecord(record.case, record.suite, Status.FAIL, stack={"torch": "2.14.0"}),
    ):
        assert known.failure(other, Status.FAIL, "Unregistered range symbol").status is Status.FAIL


def test_a_measured_fusion_may_fail_on_a_device_with_torch_2_11():
    known = read_expected_failures()
    stack = {"torch": "2.11.0+cu130", "device": "NVIDIA H200"}
    case = "test_inductor_prologues.py::test_pending_fusion_pro_and_epi[measured={}-sm_90]"
    message = (
        "InductorError <- TypeError: InductorError: TypeError: launcher() got multiple values for argument 'stream'"
    )
    for measured, status in ((True, Status.EXPECTED_FAIL), (False, Status.COMPILE_ERROR)):
        record = CaseRecord(case.format(measured), "inductor_prologues", Status.PASS, stack=stack)
        assert known.failure(record, Status.COMPILE_ERROR, message).status is status
        assert known.success(record) is None
