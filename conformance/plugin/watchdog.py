"""Ends a process whose case hangs or has spoiled its GPU, after writing that case's record.

pytest cannot interrupt a call that blocks inside a compiler or a driver; the process has to go, and xdist replaces it.
Time in which the process was stopped is no time of its case.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from conformance.judging.case_recorder import CaseRecorder
from conformance.machine import stacks
from conformance.machine.awake_time import AwakeTime
from conformance.records import CaseRecord, Status

#: Seconds after the deadline at which another process ends one that holds the interpreter's lock.
LOCK_GRACE_S = 5.0
EXIT_CODE = 1
_exit = os._exit  # a case may replace it
PROCESS_ENDED = "process-ended"  # outcome of a case whose process the watchdog ended
_ENDS = b"e"  # what the parent writes before it ends in order
#: A process that ends its parent if that does not write a byte for so many seconds. A parent that is stopped as a
#: whole, by Ctrl-Z or a debugger, is left alone. If the parent dies, a sentence names the case that ran: the last one
#: of its journal, unless the records end with that case.
_GUARD = """
import json, os, select, sys, time
parent, limit, number, wait = int(sys.argv[1]), float(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4])
quiet, last, data = 0.0, time.monotonic(), b""
def last_case(place):
    try:
        with open(place, "rb") as file:
            file.seek(max(0, os.stat(place).st_size - (1 << 24)))
            return json.loads(file.read().rstrip(b"\\n").rpartition(b"\\n")[2])["case"]
    except (OSError, ValueError, KeyError):
        return ""
while os.getppid() == parent:
    ready = select.select([0], [], [], 0.5)[0]
    passed, last = min(time.monotonic() - last, 1.0), time.monotonic()
    if ready:
        quiet = 0.0
        data = os.read(0, 4096)
        if not data or data.endswith(b"e"):
            break
    elif open(f"/proc/{parent}/stat").read().rpartition(")")[2].split()[0] not in "Tt":
        quiet += passed
    if quiet > limit:
        os.kill(parent, number)
        time.sleep(wait)
        print(f"\\nconformance: the interpreter's lock was held for {quiet:.0f} s; the process ends", flush=True)
        os.kill(parent, 9)
        break
if sys.argv[5:] and not data.endswith(b"e"):
    case, written = map(last_case, sys.argv[5:7])
    when = "before its first case" if not case else f"after {case:.200}" if case == written else f"in {case:.200}"
    print(f"\\nconformance: pytest's own process died {when}; with '-n 1' a crash costs one case and the run goes on. "
          f"Records so far: {os.path.dirname(sys.argv[5])}", flush=True)
"""


class Watchdog:
    """Watches one case at a time, always from the same thread. Stacks go to the file ``stacks_file``. If Python itself
    is stuck, they go to ``terminal`` if there is one. ``end`` is called with the record of the case that ends the
    process. ``guarded``: no other process ends this one if it is stuck, so this starts one that does."""

    def __init__(
        self,
        deadline_s: float,
        stacks_file: Path,
        terminal: TextIO | None,
        end: Callable[[CaseRecord], None],
        guarded: bool = False,
        evidence: Sequence[Path] = (),
    ):
        self.deadline_s = deadline_s
        self._stacks = stacks_file
        self._late = terminal or stacks_file.open("a", encoding="utf-8")  # open as long as the process lives
        self._end = end
        self._watched: tuple[AwakeTime, CaseRecorder] | None = None
        self._thread: threading.Thread | None = None
        self._guarded = guarded
        self._evidence = evidence
        self._guard: subprocess.Popen[bytes] | None = None
        stacks.answer_in(self._late)

    @contextmanager
    def watching(self, recorder: CaseRecorder) -> Iterator[None]:
        """Ends the process if the block is not left within the deadline."""
        self._watched = (AwakeTime(), recorder)
        self.begin()
        try:
            yield
        finally:
            self._watched = None

    def begin(self) -> None:
        """Begins to watch, if it does not watch yet. From then on another process ends this one if it is guarded and
        something holds the interpreter's lock."""
        if self._thread is None:
            if self._guarded:
                self._guard = self._started_guard()
            self._thread = threading.Thread(target=self._watch, name="watchdog", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Lets the process live on: no case is watched any more."""
        self._watched = None
        if self._guard is not None and self._guard.stdin is not None:
            with contextlib.suppress(OSError):  # it has ended
                self._guard.stdin.write(_ENDS)
                self._guard.stdin.close()
            self._guard.wait()
            self._guard = None

    def _started_guard(self) -> subprocess.Popen[bytes]:
        limit = self.deadline_s + LOCK_GRACE_S
        words = [str(word) for word in (os.getpid(), limit, stacks.ASK, stacks.ANSWER_S, *self._evidence)]
        command = [sys.executable, "-IS", "-c", _GUARD, *words]
        return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=self._late.fileno(), start_new_session=True)

    def _watch(self) -> None:
        """Looks until the current case's deadline. A case that begins meanwhile has a later deadline."""
        while True:
            watched = self._watched
            left = self.deadline_s - watched[0].seconds() if watched else self.deadline_s
            if watched and left <= 0:
                self._expired(watched[1])
            guard = self._guard
            if guard is not None and guard.stdin is not None:
                with contextlib.suppress(OSError, ValueError):  # its end, or that of the watch
                    guard.stdin.write(b".")
                    guard.stdin.flush()
            time.sleep(min(max(left, 0), AwakeTime.LOOK_S))

    def _expired(self, recorder: CaseRecorder) -> None:
        with open(self._stacks, "a+", encoding="utf-8") as file:  # another process may have asked for them before
            faulthandler.dump_traceback(file, all_threads=True)
            file.seek(0)
            text = file.read()
        stage = f" in stage {recorder.stage}" if recorder.stage else ""
        text = f"ran past its deadline of {self.deadline_s:g} s{stage}; the process was ended. Its stacks:\n{text}"
        self.finish(recorder, Status.TIMEOUT, text)

    def finish(self, recorder: CaseRecorder, status: Status | None = None, diagnosis: str | None = None) -> None:
        """Records the case and ends the process without unwinding, because its state is not to be trusted. ``status``
        and ``diagnosis`` replace the case's own if they are given."""
        recorder.outcome = PROCESS_ENDED
        try:
            self.stop()
            self._end(recorder.record(status, diagnosis))
        finally:
            _exit(EXIT_CODE)
