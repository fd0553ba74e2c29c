"""Names threads that code of some folder has started and that still run. Those of libraries may live on."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

#: Seconds that a thread which is about to end has.
_GRACE_S = 0.2


def running() -> frozenset[int]:
    """Returns the numbers of all threads that run Python."""
    return frozenset(sys._current_frames())


def left(before: frozenset[int], folder: Path) -> list[str]:
    """Returns the names of threads that are not among ``before`` and run code of a file in ``folder``. A timer counts
    that will."""
    if running() <= before:
        return []
    threads = {thread.ident: thread for thread in threading.enumerate()}
    names = []
    for number, frame in sys._current_frames().items():
        if number not in before and _is_of(folder, frame, threads.get(number)):
            thread = threads.get(number)
            if thread is not None:
                thread.join(_GRACE_S)
            if number in running():
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
