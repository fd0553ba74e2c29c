"""A worker that dies or is stopped before it answers is started again; the run goes on with those that live."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

#: Kills or stops the processes of these numbers, in the order in which execnet starts them.
CONFTEST = """
import os, signal
from execnet import gateway_io
from conformance.plugin import worker_starts
from conformance.machine.awake_time import AwakeTime

AwakeTime.LOOK_S = 0.1
worker_starts.PAUSES_S, worker_starts.ANSWER_S = (0.01, 0.02, 0.03), {answer}
create, made = gateway_io.create_io, []
def creating(*arguments, **named):
    made.append(create(*arguments, **named))
    if len(made) - 1 in {numbers}:
        made[-1].popen.send_signal(signal.{name})
    return made[-1]
gateway_io.create_io = creating
"""
CASES = """
@pytest.mark.parametrize("i", range(6))
def test_case(recorder, i): recorder.verdict("x", True)
def test_dies(recorder): os._exit(1) if {dies} else recorder.verdict("x", True)
"""
PASSED = {f"test_case[{i}]": "pass" for i in range(6)}


def begun(project, numbers, name="SIGKILL", dies=False, answer=30.0):
    project.suite("cases", CASES.format(dies=dies))
    (project.path / "conftest.py").write_text(CONFTEST.format(numbers=numbers, name=name, answer=answer))
    result = project.run("-n", "2")
    assert "INTERNALERROR" not in result.stdout.str() + result.stderr.str()
    assert project.info.problems == ()
    return result


@pytest.mark.parametrize(
    ("numbers", "dies"),
    [((0,), False), ((0, 1, 2), False), ((2,), True), (range(1, 100), False)],
    ids=["the first", "three tries", "a replacement", "all but one"],
)
def test_a_worker_killed_while_it_starts_costs_no_case(project, numbers, dies):
    result = begun(project, tuple(numbers), dies=dies)
    assert project.statuses == {**PASSED, "test_dies": "crash" if dies else "pass"}
    assert result.ret == dies


def test_a_worker_stopped_while_it_starts_costs_no_case(project):
    begun(project, (0, 2), "SIGSTOP", answer=1.5)
    assert project.statuses == {**PASSED, "test_dies": "pass"}


@pytest.mark.parametrize("first", [0, 1], ids=["at once", "after a death"])
def test_a_run_that_gets_no_worker_ends_in_a_sentence(project, first):
    project.suite("cases", "def test_dies(recorder): os._exit(1)\ndef test_later(recorder): pass\n")
    conftest = CONFTEST.format(numbers=tuple(range(first, 100)), name="SIGKILL", answer=30.0)
    (project.path / "conftest.py").write_text(conftest)
    result = project.run("-n", "1" if first else "2")
    assert "Traceback" not in result.stdout.str() + result.stderr.str()
    result.stdout.fnmatch_lines(["*no worker could be started: *Error*", "exit status *"])
    assert (result.ret, project.statuses) == ((1, {"test_dies": "crash"}) if first else (75, {}))


def test_a_python_that_is_not_there_is_refused(project):
    project.suite("cases", CASES.format(dies=False))
    words = ("-o", "addopts=--conformance-gpus 0", "--dist=load", "--tx=popen//python=/no/such")
    project.refused("*--tx popen//python=/no/such: the worker cannot be started*", *words)


def test_a_specification_that_cannot_be_read_is_refused(project):
    project.suite("cases", CASES.format(dies=False))
    words = ("-o", "addopts=--conformance-gpus 0", "--dist=load", "--tx=2*popen//execmodel=x")
    project.refused("*--tx 2[*]popen//execmodel=x: duplicate key*", *words)


def test_a_conftest_that_fails_in_workers_alone_ends_the_run_in_a_sentence(project):
    project.suite("cases", CASES.format(dies=False))
    fails = "if 'PYTEST_XDIST_WORKER' in os.environ: 1 / 0\n"
    (project.path / "conftest.py").write_text(CONFTEST.format(numbers=(), name="SIGKILL", answer=30.0) + fails)
    result = project.run("-n", "1")
    assert (result.ret, project.statuses) == (1, {})
    result.stdout.fnmatch_lines(["*workers die before they have collected*ZeroDivisionError*conftest.py*"])


def test_a_process_that_a_conftest_forks_does_not_go_on_as_a_second_worker(project):
    project.suite("cases", CASES.format(dies=False))
    (project.path / "conftest.py").write_text("import os\nos.fork()\n")
    assert project.run("-n", "2").ret == 0
    assert project.statuses == {**PASSED, "test_dies": "pass"}
