"""Prescreening without CUTLASS, and pipelined autotuning, in which Inductor lowers while a thread times the choices."""

from __future__ import annotations

import contextlib
import functools
import importlib
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any
from unittest import mock

from conformance.inductor.tuning.stand_ins import Selecting, choice_class, selecting

#: CUTLASS's choices and the group of their options, by release.
_PLACES = (
    ("torch._inductor.codegen.cutlass.kernel", "CUTLASSTemplateCaller", "cutlass"),
    ("torch._inductor.codegen.cuda.cuda_kernel", "CUDATemplateCaller", "cuda"),
)
#: The swizzle that is timed first, and all of them; Inductor's own defaults.
FIRST, SWIZZLES = 2, (1, 2, 4, 8)
#: Fewer kernels than this are not prescreened; so many are kept of less than a thousand choices.
LEAST, KEPT = 10, 8


def place() -> tuple[Any, str, str] | None:
    """The module and name of CUTLASS's choices, and the prefix of their options; None for a torch without them."""
    for module, name, options in _PLACES:
        with contextlib.suppress(ImportError):
            imported = importlib.import_module(module)
            if hasattr(imported, name):
                return imported, name, options
    return None


def options(**values: Any) -> dict[str, Any]:
    """Settings of the group that prescreening belongs to. Raises LookupError for a torch without it."""
    placement = place()
    if placement is None:
        raise LookupError("this torch has no choices of CUTLASS's")
    return {f"{placement[2]}.{name}": value for name, value in values.items()}


@functools.cache
def kernel_class() -> Any:
    """The class of stand-ins for CUTLASS's kernels: one of several swizzles of a kernel."""

    class Kernel(choice_class()):  # type: ignore[misc]
        bmreq = SimpleNamespace(ensure_dll_loaded=lambda: None)
        kernel, swizzle = "", 0

        def info_dict(self) -> dict[str, str]:
            return {"swizzle": str(self.swizzle)}

        def kernel_hash_key(self) -> str:
            return self.kernel

    return Kernel


@functools.cache
def extern_class() -> Any:
    """The class of stand-ins for a library's kernels."""

    class Extern(choice_class()):  # type: ignore[misc]
        pass

    return Extern


class Prescreening:
    """A selector, and the rounds in which it has timed: the names of the choices in each."""

    def __init__(self, inner: Selecting) -> None:
        self.inner = inner
        self.rounds: list[list[str]] = []

    def kernels(self, times: Mapping[str, Callable[[int], float]]) -> list[Any]:
        """Returns a choice for each of a kernel's swizzles, timed at what ``times`` says of the swizzle."""
        choices = []
        for name, of_swizzle in times.items():
            for swizzle in SWIZZLES:
                nodes = [self.inner.node("a", 16, 8), self.inner.node("b", 8, 16)]
                usual = self.inner.stand_in("any", 1.0)
                choice = kernel_class()(f"{name}/{swizzle}", nodes, usual.layout, of_swizzle(swizzle), "")
                choice.kernel, choice.swizzle = name, swizzle
                choices.append(choice)
        return choices

    def extern(self, name: str, milliseconds: float) -> Any:
        """A choice of a library's that is timed at ``milliseconds``."""
        usual = self.inner.stand_in("any", 1.0)
        return extern_class()(name, usual.input_nodes, usual.layout, milliseconds, "")

    def select(self, choices: Sequence[Any]) -> str:
        """The name of the choice that the selector takes; ``rounds`` are those of this selection."""
        self.rounds.clear()
        return str(self.inner.select(choices).name)


@contextlib.contextmanager
def prescreening(*, times_are_kept: bool = True, **settings: Any) -> Iterator[Prescreening]:
    """A selector of its own that takes stand-ins for kernels of CUTLASS and of a library. ``settings`` are of the group
    that prescreening belongs to. ``times_are_kept``: what was timed once is not timed again."""
    from torch._inductor import select_algorithm

    placement = place()
    if placement is None:
        raise LookupError("this torch has no choices of CUTLASS's")
    algorithms: Any = select_algorithm
    swizzles = {"cutlass_max_profiling_swizzle_options": list(SWIZZLES), **settings}
    with (
        selecting(autotune_local_cache=times_are_kept, **options(**swizzles)) as inner,
        mock.patch.object(placement[0], placement[1], kernel_class()),
        mock.patch.object(algorithms, "ExternKernelCaller", extern_class()),
        # processes in which CUTLASS's kernels would be timed
        mock.patch("torch._inductor.autotune_process.get_tuning_process_pool"),
    ):
        one = Prescreening(inner)

        def make_benchmark_fn(*arguments: Any, **more: Any) -> Callable[[Sequence[Any]], dict[Any, float]]:
            def timed(choices: Sequence[Any]) -> dict[Any, float]:
                one.rounds.append([choice.name for choice in choices])
                return {choice: choice.benchmark() for choice in choices}

            return timed

        with mock.patch.object(algorithms.AlgorithmSelectorCache, "make_benchmark_fn", make_benchmark_fn):
            yield one


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
    """A separate selector under the option."""
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
