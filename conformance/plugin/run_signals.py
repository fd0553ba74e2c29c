"""Handles the signals that end a run: it ends in order, and its records so far are merged. A worker passes over those
that batch systems and terminals send to every process of a run."""

from __future__ import annotations

import contextlib
import math
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType
from typing import Any, TextIO

from conformance.machine import stacks

#: Seconds in which pytest has heard of a signal. One that comes later finds a run that has caught it and goes on.
AT_ONCE_S = 1.0
#: Signals that follow so soon are one: no person presses Ctrl-C again, but a thread that a case has left may.
SAME_S = 0.1
#: Signals that end a run, with the handling that is taken over. Whoever has chosen another one, such as ``nohup``,
#: keeps it. Slurm announces the end of a job by SIGUSR1 or another one of its user's choice.
_DEFAULTS: dict[int, Any] = {
    signal.SIGINT: signal.default_int_handler,
    signal.SIGTERM: signal.SIG_DFL,
    signal.SIGHUP: signal.SIG_DFL,
    signal.SIGQUIT: signal.SIG_DFL,
    signal.SIGUSR1: signal.SIG_DFL,
    signal.SIGUSR2: signal.SIG_DFL,
    signal.SIGXCPU: signal.SIG_DFL,
    signal.SIGALRM: signal.SIG_DFL,
    signal.SIGVTALRM: signal.SIG_DFL,
    signal.SIGPROF: signal.SIG_DFL,
    signal.SIGIO: signal.SIG_DFL,
    signal.SIGPWR: signal.SIG_DFL,
    **dict.fromkeys(range(signal.SIGRTMIN, stacks.ASK), signal.SIG_DFL),  # the harness uses some of those above
}
#: Of those, what also reaches the workers when it is meant for the run. Its leader ends them.
_FOR_THE_RUN = (signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2)


class RunEnded(KeyboardInterrupt):
    """Raised where a signal found the run, which ends: no fault of the case that ran. It is no Exception, because the
    harness catches whatever a kernel raises."""


class Signals:
    """Takes over signals between :meth:`install` and :meth:`restore`. ``received`` is the name of the signal that ended
    the run; empty if none did."""

    def __init__(self) -> None:
        self.received = ""
        self.suspect = ""  # what else than a person may have sent it, in words that follow
        self._handled: list[int] = []

    def install(self) -> None:
        """Takes the signals over, if this is the main thread: no other may."""
        if threading.current_thread() is not threading.main_thread():
            return
        self._handled = [number for number in self._numbers() if signal.getsignal(number) is _DEFAULTS[number]]
        for number in self._handled:
            signal.signal(number, self._handle)

    def restore(self) -> None:
        """Gives the signals back."""
        while self._handled:
            number = self._handled.pop()
            signal.signal(number, _DEFAULTS[number])

    def end(self) -> None:
        """Gives the signals back at the end of the process, which a thread that a case has left interrupts no more."""
        self.restore()
        if self.suspect and threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, signal.SIG_IGN)

    @property
    def interrupts(self) -> bool:
        """True if every SIGINT is seen here or passed over: a KeyboardInterrupt without one is the case's own."""
        return signal.SIGINT in self._handled or signal.getsignal(signal.SIGINT) is signal.SIG_IGN

    def raise_received(self) -> None:
        """Raises :class:`RunEnded` again if a signal has ended the run, and something caught the exception."""
        if self.received:
            raise RunEnded(_sentence(self.received))

    def _numbers(self) -> tuple[int, ...]:
        """The signals that are taken over."""
        raise NotImplementedError

    def _handle(self, number: int, frame: FrameType | None) -> None:
        raise NotImplementedError


class RunSignals(Signals):
    """Handles the signals of the process that leads a run. Until the run is :attr:`ending`, a signal ends it. The next
    one calls ``hurry``, which must let the end wait for nothing, and interrupts nothing: the records are being merged.
    The one after that has its usual effect. A signal that comes before :meth:`release` ends the run there, because
    pytest does not finish a session that has not started."""

    def __init__(self, hurry: Callable[[], None], terminal: TextIO) -> None:
        super().__init__()
        self.ending = False
        self._held = True
        self._hurry = hurry
        self._terminal = terminal
        self._raised = -math.inf  # when a signal was last raised as an exception
        self._last = -math.inf  # when one was last received
        self.hurried = ""  # the name of the signal that came while the run was ending; empty if none did

    def release(self) -> None:
        """Lets signals end the run at once from now on. Raises :class:`RunEnded` if one has come."""
        self._held = False
        self.raise_received()

    def _numbers(self) -> tuple[int, ...]:
        return tuple(_DEFAULTS)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        name = _name(number)
        now, last = time.monotonic(), self._last
        self._last = now
        if self.received and now - last < SAME_S:
            return
        if self.hurried:
            self.restore()
            signal.raise_signal(number)
        elif self.ending or (self._held and self.received) or now - self._raised < AT_ONCE_S:
            self.hurried = name
            with contextlib.suppress(ValueError):  # the terminal's stream is closed: the run has all but ended
                print(
                    f"\nconformance: {name}: workers are killed, then the records so far are merged",
                    file=self._terminal,
                    flush=True,
                )
            self._hurry()
        else:
            self._raised = now
            self.received = name
            if self._held:
                return
            raise KeyboardInterrupt if number == signal.SIGINT else RunEnded(_sentence(name))


class WorkerSignals(Signals):
    """Passes over the signals that a worker gets: its leader decides when the run ends."""

    def _numbers(self) -> tuple[int, ...]:
        return (signal.SIGINT, *_FOR_THE_RUN)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        pass


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:  # most signals of real time have none
        return f"SIGRTMIN+{number - signal.SIGRTMIN}"


def _sentence(name: str) -> str:
    return f"{name}: the run ends here, and its records so far are merged"
