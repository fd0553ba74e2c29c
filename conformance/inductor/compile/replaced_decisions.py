"""Decisions of Inductor's that a program can have replaced: which, and how, while it is compiled."""

from __future__ import annotations

import contextlib
import functools
import importlib
import math
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch

from conformance.inductor.compile.deviceless import DevicelessUnsupported
from conformance.inductor.compile.program import Decision
from conformance.records import Reason, ReasonCode

#: What a replacement notes while torch compiles; plain data.
Notes = list[Any]


#: A class or module of Inductor's, its attribute, and what takes the attribute's place.
Patch = tuple[Any, str, Any]


def _times_are_infinite(notes: Notes, *, deferred: bool) -> list[Patch]:
    """Every choice of every lowering is timed as infinite: when it is lowered, or ``deferred`` to when the scheduler
    has fused what it can. Notes how many choices each time."""
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    select = AlgorithmSelectorCache.__call__

    def selecting(cache: Any, *arguments: Any, **options: Any) -> Any:
        return select(cache, *arguments, **{**options, "return_multi_template": deferred})

    def lookup(cache: Any, choices: list[Any], *arguments: Any, **options: Any) -> dict[Any, float]:
        notes.append(len(choices))
        return dict.fromkeys(choices, math.inf)

    return [(AlgorithmSelectorCache, "__call__", selecting), (AlgorithmSelectorCache, "lookup", lookup)]


def _k_may_be_split(notes: Notes) -> list[Patch]:
    """K is long enough for being split whatever M, N and K are, and not so long that nothing else is offered."""
    from torch._inductor.kernel import mm

    def use(m: Any, n: Any, k: Any, threshold_multiple: int = 1) -> bool:
        return threshold_multiple == 1

    return [(mm, "use_decompose_k_choice", use)]


def _k_is_split(notes: Notes) -> list[Patch]:
    """The same, and one choice of each lowering is left: the first that splits K, or the first of all. Notes
    (lowering, name of the choice)."""
    from torch._inductor.select_algorithm import AlgorithmSelectorCache

    select = AlgorithmSelectorCache.__call__

    def selecting(cache: Any, name: str, choices: list[Any], *arguments: Any, **options: Any) -> Any:
        left = [choice for choice in choices if choice.name.startswith("decompose_k")] or choices
        notes.append((name, left[0].name if left else None))
        return select(cache, name, left[:1], *arguments, **options)

    return [*_k_may_be_split(notes), (AlgorithmSelectorCache, "__call__", selecting)]


#: The one config in place of the exhaustive list.
ONE_CONFIG: Mapping[str, int] = {"BLOCK_M": 32, "BLOCK_N": 32, "BLOCK_K": 32, "num_stages": 1, "num_warps": 4}


def _one_exhaustive_config(notes: Notes) -> list[Patch]:
    """The exhaustive list of configs holds :data:`ONE_CONFIG` alone."""
    module = _heuristics()
    config = module.GemmConfig(*ONE_CONFIG.values(), group_m=8)

    def configs(heuristic: Any) -> Any:
        return functools.partial(heuristic.preprocess_mm_configs, configs=[config])

    return [(module.BaseConfigHeuristic, "get_exhaustive_mm_configs", configs)]


def _contiguous_is_better(notes: Notes) -> list[Patch]:
    """Sizes never speak against making the second operand contiguous."""
    modules = []
    for name in ("torch._inductor.utils", *(f"{package}.contiguous_mm" for package in _HEURISTICS)):
        with contextlib.suppress(ImportError):
            modules.append(importlib.import_module(name))
    return [(module, "use_contiguous", lambda m, n, k: True) for module in modules if hasattr(module, "use_contiguous")]


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


#: What replaces a decision, and notes what the test asks of it.
_REPLACEMENTS: Mapping[Decision, Callable[[Notes], list[Patch]]] = {
    Decision.TIMES_ARE_INFINITE: functools.partial(_times_are_infinite, deferred=False),
    Decision.DEFERRED_TIMES_ARE_INFINITE: functools.partial(_times_are_infinite, deferred=True),
    Decision.K_MAY_BE_SPLIT: _k_may_be_split,
    Decision.K_IS_SPLIT: _k_is_split,
    Decision.ONE_EXHAUSTIVE_CONFIG: _one_exhaustive_config,
    Decision.CONTIGUOUS_IS_BETTER: _contiguous_is_better,
}

#: Functions of torch._inductor.utils that remember their answer for sizes, whatever the options were.
REMEMBERING = ("use_decompose_k_choice", "get_k_splits", "use_contiguous")


@contextmanager
def replacing(decision: Decision | None) -> Iterator[Notes]:
    """Replaces ``decision`` until exit; yields a list that fills with what the replacement notes.

    What Inductor remembers of sizes is forgotten at the beginning and at the end, also without a decision: it depends
    on the options.
    """
    notes: Notes = []
    _forget()
    with ExitStack() as stack:
        stack.callback(_forget)
        for patch in [] if decision is None else _REPLACEMENTS[decision](notes):
            stack.enter_context(mock.patch.object(*patch))
        yield notes


def _forget() -> None:
    utils = sys.modules.get("torch._inductor.utils")
    for name in REMEMBERING:
        clear = getattr(getattr(utils, name, None), "cache_clear", None)
        if clear is not None:
            clear()
