"""Names threads that code of some folder has started and that still run. Those of libraries may live on."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from time import sleep  # a case may replace it
from types import BuiltinFunctionType, FrameType

#: Seconds that a thread which is about to end has, and one which has not yet begun to run Python.
_GRACE_S = 0.2
#: Seconds between two looks at threads of the system.
_LOOK_S = 0.001
#: Looks in a row without a thread that uses a processor: those of the system that run no Python are of a library.
_QUIET_LOOKS = 20
_THREADS = "/proc/self/task"


@dataclass(frozen=True)
class Threads:
    """The numbers of all threads that run Python, and how many threads the system has for this process."""

    python: frozenset[int]
    count: int


def running() -> Threads:
    """Returns the threads of this process; takes some microseconds."""
    return Threads(frozenset(sys._current_frames()), _count())


def left(before: Threads, folder: Path) -> list[str]:
    """Returns the names of threads that are not among ``before`` and run code of a file in ``folder``. A timer counts
    that will. If the system has more threads than Python shows, waits a little for those that have not begun."""
    now = running()
    if now.python <= before.python and now.count <= before.count:
        return []
    _await_beginning(before)
    threads = {thread.ident: thread for thread in threading.enumerate()}
    names = []
    for number, frame in sys._current_frames().items():
        if number not in before.python and _is_of(folder, frame, threads.get(number)):
            thread = threads.get(number)
            if thread is not None:
                thread.join(_GRACE_S)
            if number in sys._current_frames():
                names.append(thread.name if thread is not None else "one without a name")
    return sorted(names)


def _count() -> int:
    try:
        return os.stat(_THREADS).st_nlink  # two more than there are threads; a list of them takes longer
    except OSError:
        return 0


def _await_beginning(before: Threads) -> None:
    """Waits until Python shows each new thread of the system, or none of them has used a processor for some time."""
    quiet = 0
    for _ in range(int(_GRACE_S / _LOOK_S)):
        now = running()
        if now.count - before.count <= len(now.python - before.python) or quiet == _QUIET_LOOKS:
            return
        sleep(_LOOK_S)
        quiet = 0 if _another_runs() else quiet + 1


def _another_runs() -> bool:
    """Returns True if a thread other than this one uses a processor, or waits for one."""
    for number in os.listdir(_THREADS):
        with contextlib.suppress(OSError):  # it has ended
            state = Path(_THREADS, number, "stat").read_text(errors="replace").rpartition(")")[2].split()[0]
            if state == "R" and int(number) != threading.get_native_id():
                return True
    return False


def _is_of(folder: Path, frame: FrameType, thread: threading.Thread | None) -> bool:
    """Returns True if a thread runs code of a file in ``folder``, or will. A timer of a built-in function counts."""
    if isinstance(thread, threading.Timer) and isinstance(thread.function, BuiltinFunctionType):
        return True
    starts = [getattr(thread, "function", None), getattr(thread, "_target", None), type(thread).run if thread else None]
    codes = [one.f_code for one in _callers(frame)] + [getattr(start, "__code__", None) for start in starts]
    return any(code is not None and Path(code.co_filename).parent == folder for code in codes)


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
