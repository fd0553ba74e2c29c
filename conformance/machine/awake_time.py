"""Measures time without the part in which this process did not run: it was stopped, or its machine was suspended."""

from __future__ import annotations

from collections.abc import Callable
from time import monotonic  # the function itself: a case may replace that of the module
from typing import TypeVar

Answer = TypeVar("Answer")


class AwakeTime:
    """Counts seconds from its creation, or its last :meth:`restart`, on. Whoever asks must do so at least every
    :attr:`LOOK_S` seconds: what lies between two answers counts as two of these at most.

    ``SIGSTOP`` of all processes, a paused container and a batch system that lets jobs take turns are no fault of what
    is timed. The system's date plays no part.
    """

    LOOK_S = 1.0

    def __init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Begins at zero."""
        self._seconds = 0.0
        self._last = monotonic()

    def seconds(self) -> float:
        """Returns the seconds so far."""
        now = monotonic()
        self._seconds += min(now - self._last, 2 * self.LOOK_S)
        self._last = now
        return self._seconds


def waited(poll: Callable[[float], Answer], seconds: float) -> Answer | None:
    """Returns the first true answer of ``poll``, which waits for so many seconds as it is told; None after
    ``seconds``."""
    clock = AwakeTime()
    while (left := seconds - clock.seconds()) > 0:
        if answer := poll(min(left, AwakeTime.LOOK_S)):
            return answer
    return None
