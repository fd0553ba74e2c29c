"""Pipelined autotuning: Inductor goes on lowering while another process times the choices. Here a thread of this
process stands in for that one, and times what it is told."""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest import mock

from conformance.inductor.tuning.prescreened_choices import extern_class
from conformance.inductor.tuning.stand_ins import Selecting, selecting

OPTION = "pipeline_max_autotune_gemm"


def module() -> Any:
    """Torch's module of pipelined autotuning; None for a torch without what is replaced here."""
    loaded = importlib.import_module("torch._inductor.autotune_process")
    names = "AutotuneProcessPool", "AsyncAutotuner", "PrecompileThreadPool", "run_autotune_in_subprocess"
    complete = all(hasattr(loaded, name) for name in names)
    return loaded if complete and hasattr(loaded.AsyncAutotuner, "choice_hash_to_future") else None


class Pool:
    """Stands for the process: ``submitted`` are the benchmark requests in their order. It begins when ``gate`` is set,
    and times a request by ``time_of``, or as it says itself."""

    def __init__(self, time_of: Callable[[int], float] | None = None) -> None:
        self.submitted: list[Any] = []
        self.gate = threading.Event()
        self._time_of = time_of
        self._executor = ThreadPoolExecutor(1)

    def warm_up(self) -> None:
        pass

    def submit(self, function: Callable[..., Any], *requests: Any) -> Future[Any]:
        if len(requests) != 1:  # Inductor asks it to prepare itself
            return self._executor.submit(lambda: True)
        place = len(self.submitted)
        self.submitted.append(requests[0])
        return self._executor.submit(self._timed, function, requests[0], place)

    def _timed(self, function: Callable[..., Any], request: Any, place: int) -> Any:
        self.gate.wait()
        return function(request) if self._time_of is None else self._time_of(place)

    def close(self) -> None:
        self.gate.set()
        self._executor.shutdown()


@contextlib.contextmanager
def pool_in_place(time_of: Callable[[int], float] | None = None) -> Iterator[Pool]:
    """A stand-in in place of torch's pool, which knows no earlier requests."""
    tuning, pool = module(), Pool(time_of)
    try:
        with (
            mock.patch.object(tuning.AutotuneProcessPool, "get_instance", return_value=pool),
            mock.patch.object(tuning.AutotuneProcessPool, "_shutdown_for_inactivity", False),
            mock.patch.object(tuning.AsyncAutotuner, "choice_hash_to_future", {}),
        ):
            yield pool
    finally:
        pool.close()


class Pipelined:
    """A selector under the option, whose choices are timed by ``pool``."""

    def __init__(self, inner: Selecting, pool: Pool) -> None:
        self.inner, self.pool = inner, pool

    def triton(self, name: str, answer: float | Exception, *, compiles: bool = True) -> Any:
        """A choice that is timed at ``answer``, or whose benchmark raises it."""
        return self._with_request(self.inner.stand_in(name, 0.0), answer, compiles=compiles)

    def extern(self, name: str, answer: float) -> Any:
        """Returns a library's choice."""
        usual = self.inner.stand_in("any", 0.0)
        return self._with_request(extern_class()(name, usual.input_nodes, usual.layout, 0.0, ""), answer)

    def _with_request(self, choice: Any, answer: float | Exception, *, compiles: bool = True) -> Any:
        def benchmark() -> float:
            if isinstance(answer, Exception):
                raise answer
            return answer

        def refuse() -> None:
            raise RuntimeError(f"{choice.name} does not compile")

        choice.bmreq = SimpleNamespace(name=choice.name, benchmark=benchmark)
        choice.allowed_prologue_inps = set()
        if not compiles:
            choice.prepare = refuse
        return choice

    def select(self, choices: Sequence[Any]) -> Any:
        """Returns the stand-in for the choice until it is asked for."""
        return self.inner.select(choices, return_multi_template=True).data.data


def _make_precompile_fn(cache: Any, choices: Sequence[Any], *arguments: Any, **options: Any) -> Callable[[], Any]:
    """Compiles the choices as torch does, which does not on some Pythons, and marks those that failed."""

    def precompile() -> dict[Any, float]:
        for choice in choices:
            try:
                choice.precompile()
            except RuntimeError:
                choice.mark_failed()
        return {}

    return precompile


@contextlib.contextmanager
def pipelined() -> Iterator[Pipelined]:
    """A selector of its own under the option."""
    from torch._inductor import select_algorithm

    algorithms: Any = select_algorithm
    settings = {OPTION: True, "cpu_backend": "triton", "benchmark_epilogue_fusion": False}
    with (
        selecting(**settings) as inner,
        pool_in_place() as pool,
        mock.patch.object(algorithms, "ExternKernelCaller", extern_class()),
        mock.patch.object(algorithms.AlgorithmSelectorCache, "log_results"),
        mock.patch.object(algorithms.AlgorithmSelectorCache, "make_precompile_fn", _make_precompile_fn),
    ):
        try:
            yield Pipelined(inner, pool)
        finally:
            module().PrecompileThreadPool.shutdown_instance()
