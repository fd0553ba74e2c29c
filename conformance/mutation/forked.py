"""Work in forks of this process: a mutant may crash its process, hang, or leave it unfit for more."""

from __future__ import annotations

import contextlib
import os
import pickle
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

#: Bytes of address space that a fork may take in addition to those that it starts with. Operands whose elements lie
#: 2^31 apart take 15 GB of it each, nearly all of them never touched.
MORE_MEMORY = 128 << 30


class ForkEnded(Exception):
    """A fork ended before it had told everything; ``how`` says why: "crash (SIGSEGV)" and the like."""

    def __init__(self, how: str) -> None:
        super().__init__(how)
        self.how = how


class TooLong(BaseException):
    """Raised in a fork whose work has used up its processor seconds. No judge catches it by mistake."""


def told(work: Callable[[Callable[[Any], None]], None], seconds: float, *, limit_memory: bool = True) -> Iterator[Any]:
    """Runs ``work`` in a fork and yields what it tells by calling its argument, as it comes.

    The fork is ended after ``seconds`` of wall time without a word. Values must be picklable. Raises ForkEnded if it
    does not end by returning, and RuntimeError for an exception of ``work``.
    """
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        _run(work, reading, writing, limit_memory)
    os.close(writing)
    alive = True
    try:
        while True:
            try:
                value = _next(reading, seconds)
            except EOFError:
                status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                alive = False
                raise ForkEnded(f"crash ({_name(status)})") from None
            if value is _END:
                return
            if isinstance(value, _Broken):
                raise RuntimeError(f"in a fork: {value.text}")
            yield value
    finally:
        os.close(reading)
        if alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)  # one that has told everything is ending anyway
            os.waitpid(pid, 0)


def _name(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"status {status}"


@dataclass(frozen=True)
class _Broken:
    """The report of a fork about an error that is none of the mutant's."""

    text: str


_END = object()


def _next(reading: int, seconds: float) -> Any:
    """Returns the next value; _END after the last. Raises ForkEnded in silence, and EOFError where the fork has
    ended."""
    size = int.from_bytes(_read(reading, 4, seconds), "little")
    return pickle.loads(_read(reading, size, seconds)) if size else _END


def _read(reading: int, size: int, seconds: float) -> bytes:
    data = b""
    while len(data) < size:
        if not select.select([reading], [], [], seconds)[0]:
            raise ForkEnded("hang")
        part = os.read(reading, size - len(data))
        if not part:
            raise EOFError
        data += part
    return data


def _run(work: Callable[[Callable[[Any], None]], None], reading: int, writing: int, limit_memory: bool) -> None:
    """Runs ``work`` and ends this process, which is a fork."""
    status = 1
    try:
        os.close(reading)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for stream in (0, 1, 2):
            os.dup2(nowhere, stream)
        if limit_memory:
            with open("/proc/self/statm") as file:
                size = int(file.read().split()[0]) * resource.getpagesize()
            resource.setrlimit(resource.RLIMIT_AS, (size + MORE_MEMORY, resource.RLIM_INFINITY))
        signal.signal(signal.SIGPROF, _too_long)

        def tell(value: Any) -> None:
            data = pickle.dumps(value)
            _write(writing, len(data).to_bytes(4, "little") + data)

        try:
            work(tell)
        except Exception:
            tell(_Broken(traceback.format_exc()[-2000:]))
        _write(writing, (0).to_bytes(4, "little"))
        status = 0
    finally:
        os._exit(status)


def _write(writing: int, data: bytes) -> None:
    while data:
        data = data[os.write(writing, data) :]


def _too_long(*_: object) -> None:
    raise TooLong


def limit_processor(seconds: float) -> None:
    """Has this process raise :class:`TooLong` after ``seconds`` of processor time; 0: never."""
    signal.setitimer(signal.ITIMER_PROF, seconds)
