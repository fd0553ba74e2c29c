"""Inductor's selector as a system under test: stand-ins for the choices that it selects from, which do exactly what
they are told. Nothing here needs a device.

Inductor itself is imported when it is needed, because its import takes seconds.

Its caches and counters can be as in a new process.
"""

from __future__ import annotations

import contextlib
import functools
import tempfile
import threading
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from unittest import mock

import torch


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


@functools.cache
def choice_class() -> Any:
    """Returns the class of choices that do as told; see :meth:`Selecting.stand_in`."""
    from torch._inductor.ir import ChoiceCaller

    class StandIn(ChoiceCaller):
        def __init__(self, name: str, nodes: Any, layout: Any, milliseconds: float, description: str) -> None:
            super().__init__(name, nodes, layout, description)
            self.milliseconds = milliseconds
            self.prepare: Callable[[], None] = lambda: None
            self.measured = 0
            self.threads: list[threading.Thread] = []

        def benchmark(self, *tensors: Any, out: Any = None) -> float:
            self.measured += 1
            return self.milliseconds

        def precompile(self) -> None:
            self.threads.append(threading.current_thread())
            self.prepare()

        def hash_key(self) -> str:
            return self.name

        def call_name(self) -> str:
            return self.name

        def output_node(self) -> Any:
            return self

    return StandIn


@dataclass
class Selecting:
    """A selector with an empty graph around it. ``counters`` are the compiler's, see ``fresh_counters``."""

    selector: Any
    graph: Any
    counters: Mapping[str, Mapping[str, int]]
    _buffers: dict[str, Any] = field(default_factory=dict)

    def node(self, name: str, *size: int) -> Any:
        """Returns a contiguous float32 input of the graph."""
        from torch._inductor import ir

        if name not in self._buffers:
            self._buffers[name] = ir.Buffer(name=name, layout=_layout(size))
            self.graph.name_to_buffer[name] = self._buffers[name]
        return self._buffers[name]

    def stand_in(self, name: str, milliseconds: float, description: str = "") -> Any:
        """A choice for the product of a 16 x 8 and an 8 x 16 matrix that is timed at ``milliseconds``."""
        nodes = [self.node("a", 16, 8), self.node("b", 8, 16)]
        return choice_class()(name, nodes, _layout((16, 16)), milliseconds, description)

    def select(self, choices: Sequence[Any], *, name: str = "mm", nodes: Sequence[Any] = (), **options: Any) -> Any:
        """The choice that the selector takes; raises what it raises."""
        inputs = list(nodes or [self.node("a", 16, 8), self.node("b", 8, 16)])
        selected = self.selector(name, list(choices), inputs, _layout((16, 16)), **options)
        return selected[0] if isinstance(selected, tuple) else selected  # releases differ in what comes with the node


def _layout(size: Sequence[int]) -> Any:
    from torch._inductor import ir

    return ir.FixedLayout(torch.device("cpu"), torch.float32, list(size), [size[1], 1])


def empty_graph() -> Any:
    """Returns a graph of Inductor's in which choices can be made."""
    from torch._inductor.graph import GraphLowering

    graph = torch.fx.Graph()
    graph.output(())
    return GraphLowering(torch.fx.GraphModule({}, graph))


@contextlib.contextmanager
def selecting(**settings: Any) -> Iterator[Selecting]:
    """A selector of its own with empty caches, under ``settings`` of torch._inductor.config; all is restored."""
    from torch._inductor import config, select_algorithm
    from torch._inductor.virtualized import V

    graph = empty_graph()
    defaults = {
        "max_autotune": True,
        "autotune_local_cache": True,
        "autotune_in_subproc": False,
        "deterministic": False,
    }
    available = {name: value for name, value in defaults.items() if hasattr(config, name)}
    with (
        config.patch(available | settings),
        fresh_caches(),
        fresh_counters() as counters,
        V.set_graph_handler(graph),
        warnings.catch_warnings(),
    ):
        warnings.simplefilter("ignore")
        cache: Any = select_algorithm.AlgorithmSelectorCache()
        cache.log_results = lambda *arguments, **options: None  # wants a compilation's debug handler
        yield Selecting(cache, graph, counters)


def selector() -> Any:
    """Returns the selector that compilations use."""
    from torch._inductor import select_algorithm

    if hasattr(select_algorithm, "get_algorithm_selector_cache"):
        return select_algorithm.get_algorithm_selector_cache()
    if select_algorithm._ALGORITHM_SELECTOR_CACHE is None:
        select_algorithm._ALGORITHM_SELECTOR_CACHE = select_algorithm.AlgorithmSelectorCache()
    return select_algorithm._ALGORITHM_SELECTOR_CACHE


@contextlib.contextmanager
def selector_restored() -> Iterator[Any]:
    """The selector that compilations use; its savers and preprocessing functions are as before on exit."""
    shared = selector()
    with contextlib.ExitStack() as stack:
        for name in ("feedback_saver_fns", "preprocessing_fns"):
            if hasattr(shared, name):
                stack.enter_context(mock.patch.object(shared, name, list(getattr(shared, name))))
        yield shared
