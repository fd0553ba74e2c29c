"""State of this process that a case may leave changed, such as its limits: read before a case, and restored after it.

A change would fail or end later, innocent cases, or the harness itself. What cannot be restored costs the process.
"""

from __future__ import annotations

import builtins
import gc
import json
import locale
import logging
import operator
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class _Part:
    """One thing that is compared. ``read`` returns it, ``write`` restores it, ``changed`` compares two readings.
    ``harmed`` does so, too, and is true if the harness itself may fail with the second; None if it never does."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    changed: Callable[[Any, Any], bool] = operator.ne
    harmed: Callable[[Any, Any], bool] | None = None


#: Signals that the harness handles, and those that end a process at a later time.
_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGCHLD, signal.SIGPIPE, signal.SIGALRM),
)
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = tuple(getattr(resource, name) for name in dir(resource) if name.startswith("RLIMIT_"))
_STREAMS = ("stdin", "stdout", "stderr")


def _write_limits(before: tuple[tuple[int, int], ...]) -> None:
    for which, limit in zip(_LIMITS, before, strict=True):
        if resource.getrlimit(which) != limit:
            resource.setrlimit(which, limit)


def _limited(before: tuple[tuple[int, int], ...], now: tuple[tuple[int, int], ...]) -> bool:
    """True if a limit is lower now; -1 is no limit."""
    return before != now and any(
        now_soft != -1 and (soft == -1 or now_soft < soft) for (soft, _), (now_soft, _) in zip(before, now, strict=True)
    )


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def _folder() -> str | None:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return None


def _write_folder(before: str | None) -> None:
    if before is not None:
        os.chdir(before)


def _write_handlers(before: tuple[Any, ...]) -> None:
    for number, handler in zip(_SIGNALS, before, strict=True):
        if handler is not None and signal.getsignal(number) is not handler:  # None: it was not installed from Python
            signal.signal(number, handler)


def _running_timers() -> tuple[bool, ...]:
    return tuple(signal.getitimer(timer)[0] > 0 for timer in _TIMERS)


def _write_timers(before: tuple[bool, ...]) -> None:
    for timer, ran in zip(_TIMERS, before, strict=True):
        if not ran:
            signal.setitimer(timer, 0)


def _write_streams(before: tuple[Any, ...]) -> None:
    for name, stream in zip(_STREAMS, before, strict=True):
        setattr(sys, name, stream)


def _inode_of_root() -> tuple[int, int]:
    facts = os.stat("/")
    return facts.st_dev, facts.st_ino


def _refuse(before: object) -> None:
    raise OSError("it cannot be restored")


def _torch_settings() -> tuple[Any, ...] | None:
    torch = sys.modules.get("torch")
    if not hasattr(torch, "get_num_threads"):  # it is not imported, or not yet to its end
        return None
    deterministic = torch.are_deterministic_algorithms_enabled()  # type: ignore[union-attr]
    return (torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads(), deterministic)  # type: ignore[union-attr]


def _write_torch_settings(before: tuple[Any, ...] | None) -> None:
    if before is None:
        return
    torch = sys.modules["torch"]
    dtype, gradients, threads, deterministic = before
    torch.set_default_dtype(dtype)
    torch.set_grad_enabled(gradients)
    torch.set_num_threads(threads)
    torch.use_deterministic_algorithms(deterministic)


def _numpy_errors() -> dict[str, str] | None:
    numpy = sys.modules.get("numpy")
    return numpy.geterr() if hasattr(numpy, "geterr") else None  # type: ignore[union-attr]


def _write_numpy_errors(before: dict[str, str] | None) -> None:
    if before is not None:
        sys.modules["numpy"].seterr(**before)


def _since_imported(before: object, now: object) -> bool:
    return before is not None and before != now


_MODULES = sys.modules


def _write_modules(before: dict[str, Any]) -> None:
    sys.modules = _MODULES
    for name, module in before.items():
        _MODULES.setdefault(name, module)


def _modules_lost(before: dict[str, Any], now: dict[str, Any]) -> bool:
    return sys.modules is not _MODULES or not before.keys() <= now.keys()


def _lost(before: list[Any], now: list[Any]) -> bool:
    return before != now and any(entry not in now for entry in before)


def _write_path(before: list[str]) -> None:
    sys.path[:] = before


#: Python's functions that the harness calls while a case runs or ends. :func:`also_called` adds functions of its own.
_CALLED: list[tuple[Any, str]] = [
    (builtins, "open len isinstance print type str int list dict tuple set getattr setattr hasattr __import__"),
    (builtins, "any all min max sum sorted zip map range enumerate iter next repr callable super issubclass"),
    (os, "environ open write read close pread stat fstat fsync ftruncate replace unlink getpid kill path _exit"),
    (time, "time monotonic perf_counter sleep"),
    (json, "dumps loads"),
    (Path, "open read_text write_text exists mkdir unlink"),
]
_READ_CALLED = [(owner, operator.attrgetter(*names.split())) for owner, names in _CALLED]


def also_called(owner: Any, names: str) -> None:
    """Adds functions of a module or a class, two or more, to those that a case must leave as they are."""
    _CALLED.append((owner, names))
    _READ_CALLED.append((owner, operator.attrgetter(*names.split())))


def _functions() -> list[Any]:
    return [read(owner) for owner, read in _READ_CALLED]


def _write_functions(before: list[Any]) -> None:
    for (owner, names), functions in zip(_CALLED, before, strict=True):
        for name, function in zip(names.split(), functions, strict=True):
            if getattr(owner, name, None) is not function:
                setattr(owner, name, function)


def _exception_hooks() -> tuple[Any, ...]:
    return sys.excepthook, sys.unraisablehook, threading.excepthook


def _write_exception_hooks(before: tuple[Any, ...]) -> None:
    sys.excepthook, sys.unraisablehook, threading.excepthook = before


def _uncallable(before: tuple[Any, ...], now: tuple[Any, ...]) -> bool:
    """True if a hook is no function; another function may be wanted."""
    return not all(map(callable, now))


def _logging() -> tuple[Any, ...]:
    return logging.root.handlers, tuple(logging.root.handlers or ()), logging.root.level, logging.root.manager.disable


def _write_logging(before: tuple[Any, ...]) -> None:
    handlers, content, logging.root.level, logging.root.manager.disable = before
    handlers[:] = content
    logging.root.handlers = handlers


def _decimal_context() -> Any:
    decimal = sys.modules.get("decimal")
    return decimal.getcontext().copy() if hasattr(decimal, "getcontext") else None  # type: ignore[union-attr]


def _decimals_differ(before: Any, now: Any) -> bool:
    names = ("prec", "rounding", "Emin", "Emax", "capitals", "clamp", "traps")
    return before is not None and any(getattr(before, name) != getattr(now, name) for name in names)


def _write_decimal_context(before: Any) -> None:
    sys.modules["decimal"].setcontext(before.copy())


def _write_time_zone(before: tuple[Any, ...]) -> None:
    if before[0] is None:
        os.environ.pop("TZ", None)
    else:
        os.environ["TZ"] = before[0]
    time.tzset()


def _write_gc(before: bool) -> None:
    (gc.enable if before else gc.disable)()


#: What the harness needs itself comes first.
_PARTS = (
    _Part("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit, harmed=operator.gt),
    _Part("functions", _functions, _write_functions, harmed=operator.ne),
    _Part("hooks of exceptions", _exception_hooks, _write_exception_hooks, _uncallable, harmed=_uncallable),
    _Part("imported modules", lambda: dict(sys.modules), _write_modules, _modules_lost, harmed=_modules_lost),
    _Part("resource limits", lambda: tuple(map(resource.getrlimit, _LIMITS)), _write_limits, harmed=_limited),
    _Part("handlers of signals", lambda: tuple(map(signal.getsignal, _SIGNALS)), _write_handlers),
    _Part(
        "blocked signals",
        partial(signal.pthread_sigmask, signal.SIG_BLOCK, ()),
        partial(signal.pthread_sigmask, signal.SIG_SETMASK),
        harmed=lambda before, now: bool(now - before),
    ),
    _Part("timers", _running_timers, _write_timers, lambda before, now: any(map(operator.lt, before, now))),
    _Part("the working directory", _folder, _write_folder),
    _Part("umask", _umask, os.umask),
    _Part("standard streams", lambda: tuple(getattr(sys, name, None) for name in _STREAMS), _write_streams),
    _Part("the logging of Python", _logging, _write_logging),
    _Part("the locale", partial(locale.setlocale, locale.LC_ALL), partial(locale.setlocale, locale.LC_ALL)),
    _Part("the time zone", lambda: (os.environ.get("TZ"), time.tzname, time.timezone), _write_time_zone),
    _Part("the decimal context", _decimal_context, _write_decimal_context, _decimals_differ),
    _Part("the garbage collector", gc.isenabled, _write_gc),
    _Part("the switch interval of threads", sys.getswitchinterval, sys.setswitchinterval),
    _Part("the search path of modules", lambda: list(sys.path), _write_path, _lost),
    _Part("the processors", partial(os.sched_getaffinity, 0), partial(os.sched_setaffinity, 0)),
    _Part("the priority", partial(os.getpriority, os.PRIO_PROCESS, 0), partial(os.setpriority, os.PRIO_PROCESS, 0)),
    _Part("the root directory", _inode_of_root, _refuse),
    _Part("settings of torch", _torch_settings, _write_torch_settings, _since_imported),
    _Part("NumPy's handling of errors", _numpy_errors, _write_numpy_errors, _since_imported),
)


_NEEDED = tuple(replace(part, changed=part.harmed) for part in _PARTS if part.harmed is not None)


class ProcessState:
    """The state when it was made. ``needed``: only what the harness itself needs, and only as far as it was harmed."""

    def __init__(self, needed: bool = False) -> None:
        self._parts = _NEEDED if needed else _PARTS
        self._before = [part.read() for part in self._parts]

    def restore(self) -> tuple[list[str], list[str]]:
        """Restores what has changed since. Returns names of what was restored, and of what could not be."""
        restored: list[str] = []
        lost: list[str] = []
        for part, before in zip(self._parts, self._before, strict=True):
            if not _differs(part, before):
                continue
            try:
                part.write(before)
                whole = not _differs(part, before)
            except Exception:  # such as a limit that only root may raise again
                whole = False
            (restored if whole else lost).append(part.name)
        return restored, lost


def _differs(part: _Part, before: Any) -> bool:
    try:
        return part.changed(before, part.read())
    except Exception:  # a function was removed, or a stream
        return True
