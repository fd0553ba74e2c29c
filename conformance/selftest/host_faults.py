"""The actions of host code of planted kernels, as it makes a launch. Each leaves a mark before it does harm.

A launch over tensors without memory is made to be planned or compiled, any other to be run.
"""

from __future__ import annotations

import ctypes
import dataclasses
import functools
import itertools
import os
import signal
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NoReturn

import torch
from torch import Tensor

from conformance.kernels.launch import Launch
from conformance.selftest.planting import MARK

Action = Callable[[Launch, Mapping[str, Tensor], Path], Launch]
#: More than any machine has.
TOO_MANY_BYTES = 1 << 50


def mark(folder: Path, name: str) -> None:
    """Says that the fault called ``name`` acts."""
    (folder / f"{MARK}{name}").touch()


def _when_run(harm: Callable[[Launch, Mapping[str, Tensor]], Launch], name: str) -> Action:
    """Returns the action that does ``harm`` to launches that are run."""

    def action(launch: Launch, tensors: Mapping[str, Tensor], folder: Path) -> Launch:
        if next(iter(tensors.values())).is_meta:
            return launch
        mark(folder, name)
        return harm(launch, tensors)

    return action


def _segfault(launch: Launch, tensors: Mapping[str, Tensor]) -> NoReturn:
    ctypes.string_at(0)
    raise AssertionError("address 0 can be read")


def _exhaust_memory(launch: Launch, tensors: Mapping[str, Tensor]) -> Launch:
    torch.empty(TOO_MANY_BYTES, dtype=torch.uint8, device=next(iter(tensors.values())).device)
    return launch


def _swallow_error(launch: Launch, tensors: Mapping[str, Tensor]) -> Launch:
    try:
        raise RuntimeError("CUDA error: too many resources requested for launch")
    except RuntimeError:
        return dataclasses.replace(launch, grid=tuple(0 for _ in launch.grid))


def _swallow_device_error(launch: Launch, tensors: Mapping[str, Tensor]) -> Launch:
    from conformance.selftest.device import store_far

    try:
        store_far[(1,)](tensors["a"], 1 << 50)
        torch.cuda.synchronize()
    except RuntimeError:
        return launch
    raise AssertionError("an illegal access raised no error")


def _kill_worker(launch: Launch, tensors: Mapping[str, Tensor]) -> NoReturn:
    os.kill(os.getpid(), signal.SIGKILL)
    raise AssertionError("SIGKILL did not end the process")


_LAUNCHES = itertools.count()


def _alternate(launch: Launch, tensors: Mapping[str, Tensor]) -> Launch:
    return dataclasses.replace(launch, arguments={**launch.arguments, "beta": float(next(_LAUNCHES) % 2)})


def _in_compiler(harm: Callable[[], NoReturn], name: str) -> Action:
    """Returns the action that does ``harm`` in a process that compiles the launch, in the second stage of the
    compiler."""

    def action(launch: Launch, tensors: Mapping[str, Tensor], folder: Path) -> Launch:
        if next(iter(tensors.values())).is_meta:
            _arm(launch.function.fn.__name__, folder, harm, name)
        return launch

    return action


@functools.cache
def _arm(function: str, folder: Path, harm: Callable[[], NoReturn], name: str) -> None:
    """Has every backend of Triton do ``harm`` when it compiles ``function``."""
    from triton.backends import backends

    for backend in backends.values():
        compiler = backend.compiler

        def add_stages(self: Any, stages: dict[str, Any], *more: Any, original: Any = compiler.add_stages) -> Any:
            result = original(self, stages, *more)
            second = list(stages)[1]

            def stage(module: Any, metadata: Any, original: Any = stages[second]) -> Any:
                if f"@{function}(" in str(module):
                    mark(folder, name)
                    harm()
                return original(module, metadata)

            stages[second] = stage
            return result

        compiler.add_stages = add_stages


def _hang() -> NoReturn:
    while True:
        time.sleep(1)


ACTIONS: dict[str, Action] = {
    "segfault": _when_run(_segfault, "segfault"),
    "exhaust_memory": _when_run(_exhaust_memory, "exhaust_memory"),
    "swallow_error": _when_run(_swallow_error, "swallow_error"),
    "swallow_device_error": _when_run(_swallow_device_error, "swallow_device_error"),
    "kill_worker": _when_run(_kill_worker, "kill_worker"),
    "alternate": _when_run(_alternate, "alternate"),
    "abort_compiler": _in_compiler(os.abort, "abort_compiler"),
    "hang_compiler": _in_compiler(_hang, "hang_compiler"),
}
