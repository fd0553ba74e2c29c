"""A plugin of pytest for the self-test's runs: a short deadline for compilations, and workers killed as they start."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import Any

import pytest

from conformance.selftest.planting import FOLDER, KILLS, MARK, SLOWNESS

#: Seconds that one compilation may take here: those of a small tile take one or two on an idle core.
COMPILE_S = 20.0


def pytest_sessionstart() -> None:
    """Sets the deadline, where the environment of torch and triton is prepared."""
    from conformance.judging import harness

    harness.COMPILE_DEADLINE = COMPILE_S * float(os.environ.get(SLOWNESS, "1"))


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Registers the killer in the process that starts the workers."""
    if KILLS in os.environ and not hasattr(config, "workerinput"):
        config.pluginmanager.register(StartKiller(Path(os.environ[FOLDER])), "conformance-selftest-start-killer")


class StartKiller:
    """Kills two processes that xdist starts as workers before they can answer: the first of all, and the first after a
    worker has died. ``folder`` gets a mark for each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._next = "kill_first_start"

    def pytest_configure(self, config: pytest.Config) -> None:
        """Puts the killer into execnet, which starts the processes."""
        from execnet import gateway_io

        processes: Any = gateway_io.Popen2IOMaster
        start = processes.__init__

        def started(process: Any, *arguments: Any, **named: Any) -> None:
            start(process, *arguments, **named)
            if self._next:
                (self._folder / f"{MARK}{self._next}").touch()
                self._next = ""
                os.kill(process.popen.pid, signal.SIGKILL)

        processes.__init__ = started
        config.add_cleanup(lambda: setattr(processes, "__init__", start))

    @pytest.hookimpl(optionalhook=True, tryfirst=True)
    def pytest_testnodedown(self, error: object | None) -> None:
        """A worker has ended; with an ``error`` it died, and xdist starts another in its place."""
        if error is not None and not (self._folder / f"{MARK}kill_replacement").exists():
            self._next = "kill_replacement"
