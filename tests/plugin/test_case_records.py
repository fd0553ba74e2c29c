"""One record per case, whatever the case does."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

OUTCOMES = """
class OutOfMemoryError(RuntimeError): pass

def test_pass(recorder):
    with recorder.timed("run"):
        recorder.set(kernel="mm", problem={"id": "p", "M": 2}, target="cpu", executor="interpreter")
        recorder.set(observed={"grid": (1,)})
    recorder.run_created("r"); recorder.run_judged("r")
    recorder.verdict("numerics", True, "bitwise", ulp=0.0, passed=3, worst=float("nan"))

def test_fail(recorder):
    recorder.verdict("memory", False, "guard overwritten")
    raise ConformanceFailure("tile (0, 1) is wrong")

def test_error(recorder): raise KeyError("x")
def test_compile(recorder): raise CompileFailure(Status.COMPILE_ERROR, "no such intrinsic")
def test_oom(recorder): raise OutOfMemoryError("2 TiB")
def test_not_run(recorder): recorder.not_run(Reason(ReasonCode.NO_DEVICE, "device", "none here"))
def test_not_applicable(recorder): recorder.not_applicable(Reason(ReasonCode.DTYPE, "a", "fp8"))
def test_left_unjudged(recorder):
    recorder.verdict("source", True)
    recorder.leave_unjudged(Reason(ReasonCode.NO_DEVICE, "device", "none here"))
def test_left_unjudged_and_failed(recorder):
    recorder.leave_unjudged(Reason(ReasonCode.NO_DEVICE, "device", "none here"))
    recorder.verdict("source", False, "not there")
    raise ConformanceFailure("not there")
@pytest.fixture
def refused(recorder): recorder.not_applicable(Reason(ReasonCode.DTYPE, "a", "fp8"))
def test_refused_in_setup(recorder, refused): pass

def test_plain_skip(): pytest.skip("lazy")
@pytest.mark.skipif(True, reason="lazy mark")
def test_marked_skip(): pass
@pytest.mark.xfail(reason="known", strict=False)
def test_xfail(): assert False
@pytest.mark.xfail(reason="known", strict=False)
def test_xpass(recorder): recorder.verdict("x", True)

def test_unjudged_run(recorder):
    recorder.verdict("other", True)
    recorder.run_created("r"); recorder.run_created("r"); recorder.run_judged("r")
def test_judged_nothing(recorder): pass
def test_failed_verdict_ignored(recorder): recorder.verdict("memory", False, "guard overwritten")
def test_failed_verdict_then_skip(recorder):
    recorder.verdict("memory", False, "guard overwritten")
    recorder.not_run(Reason(ReasonCode.NO_DEVICE, "device", "none here"))

@pytest.fixture
def broken(): raise RuntimeError("no setup")
def test_setup(broken): pass
@pytest.fixture
def untidy():
    yield
    raise RuntimeError("no teardown")
def test_teardown(recorder, untidy): recorder.verdict("x", True)
def test_skip_then_teardown(recorder, untidy): recorder.not_run(Reason(ReasonCode.NO_DEVICE, "d", "none"))

@pytest.fixture
def judge(recorder, request):
    if request.node.callspec.params["able"] == "no":
        recorder.not_applicable(Reason(ReasonCode.CAPABILITY, "tcgen05", "the hardware has not"))
    return recorder
@pytest.mark.parametrize("able", ["no", "yes"])
def test_fixture_ends_a_case(judge, able): judge.verdict("x", True)
"""

EXPECTED = {
    "test_pass": "pass",
    "test_fail": "fail",
    "test_error": "fail",
    "test_compile": "compile-error",
    "test_oom": "oom",
    "test_not_run": "not-run",
    "test_not_applicable": "not-applicable",
    "test_left_unjudged": "not-run",
    "test_left_unjudged_and_failed": "fail",
    "test_refused_in_setup": "not-applicable",
    "test_plain_skip": "fail",
    "test_marked_skip": "fail",
    "test_xfail": "fail",
    "test_xpass": "fail",
    "test_unjudged_run": "fail",
    "test_judged_nothing": "fail",
    "test_failed_verdict_ignored": "fail",
    "test_failed_verdict_then_skip": "fail",
    "test_setup": "fail",
    "test_teardown": "fail",
    "test_skip_then_teardown": "fail",
    "test_fixture_ends_a_case[no]": "not-applicable",
    "test_fixture_ends_a_case[yes]": "pass",  # pytest knew how the fixture ended, and makes it again
}


def test_every_outcome_has_its_status(project, workers):
    project.suite("outcomes", OUTCOMES)
    result = project.run(*workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.statuses == EXPECTED
    assert project.info.problems == ()
    records = project.records
    assert records["test_not_run"].reason.code.value == "no-device"
    for name, text in {
        "test_fail": "tile (0, 1) is wrong",
        "test_error": "KeyError: 'x'",
        "test_plain_skip": "without a typed reason (lazy)",
        "test_marked_skip": "without a typed reason",
        "test_xfail": "without a typed reason (known)",
        "test_unjudged_run": "run r was created and never judged",
        "test_judged_nothing": "without judging anything",
        "test_failed_verdict_ignored": "check memory failed, but the test did not: guard overwritten",
        "test_setup": "no setup",
        "test_teardown": "no teardown",
    }.items():
        assert text in records[name].diagnosis
    passed = records["test_pass"]
    assert (passed.suite, passed.kernel, passed.executor) == ("outcomes", "mm", "interpreter")
    assert passed.case == "test_outcomes.py::test_pass"
    assert passed.observed == {"grid": [1]}
    assert passed.verdicts[0].details == {"ulp": 0.0, "passed": 3, "worst": "nan"}
    assert passed.durations["total"] >= passed.durations["run"] > 0
    assert (passed.outcome, records["test_setup"].outcome) == ("passed", "failed in setup")
    assert "--conformance-case test_outcomes.py::test_fail" in records["test_fail"].repro
    assert "tile (0, 1) is wrong" in (project.folder / "summary.md").read_text()
    assert {file.name for file in project.folder.iterdir()} == {
        "environment.json",
        "junit.xml",
        "plan.json",
        "records.jsonl.gz",
        "run.json",
        "selected.txt",
        "summary.md",
    }


def test_good_run_exits_zero_and_counts_typed_skips(project):
    project.suite(
        "good",
        """
def test_a(recorder): recorder.verdict("x", True)
def test_b(recorder): recorder.not_run(Reason(ReasonCode.NO_DEVICE, "device", "none here"))
""",
    )
    result = project.run()
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["cases: 1 pass", "not judged: 1 not-run (no-device 1)"])


def test_user_options_for_folder_and_junit_win(project):
    project.suite("good", "def test_a(recorder): recorder.verdict('x', True)\n")
    assert project.run("--run-dir", "mine", "--junit-xml", "mine.xml", "--seed", "7").ret == 0
    assert not (project.path / "reports").exists()
    assert not (project.path / "mine" / "junit.xml").exists()
    assert (project.path / "mine.xml").exists()
    again = project.run("--run-dir", "mine")
    assert again.ret == pytest.ExitCode.USAGE_ERROR
    again.stderr.fnmatch_lines(["*mine: exists and is not an empty folder; give a new one"])


def test_uncollectable_and_self_skipping_modules_are_failures(project):
    project.suite("broken", "import nothing_of_this_name\n")
    project.suite("hiding", "pytest.skip('not today', allow_module_level=True)\n")
    project.suite("good", "def test_a(recorder): recorder.verdict('x', True)\n")
    result = project.run("--continue-on-collection-errors")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert {record.case: record.status.value for record in project.reading.records} == {
        "test_broken.py": "fail",
        "test_hiding.py": "fail",
        "test_good.py::test_a": "pass",
    }
    assert project.info.problems == ()


def test_artefacts_of_a_failure_move_with_its_record(project):
    (project.path / "kernel.ptx").write_text("ptx")
    project.suite(
        "artefacts",
        """
@pytest.mark.parametrize("passed", [True, False])
def test_a(recorder, passed):
    recorder.set(artefacts={"ptx": os.path.abspath("kernel.ptx"), "lost": "/nowhere/kernel.ttir"})
    recorder.verdict("x", passed)
""",
    )
    project.run()
    failed = project.records["test_a[False]"].artefacts
    assert (project.folder / failed["ptx"]).read_text() == "ptx"
    assert failed["ptx"].startswith("artefacts/")
    assert failed["lost"] == "/nowhere/kernel.ttir"
    assert project.records["test_a[True]"].artefacts["ptx"] == str(project.path / "kernel.ptx")


def test_a_case_leaves_the_environment_as_it_was(project):
    project.suite(
        "environment",
        """
NAMES = ("CHANGED", "REMOVED", "ADDED")

@pytest.fixture(scope="module")
def prepared():
    os.environ.update(CHANGED="before", REMOVED="before")

def test_changes(recorder, prepared):
    os.environ.update(CHANGED="after", ADDED="after")
    del os.environ["REMOVED"]
    recorder.verdict("changed", True)
    raise ConformanceFailure("in the middle")

def test_sees_nothing_of_it(recorder, prepared):
    recorder.verdict("environment", [os.environ.get(name) for name in NAMES] == ["before", "before", None])
""",
    )
    project.run("-n", "1")
    statuses = {record.case.partition("::")[2]: record.status.value for record in project.reading.records}
    assert statuses == {"test_changes": "fail", "test_sees_nothing_of_it": "pass"}


def test_counts_of_pytest_are_those_of_the_records(project, workers):
    """pytest counts a case that fails when it is torn down twice."""
    project.suite(
        "ends",
        """
def test_pass(recorder): recorder.verdict("x", True)
def test_nothing_judged(recorder): pass
@pytest.fixture
def late(recorder):
    yield
    assert False
def test_late(late, recorder): recorder.verdict("x", True)
@pytest.fixture
def early(): assert False
def test_early(early, recorder): recorder.verdict("x", True)
def test_skip(recorder): recorder.not_run(Reason(ReasonCode.TIER, "x", "y"))
""",
    )
    result = project.run(*workers)
    result.assert_outcomes(passed=1, failed=3, skipped=1)
    assert sorted(project.statuses.values()) == ["fail", "fail", "fail", "not-run", "pass"]


def test_text_of_a_failure_gives_a_workflow_no_command(project, workers):
    project.suite(
        "bad", "def test_a(recorder): recorder.verdict('x', False, 'wrong\\n::error::forged\\n\\x1b[2J##[group]')\n"
    )
    lines = project.run(*workers).stdout.lines
    assert any("forged" in line for line in lines)
    assert not [line for line in lines if line.lstrip().startswith("::") or "##[" in line or "\x1b[2J" in line]


#: Verdicts that are no bool, and those that are one to NumPy.
TRUTHS = {
    "nan": "float('nan')",
    "ratio": "0.5",
    "number": "1",
    "text": "'false'",
    "none": "None",
    "array": "numpy.ones(3) == 1",
    "method": "'a'.isascii",
    "false": "numpy.False_",
}


def test_a_verdict_is_a_bool(project):
    cases = [f"def test_{name}(recorder): recorder.verdict('x', {truth})\n" for name, truth in TRUTHS.items()]
    cases.append("def test_numpy(recorder): recorder.verdict('x', numpy.float64(1) == 1)\n")
    cases.append("def test_given(recorder): recorder.add(Verdict('x', 0.5))\n")
    cases.append("def test_words(recorder): recorder.verdict('x', True, 3)\n")
    project.suite("truths", "import numpy\n" + "".join(cases))
    assert project.run().ret == pytest.ExitCode.TESTS_FAILED
    records = project.records
    assert {name for name, record in records.items() if record.status.value == "pass"} == {"test_numpy"}
    assert "TypeError: verdict 'x': True or False is required, got 0.5 of type float" in records["test_ratio"].diagnosis
    assert "both of type str, got str and int" in records["test_words"].diagnosis


LARGE = """
def test_observed(recorder):
    recorder.verdict("x", True)
    recorder.set(observed={"lines": ["x" * 10_000] * 500})
def test_verdicts(recorder):
    recorder.verdict("first", False, "wrong numbers")
    for number in range(50_000): recorder.verdict(f"check {number}", True, "y" * 80)
def test_skip(recorder):
    recorder.set(observed={"lines": ["x" * 10_000] * 500})
    recorder.not_run(Reason(ReasonCode.TIER, "x", "y"))
def test_good(recorder): recorder.verdict("x", True)
"""


def test_a_record_past_the_limit_is_cut_and_its_case_has_failed(project, workers):
    project.suite("large", LARGE)
    result = project.run(*workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    names = ("test_observed", "test_verdicts", "test_skip")
    assert project.statuses == {**dict.fromkeys(names, "fail"), "test_good": "pass"}
    assert result.parseoutcomes() == {"failed": 3, "passed": 1}
    assert project.info.problems == ()
    for name in names:
        record = project.records[name]
        assert record.observed == {}
        assert record.failing[-1][0] == "record"
        assert "is the limit: what was observed was left out" in record.diagnosis
    assert project.records["test_verdicts"].failing[0] == ("first", "wrong numbers")


def test_an_id_that_no_record_holds_is_refused(project, workers):
    project.suite("ids", "@pytest.mark.parametrize('a', [1], ids=['x' * 30_000])\ndef test_a(recorder, a): pass\n")
    project.refused("*a case id has 30021 characters, and 20000 is the limit; give its parameters short ids*", *workers)
