"""The end of a process that leads a run or a command. What would end it at once is refused while it runs code of
others: the exit status could be 0. Threads that suites have started do not keep it from ending."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import Any

#: Functions of ``os`` that end a process, or replace its program, without an exception. The others call these.
_ENDING = ("_exit", "execv", "execve")
#: What was refused, in words, until a case takes it. In a thread the error ends the thread alone.
REFUSED: list[str] = []
#: Seconds in which threads end after the run.
THREADS_S = 10.0
_LOOK_S = 0.2
_exit = os._exit


def refuse(what: str) -> Callable[[], None]:
    """Makes them raise RuntimeError in this process, not in those that it forks: they would end ``what``. Returns what
    gives them back."""
    before = {name: getattr(os, name) for name in _ENDING}
    for name, function in before.items():
        setattr(os, name, _refusing(name, function, os.getpid(), what))

    def give_back() -> None:
        for name, function in before.items():
            setattr(os, name, function)

    return give_back


def end_despite_threads(status: int) -> None:
    """Ends this process with ``status`` if threads keep it from ending for :data:`THREADS_S` after its main thread."""
    main = threading.main_thread()
    others = [thread for thread in threading.enumerate() if thread is not main and not thread.daemon]

    def end() -> None:
        while main.is_alive():
            time.sleep(_LOOK_S)
        time.sleep(THREADS_S)
        names = ", ".join(thread.name for thread in others if thread.is_alive())
        print(f"conformance: the process ends although threads run on that a suite has started: {names}", flush=True)
        for stream in (sys.stdout, sys.stderr):
            stream.flush()
        _exit(status)

    if others:
        threading.Thread(target=end, name="end-despite-threads", daemon=True).start()


def _refusing(name: str, function: Callable[..., Any], process: int, what: str) -> Callable[..., Any]:
    @wraps(function)
    def refusing(*arguments: Any, **named: Any) -> Any:
        if os.getpid() == process:
            text = f"os.{name} was called: it would end {what}"
            REFUSED.append(text)
            raise RuntimeError(text)
        return function(*arguments, **named)

    return refusing
