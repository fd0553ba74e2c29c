"""A run prints at its end a line for each failing case and a verdict, and no frames unless they are asked for."""

from __future__ import annotations

import pytest

from tests.gate.sample_entries import entry

pytest_plugins = ["pytester"]

SUITE = """
@pytest.mark.parametrize("n", range(6))
def test_wrong(recorder, n):
    recorder.set(kernel="mm")
    recorder.verdict("numerics/randn", n > 3, f"{n} of 99 elements wrong")
    if n < 2:
        raise ConformanceFailure(f"FAIL randn: {n} of 99 elements wrong")

def helper_of_the_suite(n):
    raise KeyError("a name")

@pytest.mark.parametrize("n", range(3))
def test_error(recorder, n):
    print("captured of", n)
    helper_of_the_suite(n)

def test_bad(recorder):
    raise ConformanceFailure("Unregistered range")
"""
OTHER = "def test_that_is_no_case():\n    assert 'left' == 'right'\n"
FIRST = "test_a.py::test_wrong[0]"
WRONG = "wrong result in 4 cases (mm): numerics/randn: N of N elements wrong"
ERROR = "error outside the checks in 3 cases (no kernel): KeyError: 'a name'"


@pytest.fixture(autouse=True)
def _a_wide_terminal(monkeypatch):
    """Lines are looked for whole, which a narrow terminal would wrap."""
    monkeypatch.setenv("COLUMNS", "200")


def lines_of(project, *arguments: str) -> list[str]:
    project.suite("a", SUITE)
    (project.path / "known.toml").write_text(entry(cases='"test_a.py::test_bad"'))
    result = project.run("--expected-failures=known.toml", "--run-dir=run", *arguments)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert result.parseoutcomes() == {"failed": 7, "passed": 2, "xfailed": 1}
    return list(result.outlines)


def test_failures_are_lines_and_the_verdict_is_last(project, workers):
    lines = lines_of(project, *workers)
    start = next(number for number, line in enumerate(lines) if " conformance ====" in line)
    assert not any("helper_of_the_suite" in line or "ConformanceFailure" in line for line in lines[:start])
    text, end = "\n".join(lines[start:]), lines[-20:]
    assert text.count('raise KeyError("a name")') == 1, "one traceback of three alike"
    assert "recorder.verdict(" not in text
    assert text.count("FAIL randn: 0 of 99 elements wrong") == 1, "the diagnosis of one case of four"
    assert [line for line in lines if line.startswith("     test_a.py::")] == [
        *(f"     test_a.py::test_wrong[{n}]" for n in range(4)),
        *(f"     test_a.py::test_error[{n}]" for n in range(3)),
    ]
    assert "  known  1 case  https://example.org/42" in text
    assert end[end.index(f"  1. {WRONG}") - 1] == (
        "FAILED: 7 of 10 judged cases failed, by 2 causes; every other one passed or failed as expected"
    )
    assert f"  2. {ERROR}" in end
    assert any(f"show '{FIRST}' --run run" in line for line in end)
    assert lines[-1].startswith("=====")
    summary = (project.path / "run" / "summary.md").read_text()
    assert summary.index("FAILED: 7 of 10") < summary.index("Failed cases") < summary.index("Expected failures")
    assert summary.index("Expected failures") < summary.index("By kernel")


@pytest.mark.parametrize("words", [("--tb=short",), ("-vv",), ("--tb", "long"), ("-l",)], ids=" ".join)
def test_frames_that_are_asked_for_are_shown(project, words):
    lines = lines_of(project, *words)
    text = "\n".join(lines)
    assert text.count("KeyError: 'a name'") >= 3
    assert "____ test_error[2] ____" in text
    assert "captured of 2" in text
    assert text.count("traceback of the first") == 0
    assert any(line.startswith("FAILED: 7 of 10") for line in lines[-20:])


def test_without_tracebacks_there_is_no_example_either(project):
    text = "\n".join(lines_of(project, "--tb=no"))
    assert "FAIL randn" not in text
    assert "helper_of_the_suite" not in text
    assert f"     {FIRST}" in text


def test_quietly_only_the_verdict_is_printed(project):
    lines = lines_of(project, "-q")
    assert f"     {FIRST}" not in lines
    assert any(line.startswith("FAILED: 7 of 10") for line in lines[-12:])
    assert not any("helper_of_the_suite" in line for line in lines)


def test_lines_that_are_asked_for_by_r_are_shown(project):
    lines = lines_of(project, "-rfx")
    assert sum(line.startswith(("FAILED suites/test_a.py::", "ERROR suites/test_a.py::")) for line in lines) == 7
    assert any(line.startswith("XFAIL suites/test_a.py::test_bad") for line in lines)
    assert any(line.startswith("FAILED: 7 of 10") for line in lines[-12:])


def test_a_log_of_github_has_groups(project, monkeypatch):
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    lines = lines_of(project)
    opened = [number for number, line in enumerate(lines) if line.startswith("::group::")]
    closed = [number for number, line in enumerate(lines) if line == "::endgroup::"]
    assert len(opened) == len(closed) == 2
    assert closed[-1] < next(number for number, line in enumerate(lines) if line.startswith("FAILED: 7 of 10"))


def test_a_test_that_is_no_case_keeps_its_frames(project):
    project.suite("a", SUITE)
    (project.path / "test_other.py").write_text(OTHER)
    result = project.run("suites", "test_other.py")
    text = result.stdout.str()
    assert "____ test_that_is_no_case ____" in text
    assert "E       AssertionError: assert 'left' == 'right'" in text
    assert "____ test_error[0] ____" not in text
    assert "FAILED test_other.py::test_that_is_no_case" in text
    assert "FAILED: 8 of 10 judged cases failed" in text
    assert result.parseoutcomes()["failed"] == 9


def test_a_suite_that_cannot_be_imported_keeps_its_frames(project):
    project.suite("a", "import no_such_module_anywhere\n")
    text = project.run().stdout.str()
    assert "ERROR collecting suites/test_a.py" in text
    assert "no_such_module_anywhere" in text
    assert "FAILED: 1 of 1 judged case failed" in text


def test_an_internal_error_keeps_its_frames_and_the_verdict_follows(project, workers):
    project.suite("a", "def test_good(recorder): recorder.verdict('x', True)\n")
    (project.path / "conftest.py").write_text(
        "import os\n"
        "def pytest_runtest_logfinish(nodeid):\n"
        "    if 'PYTEST_XDIST_WORKER' not in os.environ: raise RuntimeError('planted in a hook')\n"
    )
    result = project.run(*workers)
    assert result.ret == pytest.ExitCode.INTERNAL_ERROR
    result.stdout.fnmatch_lines(["INTERNALERROR>*planted in a hook*", "*NOT COMPLETE: *", "exit status 3: *"])
    assert sum(line.startswith("NOT COMPLETE: ") for line in result.outlines) == 1


def test_a_hook_of_another_that_raises_at_the_end_costs_neither_records_nor_verdict(project):
    project.suite("good", "def test_good(recorder): recorder.verdict('x', True)")
    (project.path / "conftest.py").write_text("def pytest_sessionfinish(): raise ValueError('of a conftest')\n")
    result = project.run()
    assert result.ret == 75
    assert project.statuses == {"test_good": "pass"}
    assert [fault.text for fault in project.info.faults] == [
        "a hook at the end of the run raised ValueError: of a conftest"
    ]
    result.stdout.fnmatch_lines(["exit status 75: infrastructure*"])


def test_a_place_of_the_junit_file_that_cannot_be_written_costs_no_record(project):
    project.suite("good", "def test_good(recorder): recorder.verdict('x', True)")
    result = project.run("--junitxml=/proc/junit.xml")
    assert result.ret == 75
    assert project.statuses == {"test_good": "pass"}


def test_a_limit_of_threads_at_the_end_is_the_machines(project):
    (project.path / "conftest.py").write_text(
        "import os, pytest, threading\n"
        'def start(self): raise RuntimeError("can\'t start new thread")\n'
        "@pytest.hookimpl(wrapper=True, tryfirst=True)\n"
        "def pytest_sessionfinish():\n"
        "    if 'PYTEST_XDIST_WORKER' not in os.environ: threading.Thread.start = start\n"
        "    return (yield)\n"
    )
    project.suite("bad", "def test_bad(recorder): recorder.verdict('x', False, 'wrong')\n")
    result = project.run("-n", "1", "--conformance-reruns", "2")
    assert (result.ret, project.statuses) == (1, {"test_bad": "fail"})
    assert [fault.kind for fault in project.info.faults] == ["failed", "limit"]
    assert "Traceback" not in result.stdout.str() + result.stderr.str()


@pytest.mark.parametrize(
    "hook",
    [
        "@pytest.hookimpl(trylast=True)\ndef pytest_sessionstart(): end()\n",
        "from conformance.plugin import session_hooks\nsession_hooks.descendants = end\n",
    ],
    ids=["another's", "own"],
)
def test_a_signal_before_the_session_has_started_ends_the_run_in_order(project, workers, hook):
    """pytest finishes no session that has not started."""
    project.suite("good", "def test_good(recorder): recorder.verdict('x', True)\n")
    end = "    return set(() if 'PYTEST_XDIST_WORKER' in os.environ else filter(None, [os.kill(os.getpid(), 15)]))\n"
    (project.path / "conftest.py").write_text(f"import os, pytest\ndef end():\n{end}{hook}")
    result = project.run(*workers)
    assert result.ret == pytest.ExitCode.INTERRUPTED
    assert [(fault.kind, fault.text) for fault in project.info.faults] == [("interrupted", "SIGTERM ended the run")]
    result.stdout.fnmatch_lines(["exit status 2: unfinished *"])
    assert project.records == {}
