"""Compilation with max-autotune in this process, on a device, from nothing, and what its tuning pools time."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from conformance.inductor.compile.observation import configured
from conformance.inductor.tuning.stand_ins import fresh_caches, fresh_counters


def integers(*size: int, dtype: torch.dtype = torch.float16, seed: int = 0) -> Tensor:
    """Whole numbers from -4 to 4: sums of a few hundred products are exact in float32, and below 2048 in fp16 too."""
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-4, 5, size, generator=generator).to(dtype)


@contextlib.contextmanager
def compiling(**settings: Any) -> Iterator[Mapping[str, Mapping[str, int]]]:
    """Compilation in this process with max-autotune, empty caches, few configs and counters from zero."""
    from torch._inductor import config

    defaults: dict[str, Any] = {"max_autotune": True, "compile_threads": 1}
    if hasattr(config.test_configs, "max_mm_configs"):
        defaults["test_configs.max_mm_configs"] = 4
    with configured(defaults | settings), fresh_caches(), fresh_counters() as counters:
        torch._dynamo.reset()
        try:
            yield counters
        finally:
            torch._dynamo.reset()


@contextlib.contextmanager
def shared_pool() -> Iterator[None]:
    """Compilations until exit share one tuning pool, which is ended on exit and not older than this."""
    _end_pool()
    try:
        yield
    finally:
        _end_pool()


def _end_pool() -> None:
    module = sys.modules.get("torch._inductor.autotune_process")
    pool = getattr(module, "get_tuning_process_pool", None)
    if pool is not None and pool.cache_info().currsize:
        pool().shutdown()
        pool.cache_clear()


@contextlib.contextmanager
def pools_watched() -> Iterator[list[float]]:
    """Collects what tuning pools time."""
    from torch._inductor import autotune_process

    timed: list[float] = []
    original = autotune_process.TuningProcessPool.benchmark

    def benchmark(pool: Any, choices: Any) -> Any:
        times = original(pool, choices)
        timed.extend(times.values())
        return times

    with mock.patch.object(autotune_process.TuningProcessPool, "benchmark", benchmark):
        yield timed
