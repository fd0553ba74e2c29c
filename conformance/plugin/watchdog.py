"""Ends a process whose case hangs or has spoiled its GPU, after writing that case's record.

pytest cannot interrupt a call that blocks inside a compiler or a driver; the process has to go, and xdist replaces it.
"""

from __future__ import annotations

import faulthandler
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from conformance.judging.case_recorder import CaseRecorder
from conformance.records import CaseRecord, Status

#: Seconds after the deadline at which a thread outside Python ends a process that holds the interpreter's lock.
LOCK_GRACE_S = 5.0
#: Seconds by which that thread may come later still. To start it again takes as long as a short case, so it is started
#: for all cases of this time together. It is never longer than a deadline.
REARM_S = 5.0
EXIT_CODE = 1
PROCESS_ENDED = "process-ended"  # outcome of a case whose process the watchdog ended


class Watchdog:
    """Watches one case at a time, always from the same thread. Stacks go to the file ``stacks``. If Python itself is
    stuck, they go to ``terminal`` if there is one. ``end`` is called with the record of the case that ends the
    process."""

    def __init__(self, deadline_s: float, stacks: Path, terminal: TextIO | None, end: Callable[[CaseRecord], None]):
        self.deadline_s = deadline_s
        self._stacks = stacks
        self._late = terminal or stacks.open("w", encoding="utf-8")  # open as long as the process lives
        self._end = end
        self._watched: tuple[float, CaseRecorder] | None = None  # the case, and when it must have ended
        self._thread: threading.Thread | None = None
        self._arming = threading.Lock()
        self._armed_until = 0.0  # when faulthandler's thread ends the process; 0 while it does not run

    @contextmanager
    def watching(self, recorder: CaseRecorder) -> Iterator[None]:
        """Ends the process if the block is not left within the deadline."""
        now = time.monotonic()
        self._watched = (now + self.deadline_s, recorder)
        self._arm(now)
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()
        try:
            yield
        finally:
            self._watched = None

    def stop(self) -> None:
        """Lets the process live on: no case is watched any more."""
        self._watched = None
        self._disarm()

    def _arm(self, now: float) -> None:
        """Sees to it that faulthandler's thread does not end the process before the grace of the current case is over.
        The watching thread needs the interpreter's lock; that thread does not."""
        least = self.deadline_s + LOCK_GRACE_S
        with self._arming:
            if self._armed_until < now + least:
                seconds = least + min(REARM_S, self.deadline_s)
                faulthandler.dump_traceback_later(seconds, exit=True, file=self._late)
                self._armed_until = now + seconds

    def _disarm(self) -> None:
        with self._arming:
            if self._watched is None and self._armed_until:
                faulthandler.cancel_dump_traceback_later()
                self._armed_until = 0.0

    def _watch(self) -> None:
        """Sleeps until the current case's deadline. A case that begins meanwhile has a later deadline.

        It wakes once in each deadline, which is before faulthandler's thread would end the process. So a process that
        waits for its next case is not ended.
        """
        while True:
            watched = self._watched
            left = watched[0] - time.monotonic() if watched else self.deadline_s
            if watched and left <= 0:
                self._expired(watched[1])
            if watched is None:
                self._disarm()
            time.sleep(max(left, 0))

    def _expired(self, recorder: CaseRecorder) -> None:
        with open(self._stacks, "w+", encoding="utf-8") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            stacks = file.read()
        stage = f" in stage {recorder.stage}" if recorder.stage else ""
        text = f"ran past its deadline of {self.deadline_s:g} s{stage}; the process was ended. Its stacks:\n{stacks}"
        self.finish(recorder, Status.TIMEOUT, text)

    def finish(self, recorder: CaseRecorder, status: Status | None = None, diagnosis: str | None = None) -> None:
        """Records the case and ends the process without unwinding, because its state is not to be trusted. ``status``
        and ``diagnosis`` replace the case's own if they are given."""
        recorder.outcome = PROCESS_ENDED
        try:
            self._end(recorder.record(status, diagnosis))
        finally:
            os._exit(EXIT_CODE)
