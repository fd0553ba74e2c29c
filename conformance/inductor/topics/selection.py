"""Checks of how Inductor selects: by size at run time, from a table, by heuristics of the user."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from unittest import mock

import torch

from conformance.inductor.compile.program import Choice, Generated
from conformance.inductor.compile.provider import CompiledProgram
from conformance.inductor.source.source_checks import extern_calls, launched
from conformance.problems import DTYPES
from conformance.records import Verdict

#: One kernel of a choice by size: the number of rows that it was tuned for, and its name.
_BRANCH = re.compile(r"^ *\(\((\d+), [\d, ]+\), .*\): (triton_\w+),$", re.MULTILINE)


def branches(generated: Generated) -> dict[int, str]:
    """Rows that a kernel was tuned for -> its name, of the one choice by size in the last module."""
    text = generated.modules[-1]
    if len(re.findall(r"= async_compile\.size_hint_multi_kernel\(", text)) != 1:
        return {}
    return {int(rows): kernel for rows, kernel in _BRANCH.findall(text)}


def check_branches(generated: Generated, hints: Sequence[int]) -> list[Verdict]:
    """One module chooses between kernels for these ``hints``, and the kernels are not all the same."""
    kernels = branches(generated)
    return [
        Verdict("branches", list(kernels) == list(hints), f"for {list(kernels)} rows, {list(hints)} required"),
        Verdict("different kernels", len(set(kernels.values())) > 1, ", ".join(kernels.values())),
        Verdict("modules", len(generated.modules) == 1, f"{len(generated.modules)}, 1 required"),
    ]


def check_dispatch(compiled: CompiledProgram, executor: Any) -> list[Verdict]:
    """The compiled function launches one template, the one whose rows are nearest to those of its first operand, by
    the ratio of the two."""
    kernels = branches(compiled.generated)
    rows = compiled.program.operands[0].shape[0]
    nearest = min(kernels, key=lambda hint: abs(math.log2(hint / rows)), default=0)
    tensors = [
        torch.zeros(operand.shape, dtype=DTYPES[operand.dtype], device=executor.device)
        for operand in compiled.program.operands
    ]
    _, launches = compiled.call(tensors, executor)
    launched = [name for name, _ in launches if name.startswith("triton_tem_")]
    required = [kernels.get(nearest)]
    return [Verdict("dispatched", launched == required, f"{rows} rows: launched {launched}, {required} required")]


def check_only(generated: Generated, config: Mapping[str, int]) -> list[Verdict]:
    """One lowering was offered one choice, of a Triton template with this ``config``, and it is what is launched."""
    offered = [choice for lowering in generated.lowerings for choice in lowering.offered]
    numbers = [{name: choice.numbers.get(name) for name in config} for choice in offered]
    return [
        Verdict("offered", [choice.kind for choice in offered] == ["triton"], _names(offered)),
        Verdict("config", numbers == [dict(config)], f"{numbers}, {dict(config)} required"),
        *check_launches(generated, templates=1, extern=[]),
    ]


def check_usual(generated: Generated) -> list[Verdict]:
    """More than one choice of Triton's was offered."""
    triton = [choice for choice in generated.offered if choice.kind == "triton"]
    return [Verdict("offered", len(triton) > 1, f"{_names(triton)}: several required")]


def check_launches(generated: Generated, *, templates: int, extern: Sequence[str]) -> list[Verdict]:
    """The modules launch so many kernels of templates, and call these kernels of ATen and no other."""
    launches = [name for name in launched(*generated.modules) if name.startswith("triton_tem_")]
    calls = extern_calls(*generated.modules)
    return [
        Verdict("templates", len(launches) == templates, f"{', '.join(launches) or 'none'}: {templates} required"),
        Verdict("extern", calls == list(extern), f"{calls}, {list(extern)} required"),
    ]


def check_library(generated: Generated, names: Sequence[str]) -> list[Verdict]:
    """Each lowering was offered templates of Triton's and one of ATen's kernels ``names``, which is what is called."""
    verdicts = [Verdict("lowerings", len(generated.lowerings) > 0, f"{len(generated.lowerings)}")]
    for number, lowering in enumerate(generated.lowerings):
        kinds = {choice.kind for choice in lowering.offered}
        text = _names(lowering.offered)
        verdicts.append(Verdict(f"both/{number}", {"triton", "extern"} <= kinds, text))
    calls = extern_calls(*generated.modules)
    called = len(calls) == 1 and calls[0] in names
    return [
        *verdicts,
        *check_launches(generated, templates=0, extern=calls),
        Verdict("library", called, f"{calls}, one of {', '.join(names)} required"),
    ]


def check_keys(keys: Sequence[tuple[str, str]], operation: str, shapes: Sequence[Sequence[int]]) -> list[Verdict]:
    """Checks that one product was looked up, by a key with the device's name and by one without. Both keys name the
    ``operation`` and the ``shapes`` of its operands."""
    specific, general = keys[0] if len(keys) == 1 else ("", "")
    named = general.endswith(f"+{operation}") and all(str(list(shape)) in general for shape in shapes)
    return [
        Verdict("looked up", len(keys) == 1, f"{len(keys)} times, once required"),
        Verdict("key", named, f"{general}: {operation} and {[list(shape) for shape in shapes]} required"),
        Verdict("device", specific.endswith(general) and len(specific) > len(general), specific),
    ]


def _names(choices: Sequence[Choice]) -> str:
    return ", ".join(choice.name for choice in choices) or "none"


@contextmanager
def counting_replays() -> Iterator[list[None]]:
    """A list that grows by one whenever a CUDA graph is launched."""
    replays: list[None] = []
    replay = torch.cuda.CUDAGraph.replay

    def counted(graph: Any) -> None:
        replays.append(None)
        replay(graph)

    with mock.patch.object(torch.cuda.CUDAGraph, "replay", counted):
        yield replays
