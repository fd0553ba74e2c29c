"""Hands the launches that Triton makes on a GPU to the judge, which makes them through Triton's own launcher.

A launch is Triton's call of a compiled kernel's launcher, so kernels that libraries keep and launch themselves are
taken, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

from conformance.watching.device_run import Again
from conformance.watching.triton_driver import named_arguments, untuned

#: What is called for each launch: the compiled kernel, its source, the grid, the arguments by name, and what launches.
TakeLaunch = Callable[[Any, Any, tuple[int, int, int], dict[str, Any], Again], None]
#: Variables of the environment with which Inductor launches through Triton.
INDUCTOR = {"TORCHINDUCTOR_USE_STATIC_CUDA_LAUNCHER": "0", "TORCHINDUCTOR_COMPILE_THREADS": "1"}


class DeviceLaunches:
    """Gives each launch to ``take``, unless ``compiles_only`` is set."""

    def __init__(self, take: TakeLaunch) -> None:
        self.take, self.compiles_only, self.launches = take, False, 0


class _Launcher:
    """Stands for Triton's ``launcher`` of one compiled kernel."""

    def __init__(self, to: DeviceLaunches, kernel: Any, launcher: Any) -> None:
        self._to, self._kernel, self._launcher = to, kernel, launcher

    def __getattr__(self, name: str) -> Any:
        return getattr(self._launcher, name)

    def __call__(self, x: int, y: int, z: int, *words: Any) -> None:
        """Launches; behind the grid stand six words of Triton's own, and then the arguments."""
        if self._to.compiles_only:
            return
        self._to.launches += 1
        own, arguments = words[:6], words[6:]

        def again(change: Callable[[Any], Any]) -> None:
            self._launcher(x, y, z, *own, *map(change, arguments))

        source, grid = self._kernel.src, (int(x), int(y), int(z))
        if 0 in grid:
            again(lambda value: value)
        else:
            self._to.take(self._kernel, source, grid, named_arguments(source, arguments), again)


@contextmanager
def watching_device(launches: DeviceLaunches, configs: str) -> Iterator[None]:
    """Inside, ``launches`` gets those that Triton makes. ``configs`` is "first" or "all"."""
    from triton.compiler.compiler import CompiledKernel

    make_handles = CompiledKernel._init_handles

    def init_handles(kernel: Any) -> None:
        make_handles(kernel)
        for name in ("_run", "run"):
            launcher = vars(kernel).get(name)
            if launcher is not None and not isinstance(launcher, _Launcher):
                setattr(kernel, name, _Launcher(launches, kernel, launcher))

    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(CompiledKernel, "_init_handles", init_handles))
        stack.enter_context(untuned(launches, configs))
        yield


@contextmanager
def untimed_inductor() -> Iterator[None]:
    """Inside, Inductor takes the first of its configs and times none."""
    from torch._inductor.runtime.triton_heuristics import CachingAutotuner

    with mock.patch.object(CachingAutotuner, "bench", return_value=1.0):
        yield
