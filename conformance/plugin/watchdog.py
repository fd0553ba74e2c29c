"""Ends a process whose case hangs or has spoiled its GPU, after writing that case's record.

pytest cannot interrupt a call that blocks inside a compiler or a driver; the process has to go, and xdist replaces it.
"""

from __future__ import annotations

import faulthandler
import os
import sys
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

    @contextmanager
    def watching(self, recorder: CaseRecorder) -> Iterator[None]:
        """Ends the process if the block is not left within the deadline."""
        # The watching thread needs the interpreter's lock; faulthandler's own thread does not.
        faulthandler.dump_traceback_later(self.deadline_s + LOCK_GRACE_S, exit=True, file=self._late)
        self._watched = (time.monotonic() + self.deadline_s, recorder)
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()
        try:
            yield
        finally:
            self._watched = None
            faulthandler.cancel_dump_traceback_later()

    def _watch(self) -> None:
        """Sleeps until the current case's deadline. A case that begins meanwhile has a later deadline."""
        while True:
            watched = self._watched
            left = watched[0] - time.monotonic() if watched else self.deadline_s
            if watched and left <= 0:
                self._expired(watched[1])
            time.sleep(max(left, 0))

    def _expired(self, recorder: CaseRecorder) -> None:
        with open(self._stacks, "w+", encoding="utf-8") as file:
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            stacks = file.read()
        stage = f" in stage {recorder.stage}" if recorder.stage else ""
        text = f"ran past its deadline of {self.deadline_s:g} s{stage}; the process was ended. Its stacks:\n{stacks}"
        self.finish(recorder, Status.TIMEOUT, text)

    def finish(self, recorder: CaseRecorder, status: Status, diagnosis: str) -> None:
        """Records the case and ends the process without unwinding: its state is not to be trusted."""
        recorder.outcome = PROCESS_ENDED
        try:
            self._end(recorder.record(status, diagnosis))
        finally:
            os._exit(EXIT_CODE)


def device_fault() -> str | None:
    """The error that the GPU of this process is left with, or None. Such an error is sticky: every later call returns
    it, so that the next, innocent case would be blamed. Asks only a process that has started CUDA (or HIP)."""
    torch = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    if cuda is None or not cuda.is_initialized():
        return None
    try:
        cuda.synchronize()
    except Exception as error:  # whatever a broken context raises
        return f"{type(error).__name__}: {error}"
    return None
