"""The processes that this one has started, and those that they have started, also where a parent has ended."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

#: Seconds that a process has to end by itself.
END_SECONDS = 0.5
_PR_SET_CHILD_SUBREAPER, _PR_GET_CHILD_SUBREAPER = 36, 37  # of linux/prctl.h
#: Parts of the command lines of helpers that end when the process that uses them does, and must outlive it.
_HELPERS = ("multiprocessing.resource_tracker", "_inductor/compile_worker")
#: A part of the command lines of this package's own servers: they may be ended at once, without a message.
_OWN = "conformance.execution.compile.fork_server"


@contextmanager
def adopted() -> Iterator[None]:
    """Inside, a descendant whose parent ends becomes a child of this process, not of the system's first. Elsewhere than
    on Linux nothing changes."""
    library, before = ctypes.CDLL(None), ctypes.c_int()
    if not hasattr(library, "prctl"):
        yield
        return
    library.prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(before))
    library.prctl(_PR_SET_CHILD_SUBREAPER, 1)
    try:
        yield
    finally:
        library.prctl(_PR_SET_CHILD_SUBREAPER, before.value)


def descendants() -> set[int]:
    """Returns the numbers of all descendants that have not ended."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            state, parent = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()[:2]
            if state not in "ZX":
                children.setdefault(int(parent), []).append(int(folder.name))
    below: set[int] = set()
    waiting = [os.getpid()]
    while waiting:
        new = children.get(waiting.pop(), [])
        below.update(new)
        waiting += new
    return below


def end_descendants(spared: set[int]) -> list[str]:
    """Ends all descendants that are not ``spared``. Returns the command lines of those that did not end by themselves
    and are none of this package's servers."""
    named: dict[int, str] = {}
    deadline = time.monotonic() + END_SECONDS
    while left := {pid: line for pid in descendants() - spared if not _is_helper(line := command_line(pid))}:
        late = time.monotonic() > deadline
        for pid, line in left.items():
            if late or _OWN in line:
                if _OWN not in line:
                    named[pid] = line
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline + END_SECONDS:  # one that cannot be ended, as it waits in the kernel
            break
        time.sleep(0.02)
    return [f"{line} (process {pid})" for pid, line in named.items()]


def _is_helper(line: str) -> bool:
    return any(part in line for part in _HELPERS)


def command_line(pid: int) -> str:
    """Returns the command line of the process; empty if it has ended."""
    try:
        words = Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="backslashreplace").split("\0")
    except OSError:
        return ""
    return " ".join(words).strip()[:200]
