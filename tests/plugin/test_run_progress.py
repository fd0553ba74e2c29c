"""A run says how far it is: by a bar on a terminal that can draw one, by plain lines elsewhere."""

from __future__ import annotations

import importlib.util
import os
import pty
import subprocess
import sys
import time
from pathlib import Path

import pytest

from conformance.plugin.progress import CaseCounts
from conformance.records import CaseRecord, Status, Verdict
from conformance.reporting.progress import EarlierDurations, earlier_durations
from tests.command_runs import write_run
from tests.gate.sample_entries import entry

CASES = [f"test_a.py::test_x[{n}]" for n in range(10)]
EARLIER = EarlierDurations(Path("reports"), "the-last", dict.fromkeys(CASES, 6.0))
pytest_plugins = ["pytester"]
SUITE = """
@pytest.mark.parametrize("n", range(8))
def test_x(recorder, n):
    recorder.verdict("numerics", n != 2, "as planted")
    time.sleep(0.1)
"""
with_rich = pytest.mark.skipif(not importlib.util.find_spec("rich"), reason="rich is not installed")


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def run_cases(counts: CaseCounts, clock: Clock, cases: list[str], seconds: float) -> None:
    for case in cases:
        counts.started(case)
        clock.now += seconds
        counts.ended(case)


def test_the_time_left_comes_from_earlier_durations(clock):
    counts = CaseCounts(CASES, 2, EARLIER, clock)
    source = "time left by the durations of the run the-last"
    assert str(counts.look()) == f"0 of 10 cases, 0 failing, about 30 s left; {source}"


def test_a_slower_machine_takes_longer_than_before(clock):
    counts = CaseCounts(CASES, 1, EARLIER, clock)
    run_cases(counts, clock, CASES[:5], 12)
    assert "5 of 10 cases, 0 failing, about 60 s left" in str(counts.look())


def test_one_long_case_decides_when_the_run_ends(clock):
    seconds = {**EARLIER.seconds, CASES[9]: 50.0}
    counts = CaseCounts(CASES, 8, EarlierDurations(Path("reports"), "the-last", seconds), clock)
    assert "about 50 s left" in str(counts.look())
    counts.started(CASES[9])
    clock.now += 20
    assert "about 30 s left" in str(counts.look())


def test_without_an_earlier_run_the_pace_so_far_counts_and_is_said(clock):
    counts = CaseCounts(CASES, 2, EarlierDurations(Path("reports")), clock)
    assert "left" not in counts.look().counts
    run_cases(counts, clock, CASES[:2], 10)
    assert str(counts.look()).endswith("about 80 s left; time left at the pace so far: no earlier run in reports")


def test_an_earlier_run_of_other_cases_says_nothing_about_these(clock):
    counts = CaseCounts(CASES, 2, EarlierDurations(Path("r"), "the-last", {CASES[0]: 1e6}), clock)
    assert "the-last has few of these cases" in str(counts.look())


def test_the_slowest_case_and_the_failing_ones_are_said(clock):
    counts = CaseCounts(CASES, 2, EARLIER, clock)
    counts.started(CASES[3])
    clock.now += 41
    counts.started(CASES[4])
    assert counts.failed(CASES[4])
    assert not counts.failed(CASES[4])  # its call failed, then its teardown
    assert counts.look().facts[0] == "1 failing"
    assert counts.look().now == f"slowest now: 41 s in {CASES[3]}"


EXPECTED_SUITE = """
@pytest.mark.parametrize("n", range(8))
def test_bad(recorder, n):
    time.sleep(0.1)
    recorder.verdict("numerics", n > 1, "Unregistered range")
"""


def test_an_expected_failure_is_not_counted_as_failing(clock):
    counts = CaseCounts(CASES, 2, EARLIER, clock)
    counts.failed_as_expected(CASES[1])
    counts.failed_as_expected(CASES[2])
    counts.failed(CASES[2])  # in its teardown, by something else
    assert counts.look().facts[:2] == ("1 failing", "1 failed as expected")


def earlier_run(folder: Path, seconds: float, cases: list[str], age: float) -> None:
    judged = (Verdict("numerics", True),)
    records = [CaseRecord(case, "a", Status.PASS, durations={"total": seconds}, verdicts=judged) for case in cases]
    write_run(folder, records)
    for file in folder.iterdir():
        os.utime(file, (time.time() - age,) * 2)


def test_the_newest_run_beside_this_one_counts(tmp_path):
    earlier_run(tmp_path / "a", 1.0, CASES, age=300)
    earlier_run(tmp_path / "z", 9.0, CASES, age=900)
    earlier_run(tmp_path / "m", 3.0, CASES[:2], age=100)
    (tmp_path / "broken").mkdir()
    (tmp_path / "broken" / "records.jsonl").write_text("{no record\n")
    os.mkfifo(tmp_path / "fifo")
    earlier_run(tmp_path / "this", 77.0, CASES, age=0)
    earlier = earlier_durations(tmp_path / "this")
    assert earlier.run == "m"
    assert [earlier.seconds[case] for case in CASES[1:3]] == [3.0, 1.0]


def test_a_first_run_has_no_earlier_one(tmp_path):
    assert earlier_durations(tmp_path / "reports" / "this").run is None


def on_terminal(project, *arguments: str, **variables: str) -> str:
    """Returns the terminal output of a run of the project."""
    main, side = pty.openpty()
    command = [sys.executable, "-m", "pytest", "-p", "conformance.plugin", *arguments]
    process = subprocess.Popen(
        command, cwd=project.path, stdin=side, stdout=side, stderr=side, env={**os.environ, **variables}
    )
    os.close(side)
    written = b""
    while True:
        try:
            part = os.read(main, 65536)
        except OSError:  # the last writer is gone
            break
        if not part:
            break
        written += part
    os.close(main)
    process.wait(timeout=60)
    return written.decode()


@with_rich
def test_a_terminal_has_a_bar_in_place_of_the_dots(project, workers):
    project.suite("a", SUITE)
    earlier_run(project.path / "reports" / "the-last", 0.2, [f"test_a.py::test_x[{n}]" for n in range(8)], age=9)
    written = on_terminal(project, *workers, "--conformance-run-dir", "reports/this", TERM="xterm")
    before, _, after = written.partition(" conformance ====")
    assert "of 8 cases, 1 failing" in before
    assert "slowest now: " in before
    assert "time left by the durations of the run the-last" in before
    assert "\x1b[2K" in before  # drawn again
    assert "FAILED test_a.py::test_x[2]" in before
    assert "%]" not in before
    assert "\x1b[2K" not in after
    assert "of 8 cases" not in after
    assert "?25l" not in written  # the cursor stays visible, whatever ends the run
    assert not (project.path / "reports" / "this" / "progress.txt").exists()


@pytest.mark.parametrize(
    ("arguments", "variables"),
    [([], {"TERM": "dumb"}), (["-v", "-s"], {"TERM": "xterm"})],
    ids=["a dumb terminal", "tests with lines and an output of their own"],
)
def test_other_terminals_are_not_redrawn(project, arguments, variables):
    project.suite("a", SUITE)
    before = on_terminal(project, *arguments, **variables).partition(" conformance ====")[0]
    assert "of 8 cases" not in before
    assert "\x1b[2K" not in before


#: A line every tenth of a second, instead of every minute.
OFTEN = (
    "import conformance.reporting.progress as p\n"
    "p.LOOK_SECONDS, p.ProgressDisplay.__init__.__defaults__ = 0.1, (None, 0.1)\n"
)


def test_a_run_whose_failures_are_expected_says_so_on_the_way(project, workers):
    project.suite("bad", EXPECTED_SUITE)
    (project.path / "conftest.py").write_text(OFTEN)
    (project.path / "known.toml").write_text(entry(intermittent="true"))
    output = project.run(*workers, "--expected-failures=known.toml").stdout.str()
    lines = [line for line in output.splitlines() if line.startswith("progress: ")]
    assert all(", 0 failing" in line for line in lines)
    assert any("failed as expected" in line for line in lines)


def test_a_log_has_plain_lines(project, workers, monkeypatch):
    project.suite("a", SUITE)
    (project.path / "conftest.py").write_text(OFTEN)
    output = project.run(*workers).stdout.str()
    lines = [line for line in output.splitlines() if line.startswith("progress: ")]
    assert lines
    assert all(" of 8 cases, " in line for line in lines)
    assert "\r" not in output
    assert "\x1b" not in output
