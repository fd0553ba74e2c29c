"""A launch of a kernel, as plain data: its arguments, the place where it runs, and what was observed of it."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch
import triton.language as tl
from torch import Tensor

from conformance.problems import Operand, Problem
from conformance.records import ExecutorName

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


#: From this many elements on, offsets do not fit in 32 bits.
INDEX_LIMIT = 2**31

#: Programs along the second and the third dimension of a grid, at most (CUDA's limit).
GRID_LIMIT = 65_535


def size_arguments(sizes: Mapping[str, int], static: bool) -> dict[str, Any]:
    """``sizes`` as a launch takes them, constants of the compiler if ``static``."""
    return {name: tl.constexpr(size) if static else size for name, size in sizes.items()}


def spans_wide(problem: Problem) -> bool:
    """True if an operand or output of ``problem`` spans more elements than 32-bit offsets reach."""
    return any(operand.span >= INDEX_LIMIT for operand in problem.tensors)


def dot_precision(problem: Any) -> str:
    """Returns the ``input_precision`` of the products of ``problem``: its own for fp32 operands, "ieee" for all
    others."""
    return str(problem.precision) if problem.dtype == "fp32" else "ieee"


def pointer_arguments(name: str, tensor: Tensor, operand: Operand, axes: str) -> dict[str, Any]:
    """Returns a tensor and the strides of its last dimensions as kernels name them: ``a_ptr``, ``stride_am``,
    ``stride_ak``.

    ``axes`` has one letter for each of these dimensions, "mk" for the matrix A. Strides are in elements.
    """
    strides = zip(axes, operand.strides[-len(axes) :], strict=True)
    return {f"{name}_ptr": tensor, **{f"stride_{name}{axis}": stride for axis, stride in strides}}


def broadcast_strides(bias: Operand) -> tuple[int, int, int]:
    """Strides of the bias as a (batch, M, N) tensor: 0 along a dimension that it lacks or is one element wide in."""
    missing = 3 - len(bias.shape)
    shape, strides = (1,) * missing + bias.shape, (0,) * missing + bias.strides
    z, m, n = (stride if extent != 1 else 0 for extent, stride in zip(shape, strides, strict=True))
    return z, m, n


@dataclass(frozen=True)
class Ran:
    """The observations of one run. ``grid`` ran (None if not observed), with this number of ``programs`` (None if not
    known). ``compiled`` is Triton's compiled kernel on a device."""

    executor: ExecutorName
    grid: tuple[int, ...] | None
    programs: int | None
    seconds: float
    compiled: Any = None


#: Some programs of a launch: ids of the first grid dimension, or indices of the grid.
Programs = Sequence[int | tuple[int, ...]]


class Executor(Protocol):
    """An executor of launches. ``device`` is where their tensors live; ``on_device``: that is an accelerator, not the
    interpreter's host memory."""

    @property
    def name(self) -> ExecutorName: ...

    @property
    def device(self) -> torch.device: ...

    @property
    def on_device(self) -> bool: ...

    def run(self, launch: Any, programs: Programs | None = None, *, observe: bool = False) -> Ran:
        """Runs ``launch`` and waits for it. ``programs`` restricts it to these program ids of the first grid dimension;
        ValueError where that cannot be. With ``observe`` the result must have the grid that ran; without it may."""
        ...


def watching(executor: Executor, operands: Mapping[str, Tensor], **rules: Any) -> AbstractContextManager[Any]:
    """Returns a context in which ``executor`` watches the accesses to ``operands`` under the ``rules`` of
    :class:`conformance.execution.interpreter.accesses.Accesses`. It gives None where the executor cannot watch."""
    watch = getattr(executor, "watching", None)
    return nullcontext() if watch is None else watch(operands, **rules)
