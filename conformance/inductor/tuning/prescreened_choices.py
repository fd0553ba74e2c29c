"""Prescreening without CUTLASS: Inductor times kernels of CUTLASS with one swizzle first, and the best with all. Other
choices stand in for CUTLASS's here."""

from __future__ import annotations

import contextlib
import functools
import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
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
    found = place()
    if found is None:
        raise LookupError("this torch has no choices of CUTLASS's")
    return {f"{found[2]}.{name}": value for name, value in values.items()}


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

    found = place()
    if found is None:
        raise LookupError("this torch has no choices of CUTLASS's")
    algorithms: Any = select_algorithm
    swizzles = {"cutlass_max_profiling_swizzle_options": list(SWIZZLES), **settings}
    with (
        selecting(autotune_local_cache=times_are_kept, **options(**swizzles)) as inner,
        mock.patch.object(found[0], found[1], kernel_class()),
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
