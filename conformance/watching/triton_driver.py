"""Triton's driver of the device that stands in: kernels are compiled as for a device, and each launch is handed on.

Autotuners cannot measure anything here. With ``configs`` "first" they take the first config that compiles and fits the
target; with "all" each config is launched and the first one stays the choice.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import math
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, Protocol
from unittest import mock

import torch

from conformance.execution.compile.compile_worker import StubDriver
from conformance.targets import KIB, Target
from conformance.watching.torch_modes import DEVICE

#: What is called for each launch: the compiled kernel, its source, the grid, and the arguments by name.
TakeLaunch = Callable[[Any, Any, tuple[int, int, int], dict[str, Any]], None]


class StandInDriver(StubDriver):
    """The driver of a device of ``target``. ``take`` gets each launch, unless ``compiles_only`` is set."""

    def __init__(self, target: Target, take: TakeLaunch) -> None:
        from triton.backends.compiler import GPUTarget

        super().__init__(GPUTarget(target.backend, target.arch, target.warp_size), 0)
        self.take, self.compiles_only, self.launches = take, False, 0
        self.launcher_cls = self._launcher
        facts = {
            "max_shared_mem": target.limits.shared_memory,
            "max_num_regs": 65536,
            "multiprocessor_count": target.limits.multiprocessors or 1,
            "warpSize": target.warp_size,
            "sm_clock_rate": 1_000_000,
            "mem_clock_rate": 1_000_000,
            "mem_bus_width": 4096,
            "max_threads_per_sm": target.architecture.threads,
            "arch": str(target.arch),
            "cooperativeLaunch": True,
        }
        self.utils = SimpleNamespace(
            get_device_properties=lambda device: facts,
            load_binary=lambda name, kernel, shared, device: (name, name, 0, 0, 1024),
            unload_module=lambda module: None,
        )

    def get_device_capability(self, device: int = 0) -> tuple[int, int]:
        return torch.cuda.get_device_capability(device)

    def set_current_device(self, device: int) -> None:
        """The only device is current."""

    def get_active_torch_device(self) -> torch.device:
        return DEVICE

    def get_device_interface(self) -> Any:
        return torch.cuda

    def get_benchmarker(self) -> Callable[..., Any]:
        return untimed

    def get_empty_cache_for_benchmark(self) -> Any:
        return torch.empty(KIB, dtype=torch.int32)

    def clear_cache(self, cache: Any) -> None:
        """Nothing is timed, so no cache is cleared."""

    def map_python_to_cpp_type(self, ty: str) -> str:
        return ty

    def _launcher(self, source: Any, metadata: Any) -> _Launcher:
        return _Launcher(self, source)


class _Launcher:
    """Launches one compiled kernel, when Triton calls it. ``kernel`` is set once Triton has made it."""

    def __init__(self, driver: StandInDriver, source: Any) -> None:
        self._driver, self._source = driver, source
        self.kernel: Any = None

    def __call__(self, x: int, y: int, z: int, stream: int, function: Any, packed: Any, metadata: Any,
                 enter: Any, leave: Any, *arguments: Any) -> None:  # fmt: skip
        driver = self._driver
        if driver.compiles_only:
            return
        driver.launches += 1
        driver.take(self.kernel, self._source, (int(x), int(y), int(z)), named_arguments(self._source, arguments))


def named_arguments(source: Any, arguments: Sequence[Any]) -> dict[str, Any]:
    """Returns the ``arguments`` that Triton gives a launcher, by the names that the kernel's ``source`` gives them.
    Raises TypeError if one is missing."""
    names = list(source.fn.arg_names) if hasattr(source, "fn") else []
    constants = {
        names[path[0]] if isinstance(path, tuple) else path: value for path, value in dict(source.constants).items()
    }
    if not _constants_are_passed():
        names = [name for name in names if name not in constants]
    named = dict(zip(names, arguments, strict=False))
    for name in names[len(arguments) :]:  # a device's launcher looks at no constant, so a caller may leave out some
        if name not in constants:
            given = f"{len(arguments)} arguments were given"
            raise TypeError(f"{source.fn.__name__}: {given}, and {name} is not among them")
        named[name] = constants[name]
    return named


@functools.cache
def _constants_are_passed() -> bool:
    """True if this Triton hands all arguments of a kernel to its launcher; older releases leave constants out."""
    from triton.runtime.jit import JITFunction

    return "*bound_args.values()" in inspect.getsource(JITFunction.run)


def untimed(call: Callable[[], Any], *arguments: Any, quantiles: Sequence[float] | None = None, **options: Any) -> Any:
    """Calls ``call`` once, and returns 1 ms for each of ``quantiles``: there is no device to time on."""
    call()
    return [1.0] * len(quantiles) if quantiles else 1.0


@contextmanager
def driving(driver: StandInDriver, configs: str) -> Iterator[None]:
    """Inside, ``driver`` is Triton's driver. ``configs`` is "first" or "all"."""
    from triton.compiler.compiler import CompiledKernel
    from triton.runtime import driver as active

    make_handles = CompiledKernel._init_handles

    def init_handles(kernel: Any) -> None:
        make_handles(kernel)
        for value in (getattr(kernel, "_run", None), vars(kernel).get("run")):
            if isinstance(value, _Launcher):
                value.kernel = kernel

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(vars(active)))
        for name in ("_default", "default"):
            if name in vars(active):
                vars(active)[name] = driver
        active.set_active(driver)
        stack.enter_context(mock.patch.object(CompiledKernel, "_init_handles", init_handles))
        stack.enter_context(untuned(driver, configs))
        yield


class Launches(Protocol):
    """Counts launches; ``compiles_only`` while none is to be made."""

    compiles_only: bool
    launches: int


@contextmanager
def untuned(driver: Launches, configs: str) -> Iterator[None]:
    """Inside, nothing is timed. Autotuners launch the "first" of their configs that fits, or "all", as ``configs``
    says."""
    import triton.testing
    from triton.runtime.autotuner import Autotuner

    bench = Autotuner._bench

    def first_config(tuner: Any, *arguments: Any, config: Any, **meta: Any) -> Any:
        """Compiles ``config``, unless an earlier one of this tuning was found to fit."""
        if getattr(tuner, "_fits_at", None) == driver.launches:
            return [math.inf] * 3
        driver.compiles_only = True
        try:
            times = bench(tuner, *arguments, config=config, **meta)
        finally:
            driver.compiles_only = False
        if times[0] != math.inf:
            tuner._fits_at = driver.launches
        return times

    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.object(triton.testing, "do_bench", untimed))
        stack.enter_context(mock.patch.object(triton.testing, "do_bench_cudagraph", untimed))
        stack.enter_context(mock.patch.dict(os.environ, {"TRITON_CACHE_AUTOTUNING": "0"}))
        if configs == "first":
            stack.enter_context(mock.patch.object(Autotuner, "_bench", first_config))
        yield
