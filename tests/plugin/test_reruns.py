"""A failed case is judged again in fresh processes: what fails alike stays a failure, what does not is flaky."""

from __future__ import annotations

import signal
import time

import pytest

from conformance.plugin import reruns
from conformance.records import CaseRecord, Fault, FaultClass, Rerun, Status, Verdict
from tests.gate.sample_entries import entry

pytest_plugins = ["pytester"]

#: A case can count the processes that judge it, and do something else in each.
COUNTED = """
def nth(name):
    with open(name + ".count", "a+") as file:
        file.write("x")
        file.flush()
        return os.path.getsize(file.name)

def test_good(recorder): recorder.verdict("x", True)
"""
#: What a case does, its status, and the statuses of its reruns.
CASES = {
    "alike": ('recorder.verdict("x", False, "wrong")', "fail", ["fail", "fail"]),
    "passes_later": ('recorder.verdict("x", nth("a") > 1, "wrong")', "flaky", ["pass", "pass"]),
    "passes_once": ('recorder.verdict("x", nth("b") == 2, "wrong")', "flaky", ["pass", "fail"]),
    "another_check": ('recorder.verdict("x" + str(nth("c")), False, "wrong")', "flaky", ["fail", "fail"]),
    "crash": ("os._exit(3)", "crash", ["crash"]),
    "crash_then_pass": ('recorder.verdict("x", True); nth("d") == 1 and os._exit(3)', "flaky", ["pass"]),
    "good": ('recorder.verdict("x", True)', "pass", []),
    "expected": ('recorder.verdict("x", False, "known")', "expected-fail", []),
    "expected_later": (
        'recorder.verdict("x", False, "known" if nth("e") > 1 else "new")',
        "flaky",
        ["expected-fail"] * 2,
    ),
}
#: Those of them that the process which pytest itself runs in has as well.
IN_ONE_PROCESS = ("alike", "passes_later", "good")


def test_failed_cases_are_judged_again(project, workers):
    bodies = {name: body for name, (body, _, _) in CASES.items() if workers or name in IN_ONE_PROCESS}
    project.suite("it", COUNTED + "".join(f"def test_{name}(recorder): {body}\n" for name, body in bodies.items()))
    (project.path / "known.toml").write_text(entry(cases='"test_it.py::test_expected*"', seen='"known"'))
    (project.path / "conftest.py").write_text("from conformance.plugin import reruns\nreruns.LEAST_S = 600.0\n")
    options = ("--expected-failures", "known.toml", "-v", "--junitxml=mine.xml", "--run-dir", "reports/mine")
    result = project.run(*workers, "--conformance-reruns", "2", *options)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert (project.info.problems, project.reading.problems) == ((), ())
    records = {name.removeprefix("test_"): record for name, record in project.records.items()}
    assert {name: record.status.value for name, record in records.items()} == {name: CASES[name][1] for name in bodies}
    again = {name: sorted(rerun.status.value for rerun in record.reruns) for name, record in records.items()}
    assert again == {name: sorted(CASES[name][2]) for name in bodies}  # two reruns of a case go on at once
    assert records["passes_later"].diagnosis.startswith("flaky: fail (x), then pass, then pass\n")
    flaky = sum(CASES[name][1] == "flaky" for name in bodies)
    result.stdout.fnmatch_lines([f"*failed cases judged again, * times in all: {flaky} flaky"])


def test_no_more_cases_are_judged_again_than_the_limit(project):
    test = "def test_it(recorder, i): recorder.verdict('x', False)"
    project.suite("it", f"@pytest.mark.parametrize('i', range(3))\n{test}")
    (project.path / "conftest.py").write_text("from conformance.plugin import reruns\nreruns.MOST_CASES = 2\n")
    project.run("--conformance-reruns", "1")
    assert sorted(len(record.reruns) for record in project.reading.records) == [0, 1, 1]
    assert project.info.reruns.startswith(
        "2 failed cases judged again, 2 times in all: 0 flaky; 1 failed case judged once"
    )


def test_a_rerun_past_the_time_is_ended_and_said(project):
    sleep = "time.sleep(60 if os.path.exists('again') else 0); open('again', 'w').close()"
    project.suite("it", f"def test_it(recorder):\n    recorder.verdict('x', False)\n    {sleep}\n")
    (project.path / "conftest.py").write_text("from conformance.plugin import reruns\nreruns.LEAST_S = 3.0\n")
    project.run("--conformance-reruns", "1")
    assert project.records["test_it"].reruns == ()
    assert project.info.reruns.startswith("1 failed case judged once: reruns end after")


def test_reruns_can_be_switched_off(project):
    project.suite("it", "def test_it(recorder): recorder.verdict('x', False)")
    project.run("--conformance-reruns", "0")
    assert project.records["test_it"].reruns == ()
    assert project.info.reruns is None


#: What a case does in its rerun so that no record is left.
LEAVES_NOTHING = {
    "file-gone": "os.unlink(__file__)",
    "process-killed": "nth('a') > 2 and os.kill(os.getppid(), 9)",
    "import-fails": "open('conftest.py', 'w').write('raise ValueError')",
}


@pytest.mark.parametrize("name", LEAVES_NOTHING)
def test_a_rerun_that_leaves_no_record_says_nothing_of_its_case(project, name, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    project.suite(
        "it", f"{COUNTED}\ndef test_it(recorder):\n    recorder.verdict('x', False)\n    {LEAVES_NOTHING[name]}"
    )
    result = project.run("-n", "1", "--conformance-reruns", "1")
    if name != "process-killed":  # the first rerun of that one ends
        result.stdout.fnmatch_lines(["*1 failed case judged once: a rerun left no record*"])
    assert project.statuses == {"test_good": "pass", "test_it": "fail"}
    assert not [*tmp_path.glob("conformance-rerun-*")]


@pytest.mark.usefixtures("new_python")
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_reruns_and_the_records_are_merged(project, number):
    rerun = "nth('a') > 1 and (os.kill(controller(), NUMBER), time.sleep(60))"
    controller = "def controller(): return int(open('controller').read())"
    suite = f"{COUNTED}\n{controller}\ndef test_it(recorder):\n    recorder.verdict('x', False)\n    {rerun}\n"
    project.suite("it", suite.replace("NUMBER", str(int(number))))
    (project.path / "conftest.py").write_text(
        "import os, sys\nif 'again' not in sys.argv[0] and not os.path.exists('controller'):\n"
        "    open('controller', 'w').write(str(os.getpid()))\n"
    )
    began = time.monotonic()
    result = project.run("--conformance-reruns", "1")
    assert time.monotonic() - began < 40
    assert (result.ret, [fault.kind for fault in project.info.faults]) == (2, ["failed", "interrupted"])
    result.stdout.fnmatch_lines(["*ended the run while failed cases were judged again*", "*a signal ended the reruns*"])
    assert project.statuses == {"test_good": "pass", "test_it": "fail"}
    assert project.records["test_it"].reruns == ()
    assert project.info.problems == ()


@pytest.mark.parametrize("number", ["-1", "101"])
def test_numbers_of_reruns_are_checked(project, number):
    project.suite("good", COUNTED)
    project.refused(
        f"*--conformance-reruns {number}: a number from 0 to 100 is required*", f"--conformance-reruns={number}"
    )


BROKEN = Fault(FaultClass.INFRASTRUCTURE, "disk-full", "no space left")


@pytest.mark.parametrize(
    ("again", "status"),
    [
        ([Rerun(Status.FAIL, ("a", "b"))], Status.FAIL),
        ([Rerun(Status.FAIL, ("b", "a"))], Status.FAIL),
        ([Rerun(Status.FAIL, ("a",))], Status.FLAKY),
        ([Rerun(Status.FAIL, ("a", "b")), Rerun(Status.PASS)], Status.FLAKY),
        ([Rerun(Status.CRASH, ("a", "b"))], Status.FLAKY),
        ([Rerun(Status.COMPILE_ERROR, fault=BROKEN)], Status.FAIL),
        ([Rerun(Status.NOT_RUN)], Status.FAIL),
        ([Rerun(Status.NOT_RUN), Rerun(Status.PASS)], Status.FLAKY),
    ],
)
def test_one_rerun_that_ends_in_another_way_is_enough(again, status):
    verdicts = (Verdict("a", False), Verdict("b", False), Verdict("c", True))
    record = reruns.judged(CaseRecord("case", "suite", Status.FAIL, verdicts=verdicts), again)
    assert record.status is status
    assert record.reruns == tuple(again)
