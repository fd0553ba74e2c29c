"""Children of Inductor's tuning processes as forks of the server that has imported Inductor: they start in no time.

Each runs the script that Inductor starts, with the arguments and the environment that Inductor gives it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

from conformance.execution.compile.compilation import fork_server
from conformance.inductor.compile.provider import PRELOADED

#: The descriptor that a child writes what it says to.
STDERR = 2
#: The first number for descriptors that are kept aside.
ASIDE = 1000


class ForkedChild:
    """A child that runs a Python script, with what Inductor uses of :class:`subprocess.Popen`."""

    def __init__(self, command: Sequence[str], *, env: Mapping[str, str], pass_fds: Sequence[int]) -> None:
        _, script, *arguments = command
        call = {"script": script, "arguments": arguments, "numbers": list(pass_fds)}
        self._process = fork_server(PRELOADED).fork(f"{__name__}:run_script", call, pass_fds, STDERR, env)
        self.pid = self._process.pid

    def poll(self) -> int | None:
        return None if self._process.running else self._process.wait(0)

    def wait(self, timeout: float | None = None) -> int:
        return self._process.wait(timeout)

    def kill(self) -> None:
        if self._process.running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def run_script(*pipes: int, script: str, arguments: Sequence[str], numbers: Sequence[int]) -> None:
    """In a fork: runs ``script``, whose ``arguments`` know the descriptors ``pipes`` by their ``numbers``."""
    aside = [fcntl.fcntl(pipe, fcntl.F_DUPFD, ASIDE) for pipe in pipes]
    for descriptor, number in zip(aside, numbers, strict=True):
        os.dup2(descriptor, number)
    # Inductor's child ends when its parent is another than it was told, and the parent of a fork is the server.
    parent = f"--parent={os.getppid()}"
    sys.argv = [script, *(parent if argument.startswith("--parent=") else argument for argument in arguments)]
    runpy.run_path(script, run_name="__main__")


@functools.cache
def forked_class() -> Any:
    """Inductor's TuningProcess with forked children."""
    from torch._inductor import autotune_process

    forking = SimpleNamespace(**{**vars(subprocess), "Popen": ForkedChild})

    class ForkedTuningProcess(autotune_process.TuningProcess):
        def start(self) -> None:
            with mock.patch.object(autotune_process, "subprocess", forking):
                super().start()

    return ForkedTuningProcess


def make_forked(device: int | None) -> Any:
    """A TuningProcess with forked children that see ``device``, or what this process sees."""
    return forked_class()(device)
