"""The progress of a run of pytest: how many cases are done, how many fail, which one is slow, how long it will take."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from conformance.plugin.case_ids import CaseIds
from conformance.plugin.case_reports import GuardedOutput
from conformance.records import PROGRESS_FILE
from conformance.reporting.progress import (
    EarlierDurations,
    Look,
    Progress,
    ProgressDisplay,
    about,
    can_redraw,
    earlier_durations,
)
from conformance.reporting.text import clean

#: The part of the known work after which this run's own pace counts.
PACE_PART = 0.05


class CaseCounts:
    """Counts cases, and says how many seconds are left. ``workers`` run ``cases`` side by side."""

    def __init__(
        self, cases: Sequence[str], workers: int, earlier: EarlierDurations, clock: Callable[[], float] = time.monotonic
    ) -> None:
        seconds = {case: earlier.seconds[case] for case in cases if case in earlier.seconds}
        #: Seconds that each case took before; a new one is taken to be like the others.
        self._expected: dict[str, float] | None = None
        self._source = f"time left at the pace so far: no earlier run in {earlier.beside}"
        if 2 * len(seconds) >= len(cases) > 0:
            usual = sum(seconds.values()) / len(seconds)
            self._expected = {case: seconds.get(case, usual) for case in cases}
            self._source = f"time left by the durations of the run {earlier.run}"
        elif earlier.run is not None:
            self._source = f"time left at the pace so far: the run {earlier.run} has few of these cases"
        self._left = dict.fromkeys(cases)
        self._total = len(self._left)
        self._workers = workers
        self._clock = clock
        self._began = clock()
        self._running: dict[str, float] = {}
        self._failing: set[str] = set()
        self._expected_failures: set[str] = set()
        self._lock = threading.Lock()  # the display looks from another thread

    def started(self, case: str) -> None:
        with self._lock:
            self._running[case] = self._clock()

    def ended(self, case: str) -> None:
        with self._lock:
            self._running.pop(case, None)
            self._left.pop(case, None)

    def failed(self, case: str) -> bool:
        """True if this is the first failure of ``case``."""
        with self._lock:
            first = case not in self._failing
            self._failing.add(case)
        return first

    def failed_as_expected(self, case: str) -> None:
        with self._lock:
            self._expected_failures.add(case)

    def look(self) -> Progress:
        with self._lock:
            left, running, failing = list(self._left), dict(self._running), len(self._failing)
            expected = len(self._expected_failures - self._failing)
        facts = [f"{failing} failing"]
        if expected:
            facts.append(f"{expected} failed as expected")
        seconds = self._seconds_left(left, running)
        if left and seconds is not None:
            facts.append(f"about {about(seconds)} left")
        now = ""
        if running:
            slowest = min(running, key=running.__getitem__)
            now = f"slowest now: {about(self._clock() - running[slowest])} in {slowest}"
        return Progress("cases", self._total - len(left), self._total, tuple(facts), clean(now), self._source)

    def _seconds_left(self, left: Sequence[str], running: Mapping[str, float]) -> float | None:
        """Seconds until the last of the cases that are ``left``; None while nothing is known. The pace of this run
        counts once it has done enough: the machine may be another one."""
        now, done = self._clock(), self._total - len(left)
        elapsed = now - self._began
        if self._expected is None:
            return elapsed / done * len(left) if done else None
        total, rest = sum(self._expected.values()), sum(self._expected[case] for case in left)
        counts = total - rest > PACE_PART * total
        pace = elapsed * self._workers / (total - rest) if counts else 1.0
        ahead = [
            max(self._expected[case] * pace - (now - running[case] if case in running else 0.0), 0.0) for case in left
        ]
        return max(sum(ahead) / self._workers, max(ahead, default=0.0))


class RunProgress:
    """Hooks that count, and the display. Lines go to a copy of the standard output, which pytest does not capture."""

    def __init__(
        self, config: pytest.Config, folder: Path, workers: int, case_ids: CaseIds, output: GuardedOutput
    ) -> None:
        self._config = config
        self._case_ids = case_ids
        self._folder = folder
        self._workers = max(workers, 1)
        verbosity = config.get_verbosity()
        self._silent = verbosity < -1
        copy = os.fdopen(os.dup(sys.__stdout__.fileno() if sys.__stdout__ else 1), "w", encoding="utf-8")
        self._stream = output.guard(copy)
        config.add_cleanup(self._stream.close)
        # Lines of single tests, a test's own output and a debugger are not torn by a bar.
        plain = verbosity > 0 or config.getoption("capture", "no") == "no" or config.getoption("usepdb", False)
        # Without xdist pytest leaves the line of the running test open; with dots it always does.
        self._line_is_open = verbosity <= 0 or not workers
        redraws = not plain and can_redraw(self._stream)
        self._display = ProgressDisplay(self._stream, redraws, self._write_line, self._keep)
        self._counts: CaseCounts | None = None
        self._cases: Sequence[str] = ()
        self._earlier = EarlierDurations(folder.parent)
        self._reading = threading.Thread(target=self._read_earlier, name="earlier-durations", daemon=True)
        with contextlib.suppress(RuntimeError):  # a limit of threads: no durations are known
            self._reading.start()

    def _read_earlier(self) -> None:
        self._earlier = earlier_durations(self._folder)

    def _write_line(self, text: str) -> None:
        if not self._silent:
            with contextlib.suppress(OSError):  # the reader has closed the stream
                print("\n" * self._line_is_open + f"progress: {text}", file=self._stream, flush=True)

    def _keep(self, progress: Progress) -> None:
        with contextlib.suppress(OSError):  # progress is worth no failure
            (self._folder / PROGRESS_FILE).write_text("\n".join(progress.lines), encoding="utf-8")

    def show(self, look: Look) -> None:
        """Shows a stage before the first case, until :meth:`hide`."""
        if self._silent:
            return
        if self._display.redraws:
            print("\r\x1b[2K", end="", file=self._stream, flush=True)  # the line that xdist writes about its workers
        self._display.show(look)

    def hide(self) -> None:
        self._display.hide()

    def selected(self, cases: Sequence[str]) -> None:
        """Takes note of the cases that will run. They are shown from the first one on."""
        self._cases = cases

    # Hooks

    @pytest.hookimpl(tryfirst=True)  # pytest's own prints the name of the file
    def pytest_runtest_logstart(self, nodeid: str) -> None:
        case = self._case_ids(nodeid)
        if case is None or self._silent:
            return
        if self._counts is None:
            if self._reading.is_alive():
                self._reading.join()
            self._counts = CaseCounts(self._cases, self._workers, self._earlier)
            reporter = self._config.pluginmanager.get_plugin("terminalreporter")
            if self._display.redraws and reporter is not None:
                reporter.showfspath = False  # the names of files belong to the dots, which are not shown
        self._counts.started(case)
        if not self._display.showing:
            self._display.show(self._counts.look)

    def pytest_runtest_logfinish(self, nodeid: str) -> None:
        case = self._case_ids(nodeid)
        if case is not None and self._counts is not None:
            self._counts.ended(case)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        case = self._case_ids(report.nodeid)
        if case is None or self._counts is None:
            return
        if report.failed and self._counts.failed(case):
            self._display.note(f"FAILED {clean(case)}")
        if hasattr(report, "wasxfail"):
            self._counts.failed_as_expected(case)
        if report.when not in ("setup", "call", "teardown"):  # xdist's report of a case that ended its worker
            self._counts.ended(case)

    @pytest.hookimpl(wrapper=True)
    def pytest_report_teststatus(self) -> Generator[None, Any, Any]:
        """Without a letter and a word pytest counts a report and prints nothing: the bar stands for the dots."""
        category, letter, word = yield
        return (category, "", "") if self._display.drawing else (category, letter, word)

    @pytest.hookimpl(tryfirst=True, optionalhook=True)
    def pytest_testnodedown(self, error: object | None) -> None:
        """xdist prints lines about a worker that died; the bar is away until the next case begins."""
        if error:
            self._display.hide()

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self) -> None:
        self.hide()

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self.hide()
        with contextlib.suppress(OSError):
            (self._folder / PROGRESS_FILE).unlink(missing_ok=True)  # what follows takes seconds

    def pytest_unconfigure(self) -> None:
        self.hide()
