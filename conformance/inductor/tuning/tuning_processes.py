"""Inductor's tuning processes, one by one and in a pool, as a system under test. Nothing here needs a device.

Inductor itself is imported when it is needed, because its import takes seconds.

The job of a child, and its reply, are here too.

Each does exactly what it is told, so that what is judged is the machinery around it. Children import this module to
unpickle it: it imports nothing that takes time.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from unittest import mock

from conformance.inductor.tuning.child_process import END_SECONDS, START_SECONDS

VISIBLE_DEVICES = "CUDA_VISIBLE_DEVICES"


@dataclass(frozen=True)
class Reply:
    """The reply of a job: its value, the child that ran it and the devices that this child's environment shows."""

    value: float
    pid: int
    visible: str | None


@dataclass(frozen=True)
class Job:
    """Sleeps for ``seconds``, raises RuntimeError(``error``) or ends the process with ``exit_code`` if it is told so,
    and replies with ``value`` otherwise. Also a benchmark request of a tuning pool."""

    value: float = 0.0
    seconds: float = 0.0
    error: str | None = None
    exit_code: int | None = None

    def __call__(self) -> Reply:
        time.sleep(self.seconds)
        if self.error is not None:
            raise RuntimeError(self.error)
        if self.exit_code is not None:
            sys.exit(self.exit_code)
        return Reply(self.value, os.getpid(), os.environ.get(VISIBLE_DEVICES))

    def benchmark(self) -> Reply:
        return self()


@dataclass(frozen=True)
class PoolChoice:
    """A choice as a tuning pool sees it: something to hash that has a benchmark request."""

    bmreq: Job


# --- one tuning process -----------------------------------------------------------------------------------------------

#: Makes a process that sees the given device, or what this process sees: Inductor's TuningProcess unless a test plants
#: a fault.
MakeProcess = Callable[[int | None], Any]


def make_process(device: int | None) -> Any:
    from torch._inductor.autotune_process import TuningProcess

    return TuningProcess(device)


@contextlib.contextmanager
def tuning_process(make: MakeProcess = make_process, device: int | None = None) -> Iterator[Any]:
    """A tuning process, ended on exit whatever became of it."""
    process = make(device)
    try:
        yield process
    finally:
        end(process)


def end(process: Any) -> None:
    """Kills the child that ``process`` has at present, if it still runs, and waits for it."""
    child: subprocess.Popen[bytes] = process.process
    if child.poll() is None:
        child.kill()
    child.wait(END_SECONDS)
    process.close()


def ask(process: Any, job: Job, seconds: float = START_SECONDS) -> Any:
    """The reply to ``job``; raises what the process raises."""
    process.put(job)
    return process.get(seconds)


# --- the pool of tuning processes -------------------------------------------------------------------------------------


@contextlib.contextmanager
def tuning_pool(devices: Sequence[int | None] | None, process_class: Any = None) -> Iterator[Any]:
    """A pool with one child for each of ``devices`` (those that Inductor finds if None), ended on exit. Its processes
    are of ``process_class``, or Inductor's."""
    from torch._inductor import autotune_process

    pool_class = autotune_process.TuningProcessPool
    with contextlib.ExitStack() as stack:
        if devices is not None:
            listed = staticmethod(lambda: devices)
            stack.enter_context(mock.patch.object(pool_class, "get_device_list", listed))
        if process_class is not None:
            stack.enter_context(mock.patch.object(autotune_process, "TuningProcess", process_class))
        pool = pool_class()
    try:
        yield pool
    finally:
        pool.executor.shutdown()
        for process in pool.processes:
            end(process)


LIMIT_SETTING = "max_autotune_subproc_result_timeout_seconds"


class _Limited:
    """Inductor's settings with another limit, for every thread."""

    def __init__(self, settings: Any, limit: float) -> None:
        self.settings, self.limit = settings, limit

    def __getattr__(self, name: str) -> Any:
        return self.limit if name == LIMIT_SETTING else getattr(self.settings, name)


def timings(pool: Any, *jobs: Job, limit: float = START_SECONDS) -> list[Any]:
    """Returns the pool's answer about each job, within ``limit`` seconds each. The warnings it gives are not shown."""
    from torch._inductor import autotune_process, config

    choices = [PoolChoice(job) for job in jobs]
    limited = _Limited(config, limit)  # a setting may not reach the pool's threads
    with mock.patch.object(autotune_process, "config", limited), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        replies = pool.benchmark(choices)
    return [replies[choice] for choice in choices]


def limit_in_threads(pool: Any, limit: float) -> float:
    """The limit that the pool's threads see if it is set to ``limit`` where a compilation runs."""
    from torch._inductor import config

    with config.patch({LIMIT_SETTING: limit}):
        return float(pool.executor.submit(lambda: getattr(config, LIMIT_SETTING)).result())
