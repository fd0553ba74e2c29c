"""What the cache of generated templates counts while a program is compiled, with a device or without."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from conformance.execution.compile.compile_worker import named
from conformance.inductor.compile.program import Program
from conformance.inductor.tuning.max_autotune import compiling
from conformance.inductor.tuning.stand_ins import selector_restored
from conformance.problems import DTYPES, Operand
from conformance.targets import Target


@dataclass(frozen=True)
class Counted:
    """What one compilation counted: choices of the first lowering that are Triton templates, hits and misses of the
    cache of generated templates, and the text of what stopped it."""

    templates: int
    hits: int
    misses: int
    failure: str = ""


def key_is_constant() -> AbstractContextManager[Any]:
    """Until exit the cache takes every template for the same."""
    from torch._inductor.select_algorithm import GeneratedCodeCache

    return mock.patch.object(GeneratedCodeCache, "make_key", return_value="the same for all")


def count_generated(payload: tuple[Program, bool], target: Target) -> Counted:
    """In a compile process: what generating a program's code counts. The second of ``payload`` says whether the key of
    the cache is constant."""
    from conformance.inductor.compile.deviceless_worker import generate

    program, constant_key = payload
    with key_is_constant() if constant_key else contextlib.nullcontext():
        generated = generate(program, target)
    offered = generated.lowerings[0].offered if generated.lowerings else ()
    failure = generated.failure.message if generated.failure else ""
    return _counted(sum(choice.kind == "triton" for choice in offered), generated.counters, failure)


def count_compiled(program: Program, constant_key: bool) -> Counted:
    """On a device: what compiling a program and calling it counts."""
    from torch._inductor.ir import TritonTemplateCallerBase

    offered: list[int] = []

    def watch(choices: list[Any]) -> list[Any]:
        offered.append(sum(isinstance(choice, TritonTemplateCallerBase) for choice in choices))
        return choices

    failure = ""
    with contextlib.ExitStack() as stack:
        if constant_key:
            stack.enter_context(key_is_constant())
        # padding is decided by timing, and what is padded has a layout that the cache does not take
        counters = stack.enter_context(compiling(**{"shape_padding": False, **dict(program.settings)}))
        torch._dynamo.reset()
        stack.enter_context(selector_restored()).add_preprocessing_fn(watch)
        try:
            torch.compile(named(program.graph), dynamic=program.dynamic)(*map(_on_device, program.operands))
        except Exception as error:  # what stopped it is judged
            failure = str(error)
        return _counted(offered[0] if offered else 0, counters["inductor"], failure)


def _on_device(operand: Operand) -> Tensor:
    storage = torch.zeros(operand.span, dtype=DTYPES[operand.dtype], device=torch.accelerator.current_accelerator())
    return storage.as_strided(operand.shape, operand.strides)


def _counted(templates: int, counters: Mapping[str, int], failure: str) -> Counted:
    hits, misses = (counters.get(f"generated_module_cache_{name}", 0) for name in ("hit", "miss"))
    return Counted(templates, hits, misses, failure)
