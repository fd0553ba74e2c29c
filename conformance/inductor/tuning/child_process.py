"""Work in a fresh process that starts from nothing, and the environment that a process starts with."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from conformance.inductor.compile.observation import configured, known

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
