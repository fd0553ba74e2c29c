"""The display of a long piece of work."""

from __future__ import annotations

import importlib.util
import io
import sys
import time

import pytest

from conformance.reporting import progress
from conformance.reporting.progress import Progress, ProgressDisplay, about, can_redraw


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.2, "1 s"), (89, "89 s"), (100, "2 min"), (5000, "83 min"), (11_100, "3 h 5 min")]
)
def test_durations_are_rounded(seconds, text):
    assert about(seconds) == text


def test_only_a_terminal_that_can_is_redrawn(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    assert can_redraw(Terminal()) is bool(importlib.util.find_spec("rich"))
    assert not can_redraw(io.StringIO())
    for term in ("dumb", "", "unknown"):
        monkeypatch.setenv("TERM", term)
        assert not can_redraw(Terminal())


def test_without_rich_there_are_lines(monkeypatch):
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setitem(sys.modules, "rich", None)
    monkeypatch.setitem(sys.modules, "rich.live", None)
    assert not can_redraw(Terminal())


def test_lines_come_now_and_then_until_the_work_is_hidden(monkeypatch):
    monkeypatch.setattr(progress, "LOOK_SECONDS", 0.01)
    lines, kept, stream = [], [], io.StringIO()
    display = ProgressDisplay(stream, False, lines.append, kept.append, seconds=0.03)
    display.show(lambda: Progress("kernels compiled", 3, 7, ("1 failing",)))
    end = time.monotonic() + 20
    while len(lines) < 2 and time.monotonic() < end:
        time.sleep(0.01)
    display.hide()
    assert set(lines) == {"3 of 7 kernels compiled, 1 failing"}
    assert len(kept) > len(lines)
    before = len(lines)
    time.sleep(0.1)
    assert len(lines) == before
    assert stream.getvalue() == ""


def test_text_of_a_case_is_not_markup():
    pytest.importorskip("rich")
    stream = Terminal()
    display = ProgressDisplay(stream, True, print)
    display.show(lambda: Progress("cases", 1, 2, now="slowest now: 2 s in [red]x[/red]"))
    display.note("FAILED [bold]y[/bold]")
    display.hide()
    assert "[red]x[/red]" in stream.getvalue()
    assert "FAILED [bold]y[/bold]" in stream.getvalue()
