"""A worker that dies, hangs or spoils its GPU costs one case, and that case has a record that says so."""

from __future__ import annotations

import pytest

from tests.gate.sample_entries import entry

pytest_plugins = ["pytester"]

GOOD = """
@pytest.mark.parametrize("i", range(6))
def test_good(recorder, i): recorder.verdict("x", True)
"""
GOOD_STATUSES = {f"test_good[{i}]": "pass" for i in range(6)}

DEATHS = {
    "exit": "os._exit(0)",
    "signal": "import signal; os.kill(os.getpid(), signal.SIGSEGV)",
}


@pytest.mark.parametrize("death", DEATHS)
def test_death_of_a_worker_costs_its_case_only(project, death):
    project.suite("good", GOOD)
    project.suite(
        "bad",
        f"""
def test_bad(recorder):
    recorder.set(kernel="mm", executor="interpreter")
    with recorder.timed("run"):
        {DEATHS[death]}
""",
    )
    result = project.run("-n", "2")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.statuses == {**GOOD_STATUSES, "test_bad": "crash"}
    assert project.info.problems == ()
    record = project.records["test_bad"]
    assert (record.kernel, record.executor, record.outcome) == ("mm", "interpreter", "process-died")
    by = ", by SIGSEGV" if death == "signal" else ""
    assert record.diagnosis == f"the process died while it ran this case in stage run{by}"
    assert record.worker.startswith("gw")
    result.stdout.fnmatch_lines(
        ["1. crash in 1 case (mm): *", "     test_bad.py::test_bad", "FAILED: 1 of 7 judged cases failed*"]
    )


HANGS = {
    "sleeping": "time.sleep(600)",
    "locked": "import ctypes; ctypes.PyDLL(None).sleep(600)",
}


@pytest.mark.parametrize("hang", HANGS)
def test_hang_is_a_timeout(project, hang, monkeypatch):
    project.suite("good", GOOD)
    project.suite("bad", f"def test_bad(recorder):\n    recorder.set(kernel='mm')\n    {HANGS[hang]}\n")
    (project.path / "conftest.py").write_text(
        "from conformance.plugin import watchdog\nwatchdog.LOCK_GRACE_S = 1.0\n"  # 5 s would only take longer
    )
    result = project.run("-n", "2", "--case-timeout", "0.5")
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.statuses == {**GOOD_STATUSES, "test_bad": "timeout"}
    assert project.info.problems == ()
    record = project.records["test_bad"]
    assert record.kernel == "mm"
    assert "past its deadline" in record.diagnosis
    assert 'test_bad.py", line' in record.diagnosis  # the stacks


def test_hang_without_xdist_ends_the_run_with_a_message(project):
    project.suite("bad", "def test_bad(recorder): time.sleep(600)\ndef test_next(recorder): pass\n")
    result = project.run("--case-timeout", "0.3")
    assert result.ret == 1
    result.stderr.fnmatch_lines(["*test_bad.py::test_bad: timeout: ran past its deadline of 0.3 s*", "*with '-n 1'*"])
    assert project.statuses == {"test_bad": "timeout"}
    assert project.info.problems == ("1 selected but not recorded: test_bad.py::test_next",)
    assert "test_next" in (project.folder / "summary.md").read_text()


FAKE_TORCH = """
import sys, types
class Cuda:
    broken = False
    def is_initialized(self): return True
    def memory_reserved(self): return 0
    def synchronize(self):
        if self.broken: raise RuntimeError("an illegal memory access was encountered")
sys.modules["torch"] = types.SimpleNamespace(cuda=Cuda(), __version__="9.9")
"""


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_gpu_fault_is_blamed_on_the_case_that_left_it(project, workers):
    project.suite(
        "gpu",
        FAKE_TORCH
        + """
def test_a(recorder): recorder.verdict("x", True)
def test_b(recorder):
    recorder.verdict("x", True)
    sys.modules["torch"].cuda.broken = True
def test_c(recorder): recorder.verdict("x", True)
""",
    )
    result = project.run(*workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    record = project.records["test_b"]
    assert record.status.value == "crash"
    assert "left its GPU unusable: RuntimeError: an illegal memory access was encountered" in record.diagnosis
    assert project.statuses == {"test_a": "pass", "test_b": "crash"} | ({"test_c": "pass"} if workers else {})
    assert project.records["test_a"].stack["torch"] == "9.9"


NAMED = (
    FAKE_TORCH
    + """
def test_a(recorder): recorder.verdict("x", True)
def test_b(recorder):
    sys.modules["torch"].cuda.broken = True
    recorder.verdict("memory/randn", False, "reads behind 'a'")
    recorder.fault_named = True
    raise AssertionError("memory/randn: reads behind 'a'")
def test_c(recorder): recorder.verdict("x", True)
"""
)


@pytest.mark.parametrize("workers", [(), ("-n", "1")], ids=["alone", "xdist"])
def test_gpu_fault_whose_cause_a_verdict_names_is_a_failure(project, workers):
    project.suite("gpu", NAMED)
    result = project.run(*workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    record = project.records["test_b"]
    assert (record.status.value, record.outcome) == ("fail", "process-ended")
    assert record.diagnosis.count("reads behind 'a'") == 1
    assert project.statuses == {"test_a": "pass", "test_b": "fail"} | ({"test_c": "pass"} if workers else {})


def test_such_a_fault_may_be_expected(project):
    project.suite("gpu", NAMED)
    text = entry(cases='"test_gpu.py::test_b"', seen='"reads behind"')
    (project.path / "known.toml").write_text(text)
    project.run("--expected-failures=known.toml", "-n", "1")
    record = project.records["test_b"]
    assert record.status.value == "expected-fail"
    assert record.reason.subject == "known"
    assert project.statuses == {"test_a": "pass", "test_b": "expected-fail", "test_c": "pass"}


def test_a_fault_without_a_name_may_be_expected_and_fails_no_run(project):
    project.suite("gpu", NAMED.replace("    recorder.fault_named = True\n", ""))
    text = entry(cases='"test_gpu.py::test_b"', seen='"reads behind"', status='"crash"')
    (project.path / "known.toml").write_text(text)
    result = project.run("--expected-failures=known.toml", "-n", "1")
    assert result.ret == 0
    assert project.records["test_b"].diagnosis.count("left its GPU unusable") == 1
    assert project.statuses == {"test_a": "pass", "test_b": "expected-fail", "test_c": "pass"}


def test_workers_that_die_in_collection_end_the_run(project):
    project.suite("bad", "def test_bad(recorder): pass\n")
    (project.path / "conftest.py").write_text(
        "import os\nif 'PYTEST_XDIST_WORKER' in os.environ: os._exit(3)\n"
        "from conformance.plugin import worker_starts\nworker_starts.PAUSES_S = (0.01, 0.02, 0.03)\n"
    )
    result = project.run("-n", "2")
    assert result.ret == 1
    result.stdout.fnmatch_lines(["*workers die before they have collected the suites*"])
