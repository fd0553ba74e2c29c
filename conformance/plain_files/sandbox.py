"""Runs the code of a file that is not trusted in a process apart, and takes bytes from it.

The process is a fork with an empty folder. It may write there and nowhere else, and can reach no other process: Linux's
Landlock forbids both. What it sends is data that the caller decodes. It is ended with all that it started.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from pathlib import Path

from conformance.machine.descendants import adopted, descendants

#: Bytes that an answer may have.
MOST_BYTES = 64 << 20
#: Seconds in which all that the process started must end.
END_SECONDS = 10.0

#: System calls of Landlock, the same on every architecture.
_CREATE, _ADD, _RESTRICT = 444, 445, 446
_NO_NEW_PRIVILEGES = 38
#: Rights by the version of Landlock that knows them: bits of the file system, of the network, and of other processes.
_WRITES = {1: 0x1FF2, 2: 1 << 13, 3: 1 << 14}
_NETWORK, _SCOPES = {4: 0b11}, {6: 0b11}


class SandboxError(Exception):
    """The process gave no answer; the message says why."""


class _Ruleset(ctypes.Structure):
    _fields_ = (("files", ctypes.c_uint64), ("network", ctypes.c_uint64), ("scopes", ctypes.c_uint64))


class _Beneath(ctypes.Structure):
    _pack_ = 1
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def _landlock() -> tuple[ctypes.CDLL, int]:
    """Returns the C library and the version of Landlock, 0 where there is none."""
    library = ctypes.CDLL(None, use_errno=True)
    return library, max(int(library.syscall(_CREATE, None, 0, 1)), 0) if sys.platform == "linux" else 0


def is_fenced() -> bool:
    """True if this system keeps the process from the files and processes of others."""
    return _landlock()[1] > 0


def _fence(*writable: str) -> None:
    """Takes from this process, and from all that it starts, what Landlock can take."""
    library, version = _landlock()
    if not version:
        return
    bits = [sum(bit for since, bit in table.items() if since <= version) for table in (_WRITES, _NETWORK, _SCOPES)]
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = library.syscall(_CREATE, ctypes.byref(_Ruleset(*bits)), size, 0)
    for path in writable:
        descriptor = os.open(path, os.O_PATH)
        allowed = bits[0] if os.path.isdir(path) else bits[0] & (1 << 1 | 1 << 14)
        library.syscall(_ADD, ruleset, 1, ctypes.byref(_Beneath(allowed, descriptor)), 0)
        os.close(descriptor)
    library.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0)
    if ruleset < 0 or library.syscall(_RESTRICT, ruleset, 0):
        raise OSError(ctypes.get_errno(), "Landlock refuses the rules")
    os.close(ruleset)


def run_apart(work: Callable[[], bytes], folder: Path, seconds: float) -> bytes:
    """Returns what ``work`` returns in a fork of this process, which writes below ``folder`` alone. All that it started
    has ended then.

    Raises SandboxError if the process ends without an answer, is not done within ``seconds``, or leaves what does not
    end.
    """
    sys.stdout.flush()
    sys.stderr.flush()
    ours, theirs = os.pipe()
    errors = folder / "errors.txt"
    earlier = descendants()
    with adopted():
        process = os.fork()
        if not process:
            _child(work, folder, theirs, errors)
        os.close(theirs)
        try:
            answer, why = _read(ours, process, seconds)
        finally:
            os.close(ours)
            status = end_process(process, earlier)
    if why or not answer:
        raise SandboxError(why or _ending(status, errors))
    return answer


def end_process(process: int, earlier: set[int]) -> int:
    """Ends the child ``process`` and all descendants that are not ``earlier``. Those that left its group or lost their
    parent are children of this process, which adopts them. Returns the status of ``process``, 0 if it is known.

    Raises SandboxError if one does not end."""
    end = time.monotonic() + END_SECONDS
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(process, signal.SIGKILL)
    try:
        status = os.waitpid(process, 0)[1]
    except ChildProcessError:
        status = 0
    while left := descendants() - earlier:
        if time.monotonic() > end:
            raise SandboxError(f"the file's code left processes that do not end: {sorted(left)}")
        for number in left:
            with contextlib.suppress(ProcessLookupError, ChildProcessError):
                os.kill(number, signal.SIGKILL)
                os.waitpid(number, 0)
    return status


def _child(work: Callable[[], bytes], folder: Path, answer: int, errors: Path) -> None:
    """Does ``work`` and ends the process, whatever happens."""
    status = 1
    try:
        os.setsid()
        for name in (signal.SIGINT, signal.SIGTERM):
            signal.signal(name, signal.SIG_DFL)
        text = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number, source in enumerate((nothing, nothing, text)):
            os.dup2(source, number)
        os.dup2(answer, 3)
        os.closerange(4, 4096)
        sys.stdin = sys.stdout = sys.stderr = os.fdopen(2, "w", closefd=False)
        os.chdir(folder)
        os.environ.update(HOME=str(folder), TMPDIR=str(folder), TRITON_CACHE_DIR=str(folder / "cache"))
        os.environ.update(CUDA_VISIBLE_DEVICES="-1", HIP_VISIBLE_DEVICES="-1")
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        _fence(str(folder), os.devnull)
        data = work()
        with os.fdopen(3, "wb") as pipe:
            pipe.write(data)
        status = 0
    except BaseException:
        os.write(2, traceback.format_exc().encode())
    finally:
        os._exit(status)


def _read(pipe: int, process: int, seconds: float) -> tuple[bytes, str]:
    """Returns all that comes through ``pipe`` until ``process`` ends, and why that is not to be used."""
    parts: list[bytes] = []
    size, end = 0, time.monotonic() + seconds
    while True:
        left = end - time.monotonic()
        ready: list[int] = []
        while left > 0 and not ready:  # a process that it left may keep the pipe open
            has_ended = os.waitid(os.P_PID, process, os.WEXITED | os.WNOWAIT | os.WNOHANG) is not None
            ready = select.select([pipe], [], [], 0 if has_ended else min(left, 0.05))[0]
            if has_ended and not ready:
                return b"".join(parts), ""
            left = end - time.monotonic()
        if not ready:
            return b"", f"the file's code did not end within {seconds:g} s"
        part = os.read(pipe, 1 << 20)
        if not part:
            return b"".join(parts), ""
        parts.append(part)
        size += len(part)
        if size > MOST_BYTES:
            return b"", f"the file's code sent more than {MOST_BYTES} bytes"


def _ending(status: int, errors: Path) -> str:
    """Returns how a process without an answer ended."""
    code = os.waitstatus_to_exitcode(status)
    if code < 0:
        return f"the file's code ended its process by {signal.Signals(-code).name}"
    lines = errors.read_text(errors="replace").splitlines() if errors.exists() else []
    return f"the file's code ended its process without an answer: {lines[-1] if lines else 'nothing was said'}"
