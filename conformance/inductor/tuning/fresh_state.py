"""Inductor's caches and counters as in a new process, for a while."""

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


@contextlib.contextmanager
def fresh_counters() -> Iterator[Mapping[str, Mapping[str, int]]]:
    """The compiler's counters, those of ``"inductor"`` from zero; the figures of before come back on exit.

    Read ``counters["inductor"]`` each time: the first compilation in a process puts another object in its place."""
    from torch._dynamo.utils import counters

    before = dict(counters["inductor"])
    counters["inductor"].clear()
    try:
        yield counters
    finally:
        counters["inductor"].clear()
        counters["inductor"].update(before)
