"""pytest's reports of failing cases: kept from its own lists of frames, unless the user asks for frames.

The streams of the terminal are guarded: a full disk under them costs lines, no records.
"""

from __future__ import annotations

import errno
import os
import sys
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, TextIO, cast

import pytest

from conformance.plugin.case_ids import CaseIds

#: Categories of reports that pytest shows with frames.
_SHOWN = ("failed", "error")
#: Attribute of a report whose case ended by an error that is no verdict: its frames say where.
RAISED = "conformance_raised"


def wants_frames(config: pytest.Config, words: Sequence[str]) -> bool:
    """True if the user asks for pytest's frames: by ``-vv``, ``--tb``, ``--showlocals`` or ``--full-trace`` among the
    ``words`` of the command line."""
    option = config.option
    if option.tbstyle == "no":
        return False
    tb_option = any(word.partition("=")[0] == "--tb" for word in words)
    return tb_option or config.get_verbosity() > 1 or option.showlocals or option.fulltrace


class CaseReports:
    """Takes the reports of failing cases away from pytest while it prints frames, and counts each case once.
    ``words`` are all of the command line."""

    def __init__(self, case_ids: CaseIds, words: Sequence[str]) -> None:
        self._case_ids = case_ids
        self._words = words
        self._hidden: dict[str, list[Any]] = {}
        self._raised: dict[str, str] = {}

    def hide(self, reporter: Any) -> None:
        """Hides the reports, unless the user asks for frames."""
        if wants_frames(reporter.config, self._words):
            return
        for category in _SHOWN:
            reports = reporter.stats.pop(category, [])
            self._hidden[category] = [report for report in reports if self._case(report) is not None]
            others = [report for report in reports if self._case(report) is None]
            if others:
                reporter.stats[category] = others
            for report in self._hidden[category]:
                if getattr(report, RAISED, False):
                    self._raised.setdefault(str(self._case(report)), report.longreprtext)

    @pytest.hookimpl(trylast=True)
    def pytest_terminal_summary(self, terminalreporter: Any) -> None:
        """Between pytest's frames and its short summary: lines of ``-r`` are shown if they are asked for."""
        if not self._hidden or any(word.startswith("-r") for word in self._words):
            self.give_back(terminalreporter)

    def give_back(self, reporter: Any) -> None:
        """Gives the hidden reports back for pytest's last line, whose counts become those of the records."""
        for category, reports in self._hidden.items():
            if reports:
                reporter.stats.setdefault(category, []).extend(reports)
        self._hidden = {}
        self._count_once(reporter.stats)

    def tracebacks(self) -> dict[str, str]:
        """Returns pytest's tracebacks of the cases that ended by an error, by their ids; empty if pytest has shown
        them."""
        return self._raised

    def _case(self, report: Any) -> str | None:
        return self._case_ids(report.nodeid) if isinstance(report, pytest.TestReport) else None

    def _count_once(self, stats: dict[str, list[Any]]) -> None:
        """pytest counts a case that failed in its teardown as passed, and as an error besides."""
        counted: set[str] = set()
        kept: defaultdict[str, list[Any]] = defaultdict(list)
        for category in ("failed", "error", "xfailed", "skipped", "passed"):
            for report in stats.pop(category, []):
                if self._case_ids(report.nodeid) is None:
                    kept[category].append(report)
                elif report.nodeid not in counted:
                    counted.add(report.nodeid)
                    kept["failed" if category == "error" else category].append(report)
        stats.update(kept)


def open_closed_streams() -> list[str]:
    """Opens the null device for each standard stream that was closed when this process began. Otherwise the next file
    that is opened would take its number. Returns the names of those streams."""
    closed = [name for name in ("stdin", "stdout", "stderr") if getattr(sys, name) is None]
    for name in closed:
        stream = open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8")  # noqa: SIM115  # for the whole run
        setattr(sys, name, stream)
        setattr(sys, f"__{name}__", stream)
    return closed


class GuardedOutput:
    """Guards streams. ``error`` is the first error of one of them, None while all take what is written."""

    def __init__(self) -> None:
        self.error: OSError | None = None

    def guard(self, stream: TextIO) -> TextIO:
        """A stream that writes to ``stream`` and raises no OSError."""
        return cast(TextIO, _GuardedStream(stream, self))

    def guard_reporter(self, config: pytest.Config) -> None:
        """Guards what pytest itself writes to its terminal."""
        writer = getattr(config.pluginmanager.get_plugin("terminalreporter"), "_tw", None)
        stream = getattr(writer, "_file", None)
        if stream is not None and not isinstance(stream, _GuardedStream):
            writer._file = self.guard(stream)  # type: ignore[union-attr]

    def settle(self) -> None:
        """Gives up what the streams have not written: Python would try once more when it ends, and fail by that."""
        if self.error is None:
            return
        nothing = os.open(os.devnull, os.O_WRONLY)
        for stream in (sys.__stdout__, sys.__stderr__):
            try:
                if stream is not None:
                    stream.flush()
            except OSError:
                os.dup2(nothing, cast(TextIO, stream).fileno())
        os.close(nothing)


class _GuardedStream:
    """A text stream that notes its first OSError, and loses what it cannot write."""

    def __init__(self, stream: TextIO, output: GuardedOutput) -> None:
        self._stream = stream
        self._output = output

    def write(self, text: str) -> int:
        self._attempt(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        self._attempt(self._stream.flush)

    def close(self) -> None:
        self._attempt(self._stream.close)

    def _attempt(self, work: Any) -> None:
        try:
            work()
        except (OSError, ValueError) as error:  # ValueError: a case has closed it
            closed = error if isinstance(error, OSError) else OSError(errno.EBADF, str(error))
            self._output.error = self._output.error or closed

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)
