"""The job of a child of Inductor's tuning processes, and its reply.

Each does exactly what it is told, so that what is judged is the machinery around it. Children import this module to
unpickle it: it imports nothing that takes time.
"""

from __future__ import annotations

import os
import sys
import time
from dataclasses import dataclass

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
