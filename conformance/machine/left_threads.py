"""Names threads that code of some folder has started and that still run. Those of libraries may live on."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

#: Seconds that a thread which is about to begin or to end has, and of a look.
_GRACE_S, _LOOK_S = 0.2, 0.002
_sleep = time.sleep  # a case may replace it


@dataclass(frozen=True)
class Threads:
    """Numbers of the threads of this process: of those that run ``python``, and of all that the ``system`` knows. One
    that has just been started runs no Python yet."""

    python: frozenset[int]
    system: frozenset[str]


def running() -> Threads:
    """Returns the threads of this process."""
    return Threads(frozenset(sys._current_frames()), frozenset(os.listdir("/proc/self/task")))


def left(before: Threads, folder: Path) -> list[str]:
    """Returns the names of threads that are not among ``before`` and run code of a file in ``folder``. A timer counts
    that will. A new thread of a library, which never runs Python, costs a wait."""
    for _ in range(round(_GRACE_S / _LOOK_S)):
        now = running()
        if len(now.system - before.system) <= len(now.python - before.python):
            break
        _sleep(_LOOK_S)
    if now.python <= before.python:
        return []
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


def _is_of(folder: Path, frame: FrameType, thread: threading.Thread | None) -> bool:
    function = thread.function if isinstance(thread, threading.Timer) else None
    codes = [one.f_code for one in _callers(frame)] + [getattr(function, "__code__", None)]
    return any(code is not None and Path(code.co_filename).parent == folder for code in codes)


def _callers(frame: FrameType | None) -> Iterator[FrameType]:
    while frame is not None:
        yield frame
        frame = frame.f_back
