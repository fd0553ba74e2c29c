"""Locks on one device: many cases together, one of them with much memory, or one case alone.

A kernel that shares the device with other workers takes longer, and has only the memory that they leave. Two locks on
files settle who may use it. Every user holds the first, shared or alone. The second is a turnstile before it: processes
that wait to be alone hold it together, so that no other comes in. Once the device is empty, they are alone one after
another: to empty it takes longer than to time a kernel. A third lock is held by the case that needs much memory. The
system releases the locks of a process that dies.
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import IO

#: Seconds between two tries to be let in.
TRY_SECONDS = 0.002
#: Seconds to wait for other cases to leave the device, unless told otherwise: each may compile with Inductor meanwhile.
ALONE_SECONDS = 120.0


class NotAlone(Exception):
    """The device was in use by others for too long."""


class Turns:
    """Turns on the device that is called ``name``, among the processes of one user on this machine."""

    def __init__(self, name: str, folder: Path | None = None) -> None:
        safe = "".join(char if char.isalnum() or char in "-." else "_" for char in name)
        base = (folder or Path(tempfile.gettempdir())) / f"triton-conformance-{os.getuid()}-device-{safe}"
        self._use, self._turnstile = base.with_name(base.name + ".use"), base.with_name(base.name + ".turnstile")
        self._memory, self._timed = base.with_name(base.name + ".memory"), base.with_name(base.name + ".timed")

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Uses the device together with other processes; waits while one of them is alone or about to be."""
        with self._use.open("a") as use:
            with self._turnstile.open("a") as turnstile:
                fcntl.flock(turnstile, fcntl.LOCK_EX)
                fcntl.flock(use, fcntl.LOCK_SH)
            yield

    @contextlib.contextmanager
    def with_much_memory(self) -> Iterator[None]:
        """Waits until no other process needs much of the device's memory. To be entered before :meth:`together`."""
        with self._memory.open("a") as memory:
            fcntl.flock(memory, fcntl.LOCK_EX)
            yield

    @contextlib.contextmanager
    def alone(self, seconds: float = ALONE_SECONDS) -> Iterator[None]:
        """Uses the device alone. Raises :class:`NotAlone` if others do not leave within ``seconds``."""
        until = time.monotonic() + seconds
        with self._use.open("a") as use, self._turnstile.open("a") as turnstile:
            for lock, how in ((turnstile, fcntl.LOCK_SH), (use, fcntl.LOCK_EX)):
                while not _locked(lock, how):
                    if time.monotonic() > until:
                        raise NotAlone(f"other cases used the device for {seconds:g} s without a pause")
                    time.sleep(TRY_SECONDS)
            yield

    @contextlib.contextmanager
    def timing(self) -> Iterator[float]:
        """As :meth:`alone`, for work that keeps the device busy to its end. Gives the seconds since other such work
        ended: infinity if there was none."""
        with self.alone():
            try:
                ended = self._timed.stat().st_mtime
            except FileNotFoundError:
                ended = -math.inf
            yield time.time() - ended
            self._timed.touch()


def _locked(file: IO[str], how: int) -> bool:
    try:
        fcntl.flock(file, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
