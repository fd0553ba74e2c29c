"""pytest's cache of what failed: with workers and without, the next run has these cases, and loses none."""

from __future__ import annotations

import pytest

from conformance.records import read_records

pytest_plugins = ["pytester"]

#: Cases that end in every way that can fail, unless the variable says that they were mended.
SUITE = """
MENDED = "MENDED" in os.environ

@pytest.fixture
def broken(request):
    assert MENDED or request.param != "setup"
    yield
    assert MENDED or request.param != "teardown"

@pytest.mark.parametrize("i", range(6))
def test_good(recorder, i): recorder.verdict("x", True)

@pytest.mark.parametrize("broken", ["setup", "teardown", "no"], indirect=True)
def test_phase(recorder, broken): recorder.verdict("x", True)

def test_wrong(recorder): recorder.verdict("x", MENDED)
def test_nothing(recorder): MENDED and recorder.verdict("x", True)
def test_refused(recorder): recorder.not_applicable(Reason(ReasonCode.CONFIG, "x", "y"))
"""
DEATH = """
def test_death(recorder):
    if not MENDED:
        os.kill(os.getpid(), 11)
    recorder.verdict("x", True)
"""
FAILING = {"test_phase[setup]", "test_phase[teardown]", "test_wrong", "test_nothing"}


def counted(project, words: tuple[str, ...]) -> tuple[dict[str, int], list[str], set[str]]:
    """pytest's counts of a run, the names of its cases in their order, and of those that failed."""
    folder = project.path / f"run{len(list(project.path.glob('run*')))}"
    result = project.run(f"--run-dir={folder}", *words)
    selected = [case.partition("::")[2] for case in (folder / "selected.txt").read_text().splitlines()]
    records = read_records(folder).records
    assert sorted(record.case.partition("::")[2] for record in records) == sorted(selected)
    failing = {
        record.case.partition("::")[2] for record in records if record.status.value not in ("pass", "not-applicable")
    }
    return result.parseoutcomes(), selected, failing


@pytest.fixture
def cached(project):
    """A project that has pytest's cache."""
    ini = project.path / "pytest.ini"
    ini.write_text(ini.read_text().replace("-p no:cacheprovider ", ""))
    return project


def test_what_failed_is_run_again(cached, workers, monkeypatch):
    failing = FAILING | ({"test_death"} if workers else set())
    cached.suite("mixed", SUITE + DEATH * bool(workers))
    counts, selected, failed = counted(cached, workers)
    assert failed == failing
    assert (counts["failed"], counts["passed"], counts["skipped"]) == (len(failing), 7, 1)
    counts, selected, failed = counted(cached, ("--lf", *workers))
    assert failed == set(selected) == failing
    assert counts["failed"] == len(failing)
    assert "passed" not in counts
    _, selected, failed = counted(cached, ("--ff", *workers))
    assert (len(selected), failed, set(selected[: len(failing)])) == (8 + len(failing), failing, failing)
    monkeypatch.setenv("MENDED", "1")
    counts, selected, failed = counted(cached, ("--lf", *workers))
    assert (counts["passed"], set(selected), failed) == (len(failing), failing, set())
    assert len(counted(cached, ("--lf", *workers))[1]) == 8 + len(failing)  # as pytest does when nothing failed
    nothing = cached.run("--lf", "--lfnf=none", "-k", "good", *workers)
    assert nothing.ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert not (cached.path / "reports").exists()


def test_workers_are_not_asked_what_would_run(project, workers):
    project.suite("good", "@pytest.mark.parametrize('kernel', ['mm', 'bmm'])\ndef test_a(recorder, kernel): pass\n")
    result = project.run("--collect-only", "-q", "--kernel", "mm", *workers)
    result.stdout.fnmatch_lines(["suites/test_good.py::test_a[[]mm]"])
    assert "bmm" not in result.stdout.str()
