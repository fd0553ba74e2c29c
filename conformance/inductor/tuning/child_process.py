"""Work in a process that starts from nothing, its environment, and children of Inductor's tuning processes as forks of
the server that has imported Inductor.

The forks start in no time. Each runs the script that Inductor starts, with the arguments and the environment that
Inductor gives it.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import multiprocessing
import os
import runpy
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from conformance.execution.compile.compilation import fork_server
from conformance.inductor.compile.observation import configured, known
from conformance.inductor.compile.provider import PRELOADED

#: Seconds that a child may take to start, to import torch and to answer.
START_SECONDS = 120.0
#: Seconds that a child which has answered may take to end.
END_SECONDS = 15.0


@contextlib.contextmanager
def environment(**values: str | None) -> Iterator[None]:
    """Sets variables of the environment, or removes those that are None, until exit."""
    with mock.patch.dict(os.environ):
        for name, value in values.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value
        yield


def spawned(target: Callable[..., None], *arguments: Any, seconds: float = START_SECONDS) -> tuple[int | None, Any]:
    """Runs ``target(connection, *arguments)`` in a fresh process without the interpreter's environment: its exit code,
    and the object that it sent within ``seconds``, None without one. A process that does not end in time is killed and
    has no code."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=target, args=(theirs, *arguments), daemon=True)
    with environment(TRITON_INTERPRET=None, OMP_NUM_THREADS="1"):
        process.start()
    theirs.close()
    sent = None
    try:
        if ours.poll(seconds):
            with contextlib.suppress(EOFError):
                sent = ours.recv()
        process.join(END_SECONDS)
        return process.exitcode, sent
    finally:
        process.kill()
        process.join()
        ours.close()


def square_on_second_device(connection: Any, x: Tensor) -> None:
    """In the child: ``x @ x``, tuned and run on the second device while the first is current. Sends the product's
    device, the device that is current afterwards and the product."""
    few = known({"test_configs.max_mm_configs": 2})
    with configured({"max_autotune_gemm": True, **few}), torch.cuda.device(0):
        product = torch.compile(_square)(x.to("cuda:1"))
        current = torch.cuda.current_device()
    connection.send((str(product.device), current, product.cpu().tolist()))


def _square(x: Tensor) -> Tensor:
    return x @ x


def benchmark_there(connection: Any, choice: Any, tensors: Sequence[Tensor], out: Tensor) -> None:
    """In the child: times ``choice`` and sends the milliseconds and what it computed."""
    torch.set_num_threads(1)
    device = torch.accelerator.current_accelerator(check_available=True) or torch.device("cpu")
    there = out.to(device)
    milliseconds = choice.benchmark(*(tensor.to(device) for tensor in tensors), out=there)
    connection.send((float(milliseconds), there.cpu().tolist()))


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
    """Returns a TuningProcess with forked children that see ``device``, or what this process sees."""
    return forked_class()(device)
