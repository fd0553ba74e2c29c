"""In a run, an expected failure excuses the failure that it describes, and no other."""

from __future__ import annotations

import pytest

from conformance.records import CaseRecord, Status
from tests.gate.sample_entries import LINK, entry

pytest_plugins = ["pytester"]


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
        [
            "1 case failed as expected, by known defect:",
            f"  known  1 case  {LINK}",
            "PASSED: the only judged case passed or failed as expected",
            "cases: 0 pass, 1 expected-fail (1 known defect)",
        ]
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


def suites(project, sources: dict[str, str], toml: str) -> tuple[pytest.RunResult, dict[str, CaseRecord]]:
    """A run of one suite for each of ``sources``, and the record of each one's only case, ``test_bad``."""
    for name, source in sources.items():
        project.suite(name, source)
    (project.path / "known.toml").write_text(toml)
    result = project.run("--expected-failures=known.toml")
    by_suite = {record.case.partition(".py")[0].removeprefix("test_"): record for record in project.reading.records}
    assert len(by_suite) == len(project.reading.records) == len(sources)
    return result, by_suite


EVERY_SUITE = '"*::test_bad"'


def test_each_way_to_fail_can_be_expected(project):
    result, records = suites(project, WAYS, entry(cases=EVERY_SUITE))
    assert result.ret == pytest.ExitCode.OK
    assert {record.status.value for record in records.values()} == {"expected-fail"}


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
        "check memory failed in addition to the expected failure: guard overwritten",
    ),
    "judged-nothing": ("def test_bad(recorder): pass\n", "fail", "without judging anything"),
    "plain-skip": ('def test_bad(recorder): pytest.skip("Unregistered range")\n', "fail", "without a typed reason"),
    "plain-xfail": (
        '@pytest.mark.xfail(reason="Unregistered range")\n' + FAILING,
        "fail",
        "without a typed reason",
    ),
}


def test_what_is_not_the_known_failure_fails(project):
    sources = {how: source for how, (source, _, _) in UNEXCUSED.items()}
    result, records = suites(project, sources, entry(cases=EVERY_SUITE))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    for how, (_, status, diagnosis) in UNEXCUSED.items():
        assert (records[how].status.value, records[how].reason) == (status, None), how
        assert diagnosis in records[how].diagnosis, how


@pytest.mark.parametrize("arguments", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_a_case_that_passes_says_which_entry_to_remove(project, arguments):
    result = run(project, PASSING, entry(), *arguments)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.statuses == {"test_bad": "unexpected-pass"}
    result.stdout.fnmatch_lines(
        [
            "1. unexpected pass in 1 case *",
            "     test_bad.py::test_bad",
            f"*expected failure known ({LINK}): the case passed; remove the entry from *known.toml*",
        ]
    )


def test_a_defect_that_comes_and_goes_lets_a_case_pass(project):
    sources = {"pass": PASSING, "expected-fail": FAILING, "fail": FAILING.replace("range", "rage")}
    _, records = suites(project, sources, entry(intermittent="true", cases=EVERY_SUITE))
    assert {name: record.status.value for name, record in records.items()} == {name: name for name in sources}


#: Entries that hold for no case, by the suite whose case has the name that they ask for.
IDLE = {
    "old": entry(id='"old"', cases='"test_old.py::test_bad"', expires="2001-02-03"),
    "python": entry(id='"python"', cases='"test_python.py::test_bad"', stack='{ python = "<3" }'),
    "other": entry(id='"other"', cases='"test_other.py::test_other"'),
}


def test_an_entry_that_does_not_hold_lets_a_case_pass(project):
    result, records = suites(project, dict.fromkeys(IDLE, PASSING), "".join(IDLE.values()))
    assert result.ret == pytest.ExitCode.OK
    assert {record.status for record in records.values()} == {Status.PASS}


def test_an_entry_that_does_not_hold_leaves_a_failure_alone(project):
    result, records = suites(project, dict.fromkeys(IDLE, FAILING), "".join(IDLE.values()))
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert {record.status for record in records.values()} == {Status.FAIL}
    assert f"old ({LINK}) expired on 2001-02-03 and excuses nothing: me renews" in records["old"].diagnosis
    for name in ("python", "other"):
        assert records[name].diagnosis == "KeyError: 'Unregistered range symbol'"


def test_typed_skips_leave_an_entry_unused(project):
    source = """
def test_a(recorder): recorder.not_run(Reason(ReasonCode.NO_DEVICE, "device", "none"))
def test_b(recorder): recorder.not_applicable(Reason(ReasonCode.DTYPE, "a", "fp8"))
"""
    assert run(project, source, entry()).ret == pytest.ExitCode.NO_TESTS_COLLECTED  # nothing was judged
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


@pytest.mark.usefixtures("new_python")
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


@pytest.mark.parametrize("arguments", [(), ("-n", "1"), ("--collect-only",)], ids=["alone", "xdist", "look"])
def test_a_broken_file_ends_the_run_at_its_start(project, arguments):
    result = run(project, PASSING, entry(expires='"soon"'), *arguments)
    assert result.ret == pytest.ExitCode.USAGE_ERROR
    result.stderr.fnmatch_lines(["*known.toml: expected failure 'known': expires = 'soon': a date without quotes*"])
    assert not (project.path / "reports").exists()


def test_a_file_that_is_missing_ends_the_run_at_its_start(project):
    project.suite("bad", PASSING)
    project.refused("*none.toml cannot be read*", "--conformance-expected-failures=none.toml")
