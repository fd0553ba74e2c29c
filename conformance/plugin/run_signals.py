"""Handles SIGINT, SIGTERM and SIGHUP: the run ends, and its records so far are merged."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Callable
from typing import Any, TextIO

import pytest

#: Seconds in which pytest has heard of a signal. One that comes later finds a run that has caught it and goes on.
AT_ONCE_S = 1.0
#: Whoever has chosen another handling of a signal, such as ``nohup``, keeps it.
_DEFAULTS: dict[signal.Signals, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
}


class RunEnded(pytest.exit.Exception):  # type: ignore[name-defined]  # pytest names no public class
    """Raised where a signal found the run, which ends: no fault of the case that ran."""


class RunSignals:
    """Handles the signals between :meth:`install` and :meth:`restore`. Until the run is :attr:`ending`, a signal ends
    it, and :attr:`received` is its name. The next one calls ``hurry``, which must let the end wait for nothing, and
    interrupts nothing: the records are being merged. The one after that has its usual effect."""

    def __init__(self, hurry: Callable[[], None], terminal: TextIO) -> None:
        self.ending = False
        self.received = ""  # the signal that ended the run
        self._hurry = hurry
        self._terminal = terminal
        self._handled: list[signal.Signals] = []
        self._raised = -math.inf  # when a signal was last raised as an exception

    def install(self) -> None:
        """Takes the signals over, if this is the main thread: no other may."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._handled = [number for number, usual in _DEFAULTS.items() if signal.getsignal(number) is usual]
        for number in self._handled:
            signal.signal(number, self._handle)

    def restore(self) -> None:
        """Gives the signals back."""
        while self._handled:
            number = self._handled.pop()
            signal.signal(number, _DEFAULTS[number])

    def _handle(self, number: int, frame: Any) -> None:
        name = signal.Signals(number).name
        now = time.monotonic()
        if self.ending or now - self._raised < AT_ONCE_S:
            self.restore()
            print(f"\nconformance: {name}: workers are killed, then the records so far are merged", file=self._terminal)
            self._terminal.flush()
            self._hurry()
            return
        self._raised = now
        self.received = name
        if number == signal.SIGINT:
            raise KeyboardInterrupt
        raise RunEnded(f"{name}: the run ends here, and its records so far are merged")
