"""State of this process that a case may leave changed, such as its limits: read before a case, and restored after it.

A change would fail or end later, innocent cases, or the harness itself. What cannot be restored costs the process.
"""

from __future__ import annotations

import builtins
import ctypes
import functools
import gc
import importlib
import json
import locale
import logging
import operator
import os
import resource
import signal
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Callable, Iterable, ValuesView
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from io import TextIOWrapper
from itertools import chain
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class _Part:
    """One thing that is compared. ``read`` returns it, ``write`` restores it, ``changed`` compares two readings.
    ``harmed`` does so, too, and is true if the harness itself may fail with the second; None if it never does.
    ``look`` returns it for a comparison, and need not copy it."""

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], object]
    changed: Callable[[Any, Any], bool] = operator.ne
    harmed: Callable[[Any, Any], bool] | None = None
    look: Callable[[], Any] | None = None


#: Signals that the harness handles, and those that end a process at a later time.
_SIGNALS = (
    *(signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2),
    *(signal.SIGCHLD, signal.SIGPIPE, signal.SIGALRM),
)
#: Python's own function makes members of an enumeration, which takes longer than all other parts.
_handler_of: Callable[[int], Any] = getattr(signal.getsignal, "__wrapped__", signal.getsignal)
_TIMERS = (signal.ITIMER_REAL, signal.ITIMER_VIRTUAL, signal.ITIMER_PROF)
_LIMITS = tuple(
    getattr(resource, f"RLIMIT_{name}")
    for name in ("AS", "CORE", "CPU", "DATA", "FSIZE", "MEMLOCK", "NOFILE", "NPROC", "RSS", "STACK")
)
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
        if handler is not None and _handler_of(number) is not handler:  # None: it was not installed from Python
            signal.signal(number, handler)


def _running_timers() -> tuple[bool, ...]:
    return tuple(signal.getitimer(timer)[0] > 0 for timer in _TIMERS)


def _write_timers(before: tuple[bool, ...]) -> None:
    for timer, ran in zip(_TIMERS, before, strict=True):
        if not ran:
            signal.setitimer(timer, 0)


@dataclass(frozen=True)
class _Stream:
    """A standard stream, with what a case can change of it; ``buffer`` is None if the stream has lost it."""

    stream: Any
    buffer: Any = None
    settings: tuple[Any, ...] = ()
    attributes: dict[str, Any] | None = None

    @classmethod
    def read(cls, name: str) -> _Stream:
        stream = getattr(sys, name, None)
        if not isinstance(stream, TextIOWrapper):
            return cls(stream)
        try:
            settings = stream.encoding, stream.errors, stream.line_buffering, stream.write_through
            return cls(stream, None if stream.closed else stream.buffer, settings, dict(vars(stream)))
        except ValueError:  # its buffer was detached
            return cls(stream)

    def write(self, name: str) -> None:
        setattr(sys, name, self.stream)
        now = self.read(name)
        if self.buffer is None or now == self:
            return
        encoding, errors, *modes = self.settings
        if now.buffer is None:  # what was captured of this case is lost if its buffer was closed
            buffer = tempfile.TemporaryFile(buffering=0) if self.buffer.closed else self.buffer  # noqa: SIM115
            TextIOWrapper.__init__(self.stream, buffer, encoding, errors, "", *modes)
        else:
            self.stream.reconfigure(encoding=encoding, errors=errors, line_buffering=modes[0], write_through=modes[1])
        vars(self.stream).clear()
        vars(self.stream).update(self.attributes or {})


def _streams() -> list[_Stream]:
    return [_Stream.read(name) for name in _STREAMS]


def _write_streams(before: list[_Stream]) -> None:
    for name, stream in zip(_STREAMS, before, strict=True):
        stream.write(name)


def _streams_differ(before: list[_Stream], now: list[_Stream]) -> bool:
    """True if a stream is another one, has lost its buffer or writes in another way. It may have a new buffer."""
    facts = [
        [(one.stream, one.buffer is None, one.settings, one.attributes) for one in streams] for streams in (before, now)
    ]
    return facts[0] != facts[1]


def _streams_lost(before: list[_Stream], now: list[_Stream]) -> bool:
    return any(one.buffer is not None and other.buffer is None for one, other in zip(before, now, strict=True))


def _inode_of_root() -> tuple[int, int]:
    facts = os.stat("/")
    return facts.st_dev, facts.st_ino


def _refuse(before: object) -> None:
    raise OSError("it cannot be restored")


#: Functions of torch that return a setting, and those that make it.
_TORCH = {
    "get_default_dtype": "set_default_dtype",
    "get_default_device": "set_default_device",
    "is_grad_enabled": "set_grad_enabled",
    "get_num_threads": "set_num_threads",
    "are_deterministic_algorithms_enabled": "use_deterministic_algorithms",
    "get_float32_matmul_precision": "set_float32_matmul_precision",
}


def _torch_settings() -> tuple[Any, ...] | None:
    torch = sys.modules.get("torch")
    if not hasattr(torch, "get_num_threads"):  # it is not imported, or not yet to its end
        return None
    return tuple([getattr(torch, name)() for name in _TORCH])


def _write_torch_settings(before: tuple[Any, ...] | None) -> None:
    for name, value in zip(_TORCH.values(), before or (), strict=False):
        is_cpu = name == "set_default_device" and value.type == "cpu"  # which is the device that none stands for
        getattr(sys.modules["torch"], name)(None if is_cpu else value)


#: Operands whose sums and quotient show how floating-point numbers are rounded, and whether small ones become zero.
_ONE, _HALF_A_UNIT, _LEAST = 1.0, 2.0**-53, sys.float_info.min
#: The address that stands for the environment of a new process in glibc and musl (FE_DFL_ENV).
_DEFAULT_FLOATS = -1


def _floats() -> tuple[bool, ...]:
    return _ONE + _HALF_A_UNIT == _ONE, -_ONE - _HALF_A_UNIT == -_ONE, _LEAST / 2 > 0


def _write_floats(before: tuple[bool, ...]) -> None:
    ctypes.CDLL(None).fesetenv(ctypes.c_void_p(_DEFAULT_FLOATS))


def _numpy_errors() -> dict[str, str] | None:
    numpy = sys.modules.get("numpy")
    return numpy.geterr() if hasattr(numpy, "geterr") else None  # type: ignore[union-attr]


def _write_numpy_errors(before: dict[str, str] | None) -> None:
    if before is not None:
        sys.modules["numpy"].seterr(**before)


def _since_imported(before: object, now: object) -> bool:
    return before is not None and before != now


_MODULES = sys.modules
_copied_modules: dict[str, Any] = {}


def _modules() -> dict[str, Any]:
    """Returns a copy of the imported modules; the same one while they stay the same."""
    global _copied_modules
    if _copied_modules != _MODULES:
        _copied_modules = dict(_MODULES)
    return _copied_modules


def _write_modules(before: dict[str, Any]) -> None:
    sys.modules = _MODULES
    _MODULES.update(before)


def _modules_changed(before: dict[str, Any], now: dict[str, Any]) -> bool:
    """True if a module is gone or another one; new ones may come."""
    return now is not _MODULES or (before != now and not before.items() <= now.items())


def _modules_lost(before: dict[str, Any], now: dict[str, Any]) -> bool:
    return now is not _MODULES or len(now) < len(before)


def _lost(before: list[Any], now: list[Any]) -> bool:
    return before != now and any(entry not in now for entry in before)


def _write_path(before: list[str]) -> None:
    sys.path[:] = before


class _Functions:
    """Functions of modules and classes that a case must leave as they are. A reading is one list: thousands of objects
    are compared in some microseconds, and few are made."""

    def __init__(self) -> None:
        self._named: list[tuple[Any, tuple[str, ...], Callable[[Any], Any]]] = []
        self._classes: list[type] = []
        self._views: list[ValuesView[Any]] = []  # of the attributes of each
        self._attributes: list[tuple[str, ...]] = []  # the names in each

    def add(self, owner: Any, names: Iterable[str]) -> None:
        """Adds functions of a module or a class by their names."""
        names = tuple(names)
        if names:
            names += names[:1]  # of a single name the getter would give no tuple
            self._named.append((owner, names, operator.itemgetter(*names)))

    def add_module(self, name: str) -> None:
        """Adds the functions and classes of a module, and all attributes of its classes that can be changed."""
        module = importlib.import_module(name)
        self.add(module, [key for key, value in vars(module).items() if callable(value)])
        roots = sys.stdlib_module_names if name.split(".")[0] in sys.stdlib_module_names else _TOOLS
        classes = [value for value in vars(module).values() if _is_changeable(value, roots)]
        self._classes += [one for one in classes if all(one is not other for other in self._classes)]
        self._views = [vars(one).values() for one in self._classes]

    def read(self) -> list[Any]:
        values = self.look()
        if [*map(len, self._attributes)] != [*map(len, self._views)]:
            self._note_names()
        return values

    def _note_names(self) -> None:
        self._attributes = [tuple(vars(owner)) for owner in self._classes]

    def look(self) -> list[Any]:
        """Returns the same as :meth:`read`, for a comparison."""
        values = list(chain.from_iterable(self._views))
        for owner, _, read in self._named:
            values += read(vars(owner))
        return values

    def write(self, before: list[Any]) -> None:
        """Restores the reading ``before``, and gives it the order that the attributes of the classes have then."""
        values = iter(before)
        for owner, names in zip(self._classes, self._attributes, strict=False):
            attributes = dict(zip(names, values, strict=False))
            for name in [*vars(owner)]:
                if name not in attributes:
                    type.__delattr__(owner, name)
            _write_attributes(owner, attributes)
        for owner, names, _ in self._named:
            _write_attributes(owner, dict(zip(names, values, strict=False)))
        self._note_names()
        before[:] = self.look()


def _write_attributes(owner: Any, attributes: dict[str, Any]) -> None:
    write = type.__setattr__ if isinstance(owner, type) else setattr
    for name, value in attributes.items():
        if vars(owner).get(name) is not value:
            write(owner, name, value)


#: The flag of a class that refuses to be changed (Py_TPFLAGS_IMMUTABLETYPE).
_IMMUTABLE = 1 << 8


def _is_changeable(value: Any, roots: Iterable[str]) -> bool:
    """True for a class of packages ``roots`` that is written in Python, and does not change its own attributes."""
    is_theirs = isinstance(value, type) and str(value.__module__).split(".")[0] in roots
    return is_theirs and not value.__flags__ & _IMMUTABLE and value is not weakref.finalize


#: Functions that the harness calls while a case runs or ends. :func:`also_called` adds more.
_CALLED = _Functions()
for _owner, _names in (
    (builtins, "open len isinstance print type str int list dict tuple set getattr setattr hasattr __import__"),
    (builtins, "any all min max sum sorted zip map range enumerate iter next repr callable super issubclass"),
    (os, "environ open write read close pread stat fstat fsync ftruncate replace unlink getpid kill path _exit"),
    (time, "time monotonic perf_counter sleep"),
    (json, "dumps loads"),
    (Path, "open read_text write_text exists mkdir unlink"),
    (Enum, "__hash__ __str__ __repr__"),
):
    _CALLED.add(_owner, [name for name in _names.split() if name in vars(_owner)])
#: Modules of the standard library that the harness and pytest use between cases.
_OFTEN_USED = (
    "builtins collections contextlib dataclasses enum functools json json.decoder json.encoder os pathlib posixpath re "
    "shutil tempfile threading time traceback types warnings"
)


@functools.cache
def _used() -> _Functions:
    functions = _Functions()
    for name in _OFTEN_USED.split():
        functions.add_module(name)
    return functions


#: Packages that run the cases and write their records.
_TOOLS = ("_pytest", "pluggy", "xdist", "execnet", "msgspec")


def _of_tools() -> _Functions:
    functions = _Functions()
    for name in [name for name in sys.modules if name.split(".")[0] in _TOOLS]:
        functions.add_module(name)
    return functions


def also_called(owner: Any, names: str) -> None:
    """Adds functions of a module or a class, two or more, to those that a case must leave as they are."""
    _CALLED.add(owner, names.split())


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


def _write_gc(before: tuple[bool, tuple[int, int, int]]) -> None:
    is_enabled, thresholds = before
    (gc.enable if is_enabled else gc.disable)()
    gc.set_threshold(*thresholds)


def _write_traces(before: tuple[Any, Any]) -> None:
    sys.settrace(before[0])
    sys.setprofile(before[1])


#: What the harness needs itself comes first.
_PARTS = (
    _Part("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit, harmed=operator.gt),
    _Part("functions", _CALLED.read, _CALLED.write, harmed=operator.ne, look=_CALLED.look),
    _Part("hooks of exceptions", _exception_hooks, _write_exception_hooks, _uncallable, harmed=_uncallable),
    _Part(
        "imported modules",
        _modules,
        _write_modules,
        _modules_changed,
        harmed=_modules_lost,
        look=lambda: sys.modules,
    ),
    _Part(
        "functions of Python",
        lambda: _used().read(),
        lambda before: _used().write(before),
        look=lambda: _used().look(),
    ),
    _Part("resource limits", lambda: tuple(map(resource.getrlimit, _LIMITS)), _write_limits, harmed=_limited),
    _Part("handlers of signals", lambda: tuple(map(_handler_of, _SIGNALS)), _write_handlers),
    _Part(
        "blocked signals",
        partial(signal.pthread_sigmask, signal.SIG_BLOCK, ()),
        partial(signal.pthread_sigmask, signal.SIG_SETMASK),
        harmed=lambda before, now: bool(now - before),
    ),
    _Part("timers", _running_timers, _write_timers, lambda before, now: any(map(operator.lt, before, now))),
    _Part("the working directory", _folder, _write_folder),
    _Part("umask", _umask, os.umask),
    _Part("standard streams", _streams, _write_streams, _streams_differ, harmed=_streams_lost),
    _Part("the logging of Python", _logging, _write_logging),
    _Part("the locale", partial(locale.setlocale, locale.LC_ALL), partial(locale.setlocale, locale.LC_ALL)),
    _Part("the time zone", lambda: (os.environ.get("TZ"), time.tzname, time.timezone), _write_time_zone),
    _Part("the decimal context", _decimal_context, _write_decimal_context, _decimals_differ),
    _Part("the garbage collector", lambda: (gc.isenabled(), gc.get_threshold()), _write_gc),
    _Part("functions that trace", lambda: (sys.gettrace(), sys.getprofile()), _write_traces),
    _Part("floating-point arithmetic", _floats, _write_floats),
    _Part("the switch interval of threads", sys.getswitchinterval, sys.setswitchinterval),
    _Part("the search path of modules", lambda: list(sys.path), _write_path, _lost, look=lambda: sys.path),
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

    @classmethod
    def of_tools(cls) -> ProcessState:
        """Returns the state of pytest itself and of what it uses. To read it takes as long as all else."""
        state = cls.__new__(cls)
        functions = _of_tools()
        state._parts = (_Part("functions of pytest", functions.read, functions.write, look=functions.look),)
        state._before = [functions.read()]
        return state

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
        return part.changed(before, (part.look or part.read)())
    except Exception:  # a function was removed, or a stream
        return True
