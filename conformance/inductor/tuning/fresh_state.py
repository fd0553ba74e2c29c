"""Inductor's caches, counters and compiled functions as in a new process, for a while."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Iterator, Mapping


@contextlib.contextmanager
def fresh_caches() -> Iterator[None]:
    """Inductor's caches, on disk and in memory, empty until exit."""
    from torch._inductor import utils

    make = getattr(utils, "fresh_cache", None) or utils.fresh_inductor_cache
    with tempfile.TemporaryDirectory() as folder, make(dir=folder, delete=False):
        yield


class InductorCounters(Mapping[str, int]):
    """Inductor's counters as they are when asked: its first compilation in a process puts another object in place of
    the one that holds them. One that was not counted is 0."""

    def __getitem__(self, name: str) -> int:
        from torch._dynamo.utils import counters

        return int(counters["inductor"][name])

    def __iter__(self) -> Iterator[str]:
        from torch._dynamo.utils import counters

        return iter(counters["inductor"])

    def __len__(self) -> int:
        from torch._dynamo.utils import counters

        return len(counters["inductor"])


@contextlib.contextmanager
def fresh_counters() -> Iterator[Mapping[str, int]]:
    """Inductor's counters from zero; the figures of before come back on exit."""
    from torch._dynamo.utils import counters

    before = dict(counters["inductor"])
    counters["inductor"].clear()
    try:
        yield InductorCounters()
    finally:
        counters["inductor"].clear()
        counters["inductor"].update(before)


@contextlib.contextmanager
def fresh_dynamo() -> Iterator[None]:
    """Nothing compiled before is reused inside, and nothing compiled inside afterwards."""
    import torch._dynamo

    torch._dynamo.reset()
    try:
        yield
    finally:
        torch._dynamo.reset()
