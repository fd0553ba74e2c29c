"""Watches the collection of each file: one that hangs or ends its process is one failed record.

A file that hangs in Python gets an exception. Where a process ended in the midst of a file, the process that leads the
run marks that file. Later processes report it as failed in place of its import.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NoReturn

import pytest

from conformance.exception_text import printable
from conformance.machine.overdue import Overdue, deadline
from conformance.machine.process_state import ProcessState
from conformance.plain_json import TEXT_LIMIT
from conformance.plugin.case_ids import escaped

_exit = os._exit  # a file may replace it
#: The marked files of a run, a line each.
MARKED_FILE = "uncollectable.jsonl"


def collecting_file(folder: Path, worker: str) -> Path:
    """Returns the file that names what a worker collects at the moment."""
    return folder / f"collecting-{worker}.txt"


def collected_now(folder: Path, worker: str) -> str:
    """Returns the node id of the file that a worker collects, or was collecting when it ended; empty if none."""
    try:
        return collecting_file(folder, worker).read_text(encoding="utf-8")
    except OSError:
        return ""


def mark(folder: Path, nodeid: str, why: str) -> None:
    """Has later processes report the file ``nodeid`` as failed because of ``why``."""
    with open(folder / MARKED_FILE, "a", encoding="utf-8") as file:
        file.write(json.dumps([nodeid, why]) + "\n")


def marked(folder: Path) -> dict[str, str]:
    """Returns why each marked file cannot be collected, by node id."""
    try:
        lines = (folder / MARKED_FILE).read_text(encoding="utf-8").splitlines()
    except OSError:
        return {}
    return dict(json.loads(line) for line in reversed(lines))


#: How the words begin that name what a case or a file has changed of its process for ever.
LEFT_CHANGED = "left its process changed, and this cannot be restored"


def left_changed(lost: Sequence[str]) -> str:
    """Returns what a case or a file did that has changed the parts ``lost`` of its process for ever."""
    return f"{LEFT_CHANGED}: {', '.join(lost)}"


def ends_the_run(why: str) -> str:
    """Returns the last sentence of a run whose only process can go on no longer because of ``why``."""
    return f"{why}; the process is pytest's own, so the run ends here; with '-n 1' or more only a worker ends"


#: Seconds that the hooks of other plugins have at least to choose among the items.
HOOKS_S = 300.0
#: No hook is slower than that with many items.
_ITEMS_A_SECOND = 1000


class CollectionWatch:
    """Hooks of a process that collects, whose name in the run's ``folder`` is ``worker``; each file has ``seconds``.
    Without a folder nothing outside this process watches."""

    def __init__(self, seconds: float, folder: Path | None = None, worker: str = "") -> None:
        self._seconds = seconds
        self._folder = folder
        self._place = None if folder is None else collecting_file(folder, worker)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_make_collect_report(
        self, collector: pytest.Collector
    ) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
        if not isinstance(collector, pytest.File):
            return (yield)
        nodeid = escaped(collector.nodeid)
        why = marked(self._folder).get(nodeid) if self._folder is not None else None
        if nodeid != collector.nodeid:
            why = f"{nodeid}: this path is not UTF-8, and no record can hold it: rename the file or its folder"
        if why is not None:

            def refuse() -> NoReturn:
                raise collector.CollectError(why)

            collector.collect = refuse  # type: ignore[method-assign]
        else:
            collector.collect = partial(_collected, collector.collect)  # type: ignore[method-assign]
        self._note(nodeid)
        state = ProcessState(needed=True)
        try:
            with deadline(f"the collection of {nodeid}", self._seconds):
                report = yield
            report.nodeid = nodeid
            report.sections = [(title, _cut(text)) for title, text in report.sections]
            return report
        except Overdue as error:  # it came as pytest had caught what the file raised itself
            return pytest.CollectReport(nodeid, "failed", str(error), [])
        finally:
            _, lost = state.restore()
            if lost and self._folder is not None:  # the process that leads the run then marks the file
                os.write(2, f"conformance: {nodeid} has changed {', '.join(lost)}; its process ends\n".encode())
                _exit(os.EX_TEMPFAIL)
            if lost:
                pytest.exit(ends_the_run(f"{nodeid} {left_changed(lost)}"))
            self._note("")

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> Generator[None, Any, Any]:
        seconds = max(self._seconds, HOOKS_S, len(items) / _ITEMS_A_SECOND)
        with deadline("the hook pytest_collection_modifyitems of a plugin or a conftest", seconds):
            return (yield)

    def _note(self, nodeid: str) -> None:
        if self._place is not None:
            with contextlib.suppress(OSError):  # whoever writes records says what is wrong with the folder
                self._place.write_text(nodeid, encoding="utf-8")


def _collected(collect: Callable[[], Iterable[Any]]) -> list[Any]:
    """Returns what ``collect`` gives. A long error is cut: to print one of 30 MB takes a minute."""
    try:
        return list(collect())
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        replacement = printable(error)
        if replacement is error:
            raise
        raise replacement from None


def _cut(text: str) -> str:
    """Returns ``text`` that a file has printed, cut if it is long."""
    return text if len(text) <= TEXT_LIMIT else f"{text[:TEXT_LIMIT]} ... ({len(text)} characters)"
