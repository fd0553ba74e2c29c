"""Tells a fault of the machine or its environment from one of what is tested: by an exception, a text or a signal.

A kernel cannot fill a disk, make a file of a cache or use up the open files of its process. An error that says so is
the machine's, whoever raised it.
"""

from __future__ import annotations

import errno
import os
import re
import resource
import signal
import sqlite3
import sys
import tempfile
from pathlib import Path

from conformance.exception_text import causes_of, text_of, words_of
from conformance.faults import Fault, FaultKind
from conformance.machine.gpus import HELD

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)
#: What each error of the system means. Others, such as a missing file, may be of the compiler's making.
_KINDS = {
    **dict.fromkeys(_DISK_FULL, FaultKind.DISK_FULL),
    **dict.fromkeys((errno.ENOTDIR, errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO), FaultKind.FILES),
    **dict.fromkeys((errno.ESTALE, errno.ELOOP, errno.ENODEV, errno.ENXIO, errno.EREMOTEIO), FaultKind.FILES),
    **dict.fromkeys((errno.EMFILE, errno.ENFILE, errno.EAGAIN, errno.ENOMEM, errno.EFBIG), FaultKind.LIMIT),
    **dict.fromkeys((errno.E2BIG, errno.EMSGSIZE, errno.ENOBUFS, errno.ENOLCK, errno.EMLINK), FaultKind.LIMIT),
}
#: Errors that are the machine's only where they concern a folder in which the environment keeps its files.
_IN_FOLDERS = (errno.ENOENT, errno.EEXIST, errno.EISDIR, errno.ENOTEMPTY, errno.EINVAL, errno.ETXTBSY)
#: What programs that are not Python's, such as ptxas, write of the same, and what names it in words only.
_WORDS = {
    os.strerror(errno.ENOSPC): FaultKind.DISK_FULL,
    os.strerror(errno.EDQUOT): FaultKind.DISK_FULL,
    os.strerror(errno.EROFS): FaultKind.FILES,
    os.strerror(errno.EMFILE): FaultKind.LIMIT,
    os.strerror(errno.ENFILE): FaultKind.LIMIT,
    os.strerror(errno.ENOMEM): FaultKind.LIMIT,
    os.strerror(errno.EAGAIN): FaultKind.LIMIT,
    "can't start new thread": FaultKind.LIMIT,
    "database or disk is full": FaultKind.DISK_FULL,
    "CUDA driver version is insufficient": FaultKind.DEVICE,
    "no CUDA-capable device is detected": FaultKind.DEVICE,
    "No CUDA GPUs are available": FaultKind.DEVICE,
    "No HIP GPUs are available": FaultKind.DEVICE,
    "device(s) is/are busy or unavailable": FaultKind.DEVICE,
    "uncorrectable ECC error": FaultKind.DEVICE,
    "GPU is lost": FaultKind.DEVICE,
    HELD: FaultKind.DEVICE,
    "GPU has fallen off the bus": FaultKind.DEVICE,
    "system not yet initialized": FaultKind.DEVICE,
}
#: What to do about each kind.
_REMEDIES = {
    FaultKind.DISK_FULL: "make room on that disk, or move TRITON_CACHE_DIR, TMPDIR or --run-dir, and run again",
    FaultKind.FILES: "mend that path, or the variable that names it, and run again",
    FaultKind.CACHE_SUSPECT: "the compiler is not to blame: delete that folder, and run again",
    FaultKind.LIMIT: "raise that limit (see 'ulimit -a'), or start fewer workers with -n, and run again",
    FaultKind.DEVICE: "mend the GPU or its driver, or end what holds it, and run again",
    FaultKind.KILLED: "see the system's log for who ended it, such as the OOM killer; start fewer workers with -n, or "
    "free memory, and run again",
    FaultKind.PROCESS: "run again; if it stays, the text above says what the process wrote",
}
_ERRNO = re.compile(r"\[Errno (\d+)\][^\n]*?(?:: '([^'\n]*)'|$)", re.MULTILINE)
#: How Triton and Inductor word that a program which they started was killed, such as ptxas.
#: A function of a driver fails with an error code, too, which is no signal: there a program is named.
_PROGRAMS = r"(?<![\w-])(?:ptxas[\w.-]*|nvdisasm|cuobjdump|fatbinary|nvlink|(?:ld\.)?lld|clang(?:\+\+)?|gcc|g\+\+)"
_KILLED_PROGRAM = re.compile(
    rf"(?:{_PROGRAMS}[`'\"]? failed with error code|returned non-zero exit status|died with) -(\d+)\b"
)
_KILLED_BY_NAME = re.compile(r"died with <Signals\.(SIG\w+)")
#: Signals that a process gets from outside: from a person, the OOM killer, a batch system or a limit of the system.
#: What a process does to itself, such as SIGSEGV, is a fault of what is tested.
_FROM_OUTSIDE = tuple(
    getattr(signal, name)
    for name in (
        *("SIGKILL", "SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"),
        *("SIGXCPU", "SIGXFSZ", "SIGPWR"),
    )
    if hasattr(signal, name)
)


#: Parts of a path inside an installed package, and the packages that are tested.
_INSTALLED = ("/site-packages/", "/dist-packages/", "/triton/backends/")
_TESTED = ("triton", "torch")


#: Variables that name folders in which a compiler keeps files.
_FOLDERS = ("TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR", "TRITON_DUMP_DIR", "TRITON_OVERRIDE_DIR")


def _caches() -> list[str]:
    home = os.environ.get("TRITON_HOME") or os.path.expanduser("~")
    named = [os.environ.get(variable) for variable in _FOLDERS]
    return [folder.rstrip("/") for folder in (*named, str(Path(home) / ".triton")) if folder]


def _temporary() -> list[str]:
    return [folder.rstrip("/") for folder in (os.environ.get("TMPDIR"), tempfile.gettempdir()) if folder]


def missing_from_cache(error: BaseException) -> str:
    """Returns the file in a compiler's cache whose absence ``error``, or an error that it was raised from, reports;
    empty if it reports none."""
    for one in causes_of(error, _reports_full_disk):
        if isinstance(one, OSError) and one.errno == errno.ENOENT and isinstance(one.filename, (str, bytes)):
            place = os.fsdecode(one.filename)
            if any(_is_in(place, folder) for folder in _caches()):
                return place
    return ""


def fault_of_error(error: BaseException) -> Fault | None:
    """Returns the fault of the environment that ``error``, or an error that it was raised from, reports; None if it
    reports none. A failed check reports none, whatever its text says."""
    causes = causes_of(error, _reports_full_disk)
    if isinstance(causes[-1], AssertionError):
        return None
    for one in causes:
        if isinstance(one, OSError) and (kind := _kind(one.errno, one.filename)) is not None:
            return _fault(kind, text_of(one))
        if isinstance(one, sqlite3.OperationalError):
            return _fault(FaultKind.FILES, f"a database of the harness or of a cache cannot be used: {words_of(one)}")
        if isinstance(one, MemoryError) and _memory_is_limited():
            return _fault(FaultKind.LIMIT, "memory ran out, and the memory of this process is limited (ulimit -v)")
    return fault_of_text("\n".join(map(words_of, causes)))


def fault_of_text(text: str) -> Fault | None:
    """Returns the fault of the environment that a compiler's output, or the text of an exception, reports; None if it
    reports none.

    >>> fault_of_text("OSError: [Errno 28] No space left on device").kind
    'disk-full'
    >>> fault_of_text("AssertionError: 3 != 4") is None
    True
    """
    for match in _ERRNO.finditer(text):
        if (kind := _kind(int(match[1]), match[2])) is not None:
            return _fault(kind, match[0].strip())
    for words, kind in _WORDS.items():
        if words in text:
            line = next(line for line in text.splitlines() if words in line)
            return _fault(kind, line.strip()[:300])
    for match in _KILLED_PROGRAM.finditer(text):
        if fault := fault_of_signal(int(match[1]), "a program of the compiler"):
            return fault
    named = _KILLED_BY_NAME.search(text)
    if named and named[1] in signal.Signals.__members__:
        return fault_of_signal(signal.Signals[named[1]], "a program of the compiler")
    return None


def fault_of_signal(number: int, process: str) -> Fault | None:
    """The fault of the environment if the signal ``number``, which ended ``process``, came from outside; None for a
    signal that a process gets by its own doing, such as SIGSEGV, and for a number that is none.

    >>> fault_of_signal(9, "worker").kind  # SIGKILL comes from outside, SIGSEGV (11) from the process itself
    'killed'
    >>> fault_of_signal(11, "worker") is None
    True
    """
    if number not in _FROM_OUTSIDE:
        return None
    return _fault(FaultKind.KILLED, f"{process} was ended from outside by {signal.Signals(number).name}")


def process_fault(text: str) -> Fault:
    """The fault of a process of the harness that did not start or was lost; ``text`` says which and why."""
    return fault_of_text(text) or _fault(FaultKind.PROCESS, text)


def killed(text: str) -> Fault:
    """Returns the fault of a process that was ended or stopped from outside."""
    return _fault(FaultKind.KILLED, text)


def cache_suspect(text: str) -> Fault:
    """Returns the fault of a kernel in a cache; ``text`` names its folder."""
    return _fault(FaultKind.CACHE_SUSPECT, text)


def _fault(kind: FaultKind, text: str) -> Fault:
    return Fault.of(kind, f"{text}; {_REMEDIES[kind]}")


def _kind(number: object, filename: object) -> FaultKind | None:
    place = os.fsdecode(filename) if isinstance(filename, (str, bytes)) else ""
    kind = _KINDS.get(number) if isinstance(number, int) else None
    if kind is None and number in _IN_FOLDERS and _is_of_environment(place, number == errno.ENOENT):
        kind = FaultKind.FILES
    return None if kind is FaultKind.FILES and _is_installed(place) else kind


def _is_of_environment(place: str, missing: bool) -> bool:
    """True if ``place`` is in a folder of the environment and that folder is to blame. If ``place`` is ``missing``, its
    folder is to blame only if it is missing or unusable itself. If the folder exists, the compiler did not write the
    file."""
    caches = [folder for folder in _caches() if _is_in(place, folder)]
    folders = caches or [folder for folder in _temporary() if _is_in(place, folder)]
    if not folders or not missing:
        return bool(folders)
    if place in folders:
        return not os.path.isdir(place)
    # a compiler removes its own temporary folders when it has failed, so that their absence shows nothing
    return not all(map(_is_usable, [os.path.dirname(place)] if caches else folders))


def _is_in(place: str, folder: str) -> bool:
    return place == folder or place.startswith(f"{folder}/")


def _is_usable(folder: str) -> bool:
    return os.path.isdir(folder) and os.access(folder, os.W_OK | os.X_OK)


def _is_installed(place: str) -> bool:
    """True if ``place`` is inside an installed package: its files are part of what is tested."""
    if any(part in place for part in _INSTALLED):
        return True
    modules = [sys.modules.get(name) for name in _TESTED]
    files = [getattr(module, "__file__", None) for module in modules]
    return any(_is_in(place, os.path.dirname(file)) for file in files if file)


def _reports_full_disk(error: BaseException) -> bool:
    """True if ``error`` is a cause although it was only being handled: it reports a full disk. Others are none, because
    a compiler handles missing files all the time."""
    return isinstance(error, OSError) and error.errno in _DISK_FULL


def _memory_is_limited() -> bool:
    limits = (resource.getrlimit(which)[0] for which in (resource.RLIMIT_AS, resource.RLIMIT_DATA))
    return any(limit != resource.RLIM_INFINITY for limit in limits)
