"""Shows the progress of a long piece of work: on a terminal as a bar that changes, elsewhere as a plain line now and
then.

rich draws the bar. Where it is missing, or the stream is a file or a dumb terminal, the lines hold the same figures.

The durations of each case in earlier runs, by which the rest is estimated, are read here.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from conformance.records import PACKED_FILE, RECORDS_FILE, RUN_FILE, LineProblems, each_record, record_files

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.live import Live


#: Seconds between two plain lines.
LINE_SECONDS = 60.0
#: Seconds between two looks at the work.
LOOK_SECONDS = 0.5


@dataclass(frozen=True)
class Progress:
    """``done`` of ``total`` units, which ``unit`` names in the plural; ``facts`` are said after them. ``now`` is what
    is being worked on, ``source`` where an estimate comes from. A ``total`` of 0 is not known; then ``unit`` says it
    all."""

    unit: str
    done: int = 0
    total: int = 0
    facts: tuple[str, ...] = ()
    now: str = ""
    source: str = ""

    @property
    def counts(self) -> str:
        return ", ".join([f"{self.done} of {self.total} {self.unit}" if self.total else self.unit, *self.facts])

    @property
    def lines(self) -> list[str]:
        return [text for text in (self.counts, self.now, self.source) if text]

    def __str__(self) -> str:
        return "; ".join(self.lines)


Look = Callable[[], Progress]


def can_redraw(stream: TextIO) -> bool:
    """True if ``stream`` is a terminal on which a line can be drawn again, and there is a library that does it."""
    if not stream.isatty() or os.environ.get("TERM", "dumb") in ("", "dumb", "unknown"):
        return False
    try:
        import rich.live  # noqa: F401
    except ImportError:
        return False
    return True


class ProgressDisplay:
    """Shows the work that ``look`` tells of, from :meth:`show` to :meth:`hide`.

    On a terminal that can (``redraws``) it is a bar below what else is printed. Elsewhere ``write_line`` is called with
    one line every ``seconds``. ``keep`` is called with the progress at every look. Both are called from another thread.
    """

    def __init__(
        self,
        stream: TextIO,
        redraws: bool,
        write_line: Callable[[str], None],
        keep: Callable[[Progress], None] | None = None,
        seconds: float = LINE_SECONDS,
    ) -> None:
        self.redraws = redraws
        self._stream = stream
        self._write_line = write_line
        self._keep = keep
        self._seconds = seconds
        self._look: Look | None = None
        self._live: Live | None = None
        self._thread: threading.Thread | None = None
        self._ended = threading.Event()

    @property
    def showing(self) -> bool:
        return self._thread is not None

    @property
    def drawing(self) -> bool:
        """True if a bar is on the terminal now: what else is written there would be torn."""
        return self._live is not None

    def show(self, look: Look) -> None:
        """Begins to show ``look``, instead of what was shown before."""
        self.hide()
        self._look = look
        self._ended = threading.Event()
        thread = threading.Thread(target=self._watch, args=(look, self._ended), name="progress", daemon=True)
        with contextlib.suppress(RuntimeError):  # a limit of threads; progress is worth no failure
            thread.start()
            self._thread = thread
            if self.redraws:
                self._live = self._drawn(look)
                self._live.start()

    def hide(self) -> None:
        """Removes the progress bar and ends its output. Safe to call twice."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        if self._live is not None:
            self._live.stop()
        self._thread = self._live = None

    def note(self, line: str) -> None:
        """Prints ``line`` above the bar, if there is one."""
        if self._live is not None:
            self._live.console.print(line, style="red", markup=False, highlight=False)

    def _watch(self, look: Look, ended: threading.Event) -> None:
        looks = 0
        while not ended.wait(min(LOOK_SECONDS, self._seconds)):
            looks += 1
            progress = look()
            if self._keep is not None:
                self._keep(progress)
            if not self.redraws and looks * LOOK_SECONDS >= self._seconds:
                self._write_line(str(progress))
                looks = 0

    def _drawn(self, look: Look) -> Live:
        from rich.live import Live

        return Live(
            console=_console(self._stream),
            get_renderable=lambda: _bar(look()),
            refresh_per_second=1 / LOOK_SECONDS,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )


def _console(stream: TextIO) -> Console:
    from rich.console import Console

    class VisibleCursor(Console):
        def show_cursor(self, show: bool = True) -> bool:
            """Leaves the cursor alone: a process that is killed could not bring it back."""
            return False

    return VisibleCursor(file=stream, force_terminal=True)


def _bar(progress: Progress) -> RenderableType:
    """A line with the bar and the counts, one with what is being worked on, and one with the estimate's source."""
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.table import Table
    from rich.text import Text

    def line(text: str, style: str = "") -> Text:
        return Text(text, style, no_wrap=True, overflow="ellipsis")

    counts: RenderableType = line(progress.counts)
    if progress.total:
        table = Table.grid(padding=(0, 1))
        table.add_row(ProgressBar(progress.total, progress.done, width=20), counts)
        counts = table
    return Group(counts, *(line(text, "dim") for text in (progress.now, progress.source) if text))


def about(seconds: float) -> str:
    """Returns a duration as people say it: "40 s", "12 min", "3 h 5 min".

    >>> about(40), about(720), about(11100)
    ('40 s', '12 min', '3 h 5 min')
    """
    if seconds < 90:
        return f"{max(round(seconds), 1)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60} min"


#: Runs that are read, the newest first, and the most bytes of each one's records by the file that has them.
RUNS_READ = 3
BYTES_READ = {PACKED_FILE: 25_000_000, RECORDS_FILE: 250_000_000}


@dataclass(frozen=True)
class EarlierDurations:
    """``seconds`` of each case in the newest run that has it; ``run`` is the newest run's name, None if there is no
    earlier run in the folder."""

    beside: Path
    run: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)


def earlier_durations(folder: Path) -> EarlierDurations:
    """Returns the durations in the newest runs next to ``folder``. Whatever cannot be read is passed over."""
    seconds: dict[str, float] = {}
    newest: str | None = None
    for run in _runs(folder)[:RUNS_READ]:
        try:
            records = [placed.record for file in record_files(run) for placed in each_record(file, LineProblems())]
        except OSError:
            continue
        durations = {record.case: record.durations["total"] for record in records if "total" in record.durations}
        if durations:
            newest = newest or run.name
        seconds = {**durations, **seconds}
    return EarlierDurations(folder.parent, newest, seconds)


def _runs(folder: Path) -> list[Path]:
    """Returns the folders of runs next to ``folder`` that have records of a bearable size, the newest first."""
    runs = []
    try:
        for run in folder.parent.iterdir():
            merged = [file for file in record_files(run) if file.name in BYTES_READ and file.is_file()]
            if run != folder and merged and merged[0].stat().st_size <= BYTES_READ[merged[0].name]:
                runs.append(((run / RUN_FILE if (run / RUN_FILE).is_file() else merged[0]).stat().st_mtime, run))
    except OSError:
        pass  # a folder that went away, or one that cannot be listed
    return [run for _, run in sorted(runs, reverse=True)]
