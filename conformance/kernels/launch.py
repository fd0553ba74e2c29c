"""A launch of a kernel, as plain data."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

#: What wraps a kernel's function, by the class of the wrapper.
WRAPPERS = {"Autotuner": "triton.autotune", "Heuristics": "triton.heuristics"}


@dataclass(frozen=True)
class Launch:
    """One launch: ``function[grid](**arguments, **options)``.

    ``function`` is a ``triton.jit`` function, ``arguments`` its parameters by name (tensors, host tensor descriptors,
    numbers, constexpr values), ``options`` the compile options. A grid with a zero means that nothing is launched.
    ``before`` and ``after`` are launches that belong to it: they prepare what it reads and finish what it leaves.

    Raises TypeError for a function that ``triton.autotune`` or ``triton.heuristics`` wraps.
    """

    function: Any
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    options: Mapping[str, int] = field(default_factory=dict)
    before: tuple[Launch, ...] = ()
    after: tuple[Launch, ...] = ()

    def __post_init__(self) -> None:
        function, wrappers = self.function, []
        while hasattr(getattr(function, "fn", None), "fn"):  # a triton.jit function holds one of Python, without that
            wrappers.append(WRAPPERS.get(type(function).__name__, type(function).__name__))
            function = function.fn
        if wrappers:
            name = function.fn.__name__
            raise TypeError(
                f"{name} is wrapped by {' and '.join(wrappers)}, which choose arguments themselves: a case judges one "
                f"config. Give Launch the triton.jit function, {name}{'.fn' * len(wrappers)}, put the tuned configs in "
                "Kernel.configs, and compute in Kernel.launch what a heuristic would"
            )

    @property
    def empty(self) -> bool:
        """True if nothing is launched."""
        return 0 in self.grid

    @property
    def steps(self) -> tuple[Launch, ...]:
        """All launches in order."""
        return (*self.before, self, *self.after)


#: What gives a workspace of a shape and dtype its memory.
Allocate = Callable[[tuple[int, ...], torch.dtype], Tensor]

#: Those that are in use; the last one is asked.
_ALLOCATES: list[Allocate] = []


@contextlib.contextmanager
def workspaces_from(allocate: Allocate) -> Iterator[None]:
    """Inside, the memory of each workspace that is not on the meta device is what ``allocate`` returns."""
    _ALLOCATES.append(allocate)
    try:
        yield
    finally:
        _ALLOCATES.pop()


def workspace(shape: tuple[int, ...], dtype: torch.dtype, like: Tensor) -> Tensor:
    """Memory for intermediate results on the device of ``like``. Floats are NaN, so that a part that is read before it
    was written shows in the result."""
    if like.is_meta:
        return torch.zeros(shape, dtype=dtype, device=like.device)
    memory = _ALLOCATES[-1](shape, dtype) if _ALLOCATES else torch.empty(shape, dtype=dtype, device=like.device)
    return memory.fill_(math.nan if dtype.is_floating_point else 0)
