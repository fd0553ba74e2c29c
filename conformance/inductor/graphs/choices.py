"""Graphs of the suite about Inductor's choices, and compilation with one of Inductor's decisions replaced."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import torch
from torch import Tensor

from conformance.inductor.compile.deviceless import DevicelessUnsupported, replaced
from conformance.inductor.compile.program import Generated, Program
from conformance.records import Reason, ReasonCode
from conformance.targets import Target

# --- graphs -----------------------------------------------------------------------------------------------------------


def sin_mm(a: Tensor, b: Tensor) -> Tensor:
    """A product of a computed operand; exact where that is empty."""
    return torch.sin(a) @ b


def relu_mm(a: Tensor, b: Tensor) -> Tensor:
    return torch.relu(a @ b)


def relu_transposed_mm(a: Tensor, b: Tensor) -> Tensor:
    """Of ``a`` as K x M."""
    return torch.relu(a.transpose(0, 1) @ b)


def transposed_mm(a: Tensor, b: Tensor) -> Tensor:
    """Of ``a`` as K x M."""
    return a.transpose(0, 1) @ b


def stacked_mm(a: Tensor, b: Tensor) -> Tensor:
    """Twice the rows of ``a``: with a dynamic number of them, M is an expression."""
    return torch.cat((a, a)) @ b


def stacked_columns(a: Tensor, b: Tensor) -> Tensor:
    """32 times the rows of ``a``."""
    return torch.cat([a] * 32) @ b


def wide_bmm(a: Tensor, b: Tensor) -> Tensor:
    """The output is fp32; fp64 stays, so that the same function is its own reference."""
    return torch.bmm(a, b) if a.dtype == torch.float64 else torch.bmm(a, b, out_dtype=torch.float32)


def matrix_addmm(bias: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """The bias is a matrix."""
    return torch.addmm(bias, a, b)


# --- decisions that can be replaced -----------------------------------------------------------------------------------

#: What a replacement notes while torch compiles; plain data.
Notes = list[Any]


@contextmanager
def _nothing(notes: Notes) -> Iterator[None]:
    yield


@contextmanager
def _times_are_infinite(notes: Notes, *, deferred: bool) -> Iterator[None]:
    """Every choice of every lowering is timed as infinite: when it is lowered, or ``deferred`` to when the scheduler
    has fused what it can. Notes how many choices each time."""
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    select = AlgorithmSelectorCache.__call__

    def selecting(cache: Any, *arguments: Any, **options: Any) -> Any:
        return select(cache, *arguments, **{**options, "return_multi_template": deferred})

    def lookup(cache: Any, choices: list[Any], *arguments: Any, **options: Any) -> dict[Any, float]:
        notes.append(len(choices))
        return dict.fromkeys(choices, math.inf)

    with (
        replaced(AlgorithmSelectorCache, "__call__", selecting),
        replaced(AlgorithmSelectorCache, "lookup", lookup),
    ):
        yield


@contextmanager
def _decomposes_k(notes: Notes) -> Iterator[None]:
    """K is long enough for being split whatever M, N and K are, and not so long that nothing else is offered."""
    from torch._inductor.kernel import mm

    def use(m: Any, n: Any, k: Any, threshold_multiple: int = 1) -> bool:
        return threshold_multiple == 1

    with replaced(mm, "use_decompose_k_choice", use):
        yield


@contextmanager
def _decomposes_k_first(notes: Notes) -> Iterator[None]:
    """The same, and of the choices of a lowering only those that split K are left if there are any. Notes the names
    of the first that is left, by lowering."""
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    select = AlgorithmSelectorCache.__call__

    def selecting(cache: Any, name: str, choices: list[Any], *arguments: Any, **options: Any) -> Any:
        left = [choice for choice in choices if choice.name.startswith("decompose_k")] or choices
        notes.append((name, left[0].name if left else None))
        return select(cache, name, left[:1], *arguments, **options)

    with _decomposes_k(notes), replaced(AlgorithmSelectorCache, "__call__", selecting):
        yield


#: The one config in place of the exhaustive list.
ONE_CONFIG: Mapping[str, int] = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "num_stages": 1, "num_warps": 4}


@contextmanager
def _one_exhaustive_config(notes: Notes) -> Iterator[None]:
    """The exhaustive list of configs holds :data:`ONE_CONFIG` alone."""
    module = _heuristics()
    config = module.GemmConfig(*ONE_CONFIG.values(), group_m=8)

    def configs(heuristic: Any) -> Any:
        return functools.partial(heuristic.preprocess_mm_configs, configs=[config])

    with replaced(module.BaseConfigHeuristic, "get_exhaustive_mm_configs", configs):
        yield


@contextmanager
def _layouts_noted(notes: Notes) -> Iterator[None]:
    """Notes the class name of each choice's layout, by lowering."""
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    select = AlgorithmSelectorCache.__call__

    def selecting(cache: Any, name: str, choices: list[Any], *arguments: Any, **options: Any) -> Any:
        notes.append((name, tuple(type(choice.layout).__name__ for choice in choices)))
        return select(cache, name, choices, *arguments, **options)

    with replaced(AlgorithmSelectorCache, "__call__", selecting):
        yield


@contextmanager
def _contiguous_wanted(notes: Notes) -> Iterator[None]:
    """Sizes never speak against making the second operand contiguous."""
    with ExitStack() as stack:
        for name in ("torch._inductor.utils", *(f"{package}.contiguous_mm" for package in _HEURISTICS)):
            with contextlib.suppress(ImportError):
                module = importlib.import_module(name)
                if hasattr(module, "use_contiguous"):
                    stack.enter_context(replaced(module, "use_contiguous", lambda m, n, k: True))
        yield


#: Packages of Inductor's heuristics of templates, by release.
_HEURISTICS = ("torch._inductor.heuristics.template", "torch._inductor.template_heuristics")


def _heuristics() -> Any:
    """Inductor's module of lists of configs. Raises DevicelessUnsupported if it is where no known release has it."""
    for name in (*(f"{package}.triton" for package in _HEURISTICS), *_HEURISTICS):
        with contextlib.suppress(ImportError):
            module = importlib.import_module(name)
            if hasattr(module, "BaseConfigHeuristic") and hasattr(module, "GemmConfig"):
                return module
    detail = f"torch {torch.__version__} has no BaseConfigHeuristic in {' or '.join(_HEURISTICS)}"
    raise DevicelessUnsupported(Reason(ReasonCode.CAPABILITY, "exhaustive configs", detail))


#: name -> context manager that replaces a decision and notes what the test asks of it
REPLACEMENTS: Mapping[str, Callable[[Notes], contextlib.AbstractContextManager[None]]] = {
    "nothing": _nothing,
    "times are infinite": functools.partial(_times_are_infinite, deferred=False),
    "times are infinite, deferred": functools.partial(_times_are_infinite, deferred=True),
    "decomposes k": _decomposes_k,
    "decomposes k first": _decomposes_k_first,
    "one exhaustive config": _one_exhaustive_config,
    "layouts noted": _layouts_noted,
    "contiguous wanted": _contiguous_wanted,
}

#: Functions of torch._inductor.utils that remember what they said for sizes, whatever the options were.
REMEMBERING = ("use_decompose_k_choice", "get_k_splits", "use_contiguous")


@contextmanager
def replacing(name: str) -> Iterator[Notes]:
    """Inside, the decision that ``name`` says is replaced (a key of :data:`REPLACEMENTS`); gives what is noted."""
    notes: Notes = []
    _forget()
    try:
        with REPLACEMENTS[name](notes):
            yield notes
    finally:
        _forget()


def _forget() -> None:
    utils = sys.modules.get("torch._inductor.utils")
    for name in REMEMBERING:
        clear = getattr(getattr(utils, name, None), "cache_clear", None)
        if clear is not None:
            clear()


def generate_replacing(given: tuple[Program, str], target: Target) -> tuple[Generated, Notes]:
    """In a compile process: what is generated for a program with a decision replaced, and what was noted."""
    from conformance.inductor.compile.deviceless_worker import generate

    program, name = given
    with replacing(name) as notes:
        return generate(program, target), notes
