"""A shared fixture that fails as it ends is a fault of the run; a hook of a session that hangs ends in a sentence."""

from __future__ import annotations

import pytest

pytest_plugins = ["pytester"]

SHARED = """
@pytest.fixture(scope="{scope}")
def shared():
    yield
    {end}

def test_user(recorder, shared): recorder.verdict("x", True)
def test_other(recorder): recorder.verdict("x", True)
"""
#: What a fixture does as it ends, and what the run says of it.
ENDS = {
    "raise ValueError('no end')": "ValueError: no end",
    "pytest.fail('no end')": "Failed: no end",
    "time.sleep(60)": "did not end within 2 s; it was at test_shared.py",
    "os.abort()": "the process died",
    "os._exit(0)": "the process died",
}
#: Short times for what a user waits longer for.
CONFTEST = """
from conformance.machine.awake_time import AwakeTime
from conformance.plugin import shared_teardown
AwakeTime.LOOK_S = 0.1
shared_teardown.LEAST_S = 2.0
"""
LEADS = "'PYTEST_XDIST_WORKER' not in os.environ"


@pytest.mark.parametrize(
    ("scope", "end"), [*(("session", end) for end in ENDS), ("module", next(iter(ENDS)))], ids=range(len(ENDS) + 1)
)
def test_a_shared_fixture_costs_no_case_its_verdict(project, scope, end):
    (project.path / "conftest.py").write_text(CONFTEST)
    project.suite("shared", SHARED.format(scope=scope, end=end))
    result = project.run("-n", "1", "--case-timeout", "2")
    assert (result.ret, project.statuses) == (1, {"test_user": "pass", "test_other": "pass"})
    (fault,) = project.info.faults
    assert fault.text.startswith("the teardown of shared, after suites/test_shared.py::test_other: ")
    assert ENDS[end] in fault.text
    result.stdout.fnmatch_lines(["*= 2 passed in *"])
    assert not list(project.folder.glob("faults-*"))


@pytest.mark.parametrize("workers", [("-n", "0"), ("-n", "2")], ids=["alone", "xdist"])
def test_a_fixture_of_a_case_still_costs_its_case(project, workers):
    project.suite("own", SHARED.format(scope="function", end="raise ValueError('no end')"))
    assert project.run(*workers).ret == 1
    assert project.statuses == {"test_user": "fail", "test_other": "pass"}


@pytest.mark.parametrize("workers", [("-n", "0"), ("-n", "1")], ids=["alone", "xdist"])
@pytest.mark.parametrize("where", [LEADS, f"not ({LEADS})"], ids=["leader", "worker"])
def test_a_hook_that_hangs_as_the_session_ends(project, where, workers):
    (project.path / "conftest.py").write_text(
        f"import os, time\n{CONFTEST}\ndef pytest_sessionfinish():\n    if {where}: time.sleep(60)\n"
    )
    project.suite("good", "def test_good(recorder): recorder.verdict('x', True)\n")
    result = project.run(*workers, "--case-timeout", "2")
    assert project.statuses == {"test_good": "pass"}
    hangs = where == LEADS or workers[1] != "0"
    assert (result.ret != 0, len(project.info.faults)) == (hangs, hangs)
    assert all("did not end within 2 s; it was at conftest.py" in fault.text for fault in project.info.faults)


@pytest.mark.parametrize("where", [LEADS, f"not ({LEADS})"], ids=["leader", "worker"])
def test_a_hook_that_hangs_as_the_session_begins(project, where):
    (project.path / "conftest.py").write_text(
        f"import os, time\n{CONFTEST}\ndef pytest_sessionstart():\n    if {where}: time.sleep(60)\n"
    )
    project.suite("good", "def test_good(recorder): recorder.verdict('x', True)\n")
    project.refused("*pytest_sessionstart did not end within 2 s; it was at conftest.py*", "-n1", "--case-timeout=2")
