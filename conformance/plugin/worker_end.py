"""Ends a worker whose own code fails, so that it costs one case and is replaced. xdist would end the run of all."""

from __future__ import annotations

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import pytest

from conformance.exception_text import place_of, text_of
from conformance.plugin.record_files import death_file

_exit = os._exit  # a case may replace it
_EXIT_CODE = 1
#: Frames of an internal error that are kept.
_FRAMES = 8


class WorkerEnd:
    """Hooks of the worker ``name`` of the run in ``folder``. ``lacks`` returns True if a node id is that of a case
    without a record."""

    def __init__(self, folder: Path, name: str, lacks: Callable[[str], bool]) -> None:
        self._file = death_file(folder, name)
        self._lacks = lacks

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        self._end(excinfo.value)

    @pytest.hookimpl(tryfirst=True)  # before xdist's, which says that the collection has ended
    def pytest_collection_finish(self) -> None:
        """Ends the process if an error ends the collection: pytest calls this hook then, too."""
        error = sys.exc_info()[1]
        if error is not None and not isinstance(error, (pytest.UsageError, pytest.exit.Exception)):
            self._end(error)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> None:
        """Watches each turn of xdist's loop itself: a case may have changed pluggy, which calls the hooks."""
        for loop in session.config.pluginmanager.get_plugins():
            if hasattr(loop, "run_one_test"):
                self._watch(loop, loop.run_one_test, loop.sendevent, session)

    def _watch(self, loop: Any, run: Callable[..., None], send: Callable[..., None], session: pytest.Session) -> None:
        def watched(*arguments: Any) -> None:
            try:
                run(*arguments)
            except pytest.exit.Exception:
                raise
            except BaseException as error:
                self._end(error)

        def checked(name: str, **facts: Any) -> None:
            if name == "runtest_protocol_complete" and self._lacks(session.items[loop.item_index].nodeid):
                raise RuntimeError("the case ended without a record: its hooks were not called")
            send(name, **facts)

        loop.run_one_test, loop.sendevent = watched, checked

    def _end(self, error: BaseException) -> NoReturn:
        try:
            with contextlib.suppress(BaseException):  # the process is not to be trusted
                text = f"an internal error ended the process: {text_of(error)}{place_of(error)}"
                self._file.write_text(text, encoding="utf-8", errors="backslashreplace")
                frames = "".join(traceback.format_tb(error.__traceback__)[-_FRAMES:])
                self._file.write_text(f"{text}\n{frames}", encoding="utf-8", errors="backslashreplace")
        finally:
            _exit(_EXIT_CODE)
