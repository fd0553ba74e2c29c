"""Deadlines for code of others that this process calls in its main thread: imports, entry points, questions to kernels.

What is late gets an exception, as from its own code. So one broken package or file costs itself and nothing else.
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

from conformance.machine.awake_time import AwakeTime

#: Seconds that such code may take. A run sets it to the deadline of a case.
LIMIT_S = 60.0
#: Seconds after which a process ends whose main thread has not taken the exception: it is stuck outside Python.
STUCK_S = 10.0
#: The signal that interrupts the main thread. Libraries use the first of this kind, if any.
_NUMBER = signal.SIGRTMAX - 6
#: Frames that the text of the exception names, the innermost last.
_FRAMES = 6


class Overdue(Exception):
    """Raised in code that did not end within its deadline; the text says where it was."""


class _Deadline:
    def __init__(self, what: str, seconds: float) -> None:
        self.what, self.seconds = what, seconds
        self.clock = AwakeTime()
        self.is_over = False  # and the main thread has not heard of it


_exit = os._exit  # code that is watched may replace it
_current: list[_Deadline] = []  # the innermost last; what is outside another one waits meanwhile
_lock = threading.Lock()
_watches = False  # whether there is a thread that does


def print_stacks(sentence: str) -> None:
    """Prints all stacks of this process after the ``sentence``."""
    print(f"conformance: {sentence}; it cannot be interrupted, so the process ends:", file=sys.stderr, flush=True)
    faulthandler.dump_traceback(sys.__stderr__ or 2, all_threads=True)


def write_stacks(file: Path, sentence: str) -> None:
    """Writes them to ``file``."""
    with file.open("w", encoding="utf-8") as opened:
        print(sentence, file=opened, flush=True)
        faulthandler.dump_traceback(opened, all_threads=True)


#: Called with a sentence before a process ends that is stuck.
stuck: Callable[[str], None] = print_stacks


@contextlib.contextmanager
def deadline(what: str, seconds: float | None = None) -> Iterator[None]:
    """Inside, :class:`Overdue` is raised after ``seconds``, :data:`LIMIT_S` if they are not given. It is raised again
    after the same time if the code goes on. Time in a deadline inside this one does not count. Does nothing outside the
    main thread."""
    global _watches
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    one = _Deadline(what, LIMIT_S if seconds is None else seconds)
    signal.signal(_NUMBER, _interrupt)
    with _lock:
        _current.append(one)
        if not _watches:
            with contextlib.suppress(RuntimeError):  # a limit of the system: the code goes on, and is not watched
                threading.Thread(target=_watch, name="overdue", daemon=True).start()
                _watches = True
    try:
        yield
    finally:
        with _lock:
            _current.remove(one)
            for outer in _current[-1:]:
                outer.clock.restart()


def _watch() -> None:
    """Watches the innermost deadline until there is none."""
    global _watches
    waits = threading.Event()
    while True:
        waits.wait(AwakeTime.LOOK_S)
        with _lock:
            if not _current:
                _watches = False
                return
            one = _current[-1]
            if one.clock.seconds() < (STUCK_S if one.is_over else one.seconds):
                continue
            if one.is_over:
                stuck(_sentence(one))
                _exit(os.EX_TEMPFAIL)
            one.is_over = True
            one.clock.restart()
            signal.pthread_kill(threading.main_thread().ident or 0, _NUMBER)


def _interrupt(number: int, frame: FrameType | None) -> None:
    late = _current[-1] if _current else None
    if late is not None and late.is_over:
        late.is_over = False
        frames = traceback.extract_stack(frame)[-_FRAMES:]
        places = [f"{Path(place.filename).name}:{place.lineno} in {place.name}" for place in frames]
        raise Overdue(f"{_sentence(late)}; it was at {', called by '.join(reversed(places))}")


def _sentence(late: _Deadline) -> str:
    return f"{late.what} did not end within {late.seconds:g} s"
