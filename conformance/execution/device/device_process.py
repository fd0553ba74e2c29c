"""A process of its own that has the device: it may corrupt memory or lose the device, and costs nothing else."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe
from typing import IO, TYPE_CHECKING, Any

from conformance.execution.compile.compilation import GRACE_SECONDS, fork_server
from conformance.execution.compile.fork_server import ForkedProcess

if TYPE_CHECKING:
    from conformance.execution.device.executor import DeviceExecutor

#: Seconds within which a process must have the device.
DEADLINE = 180.0
#: What the process says when it has the device.
READY = "ready"


@contextlib.contextmanager
def device_process(function: str, what: str, **arguments: Any) -> Iterator[Connection]:
    """A connection to a new process that calls ``function`` ("package.module:function") with the descriptor of its end
    and ``arguments``, plain data. That function calls :func:`device_for` first. The process ends with the block.

    Raises RuntimeError that names ``what`` if it does not get the device within :data:`DEADLINE` seconds, and
    :class:`~conformance.execution.compile.fork_server.ForkServerLost` if no process can be started.
    """
    ours, theirs = Pipe()
    with tempfile.TemporaryFile() as output, ours:
        with theirs:
            process = fork_server(()).fork(function, arguments, (theirs.fileno(),), output.fileno(), dict(os.environ))
        try:
            _await_device(ours, process, output, what)
            yield ours
        finally:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)


def _await_device(pipe: Connection, process: ForkedProcess, output: IO[bytes], what: str) -> None:
    with contextlib.suppress(EOFError, OSError):
        if pipe.poll(DEADLINE) and pipe.recv() == READY:
            return
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACE_SECONDS)  # it writes why before it ends
    output.seek(0)
    written = output.read().decode(errors="replace").strip()
    raise RuntimeError(f"the process of {what} did not get the device: {written}")


def device_for(pipe: int) -> tuple[Connection, DeviceExecutor]:
    """In the new process: the connection to who asked for it, and the device."""
    import torch

    from conformance.execution.device.executor import DeviceExecutor

    asker, executor = Connection(pipe), DeviceExecutor()
    torch.accelerator.synchronize(executor.device)
    asker.send(READY)
    return asker, executor
