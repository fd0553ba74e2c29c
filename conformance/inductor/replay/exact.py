"""Judges a compiled graph bit by bit, on operands for which every correct implementation gives the same bits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from conformance.execution.compile.compile_worker import named
from conformance.inductor.compile.program import Program
from conformance.inductor.compile.provider import CompiledProgram
from conformance.inductor.replay.graph_fills import GraphFill
from conformance.inputs.guarded_memory import GuardedTensor
from conformance.kernels.launch import watching
from conformance.numerics.rounding import bits
from conformance.problems import DTYPES, INTEGERS, Operand
from conformance.records import Check, CheckKind, Verdict

#: Operands are whole numbers from -LARGEST to LARGEST.
LARGEST = 4


def small_integers(operand: Operand, seed: int, number: int) -> Tensor:
    """Values for ``operand``, the ``number``-th of its program: equal along dimensions of stride 0."""
    generator = torch.Generator().manual_seed(seed * 1009 + number)
    stored = [extent if stride else 1 for extent, stride in zip(operand.shape, operand.strides, strict=True)]
    low = 0 if operand.dtype == "uint8" else -LARGEST
    values = torch.randint(low, LARGEST + 1, stored, generator=generator)
    return values.to(DTYPES[operand.dtype]).expand(operand.shape)


def values_of(program: Program, seed: int, chosen: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Values of the program's operands by name: those that are ``chosen``, and small integers for the others."""
    return {
        operand.name: chosen.get(operand.name, small_integers(operand, seed, number))
        for number, operand in enumerate(program.operands)
    }


def exact_verdicts(
    compiled: CompiledProgram, executor: Any, seed: int, chosen: Mapping[str, Tensor], reference: str | None = None
) -> list[Verdict]:
    """Judges two runs with different poison around the operands: their numbers, their agreement, and the memory around
    and inside the operands. The numbers are compared with the graph in fp64, or with the function ``reference``
    ("package.module:function"). ``chosen`` are values of operands by name.

    Raises ValueError if the reference is not exact in the output's dtype.
    """
    program = compiled.program
    whole = {operand.name for operand in program.operands if operand.dtype in INTEGERS}
    values = values_of(program, seed, chosen)
    # what indexes or masks keeps its dtype
    wide = [value if name in whole else value.double() for name, value in values.items()]
    result = named(reference or program.graph)(*wide, **dict(program.arguments))
    right = result if isinstance(result, (tuple, list)) else (result,)
    runs: list[tuple[Tensor, ...]] = []
    verdicts: list[Verdict] = []
    for pattern in (0, 1):
        outputs, memory = _outputs(compiled, executor, list(values.values()), pattern)
        verdicts += memory
        runs.append(outputs)
    for number, exact in enumerate(right):
        verdicts.append(_compared(str(Check(CheckKind.NUMERICS, f"{number}")), runs[0][number], exact))
        same = torch.equal(bits(runs[0][number].contiguous()), bits(runs[1][number].contiguous()))
        text = "two runs with different poison around the operands"
        verdicts.append(Verdict(str(Check(CheckKind.REPEAT, f"{number}")), same, text))
    return verdicts


def wide_verdicts(compiled: CompiledProgram, executor: Any, fills: Sequence[GraphFill]) -> list[Verdict]:
    """One run of each of ``fills``, with another poison around the operands: their numbers, and the memory around and
    inside the operands. No fill runs twice: an output that depends on poison, or on what lay in memory before, has a
    wrong number in one of them."""
    verdicts: list[Verdict] = []
    for pattern, fill in enumerate(fills):
        outputs, memory = _outputs(compiled, executor, fill.values, pattern % 2)
        verdicts += memory
        for number, right in enumerate(fill.right):
            check = str(Check(CheckKind.NUMERICS, f"{number}/{fill.name}"))
            verdicts.append(_among(check, outputs[number], right, fill.ties))
    return verdicts


def _outputs(
    compiled: CompiledProgram, executor: Any, values: Sequence[Tensor], pattern: int
) -> tuple[tuple[Tensor, ...], list[Verdict]]:
    """The outputs for ``values`` of the operands, in their order, and a verdict if memory was disturbed."""
    placed = [
        GuardedTensor.place(value, operand, device=executor.device, pattern=pattern)
        for value, operand in zip(values, compiled.program.operands, strict=True)
    ]
    views = {tensor.operand.name: tensor.view for tensor in placed}
    with watching(executor, views, undefined_lanes=False) as accesses:
        outputs, _ = compiled.call([tensor.view for tensor in placed], executor, observe=False)
    disturbed = [str(violation) for tensor in placed for violation in tensor.violations()]
    disturbed += accesses.strays.values() if accesses is not None else []
    memory = [Verdict("memory", False, "; ".join(disturbed[:4]), {"pattern": pattern})] if disturbed else []
    return tuple(output.detach().cpu() for output in outputs), memory


def _among(check: str, output: Tensor, right: Sequence[Tensor], ties: float) -> Verdict:
    """Each element has the value of one of the ``right`` results."""
    required = right[0]
    if output.shape != required.shape or output.dtype != required.dtype:
        actual = f"{tuple(output.shape)} of {output.dtype}"
        return Verdict(check, False, f"{actual}, {tuple(required.shape)} of {required.dtype} is required")
    wrong = torch.stack([output != one for one in right]).all(0)
    if not bool(wrong.any()):
        return Verdict(check, True, f"{output.numel()} elements are exact, {ties:.0%} of an output are ties")
    return Verdict(check, False, _first_wrong(wrong, output, required))


def _first_wrong(wrong: Tensor, output: Tensor, required: Tensor) -> str:
    first = wrong.nonzero()[0].tolist() if output.dim() else []
    values = f"{output[tuple(first)].item()}, {required[tuple(first)].item()} required"
    return f"{int(wrong.sum())} of {output.numel()} wrong, first {first} is {values}"


def _compared(check: str, output: Tensor, reference: Tensor) -> Verdict:
    if output.shape != reference.shape:
        return Verdict(check, False, f"shape {tuple(output.shape)}, {tuple(reference.shape)} is required")
    required = reference.to(output.dtype)
    if not torch.equal(required.to(reference.dtype), reference):
        raise ValueError(
            f"{check}: the reference is not exact in {output.dtype}: use smaller operands or a wider output"
        )
    wrong = (output.double() != required.double()) | output.double().isnan()
    if not bool(wrong.any()):
        return Verdict(check, True, f"{output.numel()} elements are exact")
    return Verdict(check, False, _first_wrong(wrong, output, required))
