"""Finds operands that programs do not read although what they store depends on them: facts, of whatever computation."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.diagnosis.diagnose import Needed, axes, merged, needed, runs
from conformance.execution.interpreter.accesses import Footprint, Footprints, Touched
from conformance.problems import Problem

#: As many facts are told.
MOST = 2


def missing_reads(problem: Problem, inputs: Mapping[str, Tensor], run: Footprints) -> list[str]:
    """Returns sentences about what the programs of ``run`` should have read of ``inputs`` and did not. Whole operands
    come first, then what single programs missed, else what no program has read. Workspaces that were read before they
    were written are named alone. Two facts at most."""
    footprints = run.footprints
    if run.unwritten:
        return list(run.unwritten.values())[:MOST]
    if nothing := _of_all(problem, inputs, footprints, whole=True):
        return nothing[:MOST]
    return (_of_programs(problem, inputs, footprints) or _of_all(problem, inputs, footprints, whole=False))[:MOST]


def _of_all(
    problem: Problem, inputs: Mapping[str, Tensor], footprints: Sequence[Footprint], *, whole: bool
) -> list[str]:
    """Returns sentences about what no program has read: ``whole`` operands, or a part of them."""
    every = [tuple(torch.ones(extent, dtype=torch.bool) for extent in output.shape) for output in problem.outputs]
    pairs = zip(problem.outputs, every, strict=True)
    read = _read(footprints)
    facts = []
    for operand, indices in merged(needed(problem, inputs, output.name, index) for output, index in pairs).items():
        if whole and operand not in read:
            facts.append(f"no program reads {operand}")
        elif not whole and operand in read and (missing := _missing(problem, operand, indices, read[operand])):
            facts.append(f"no program reads {missing.what} of {operand}, on which the result depends")
    return facts


def storing_together(problem: Problem, footprints: Sequence[Footprint]) -> dict[tuple[object, ...], list[Footprint]]:
    """Returns the programs that store to the same elements of the outputs, by launch and elements."""
    storing: dict[tuple[object, ...], list[Footprint]] = {}
    for footprint in footprints:
        stored = [output.name for output in problem.outputs if output.name in footprint.stores]
        if stored:
            key = tuple((name, *map(_bytes, footprint.stores[name])) for name in stored)
            storing.setdefault((footprint.launch, *key), []).append(footprint)
    return storing


def _of_programs(problem: Problem, inputs: Mapping[str, Tensor], footprints: Sequence[Footprint]) -> list[str]:
    """Returns sentences about what programs did not read although what they store depends on it; programs that store
    the same are taken together. A launch that reads nothing of an operand gets it from another launch."""
    outputs = [output.name for output in problem.outputs]
    reading = {(footprint.launch, operand) for footprint in footprints for operand in footprint.loads}
    facts: dict[tuple[str, tuple[str, ...]], list[str]] = {}
    for together in storing_together(problem, footprints).values():
        one, read = together[0], _read(together)
        stored = [name for name in outputs if name in one.stores]
        missed: dict[_Missing, list[str]] = {}
        for operand, indices in merged(needed(problem, inputs, name, one.stores[name]) for name in stored).items():
            missing = _missing(problem, operand, indices, read.get(operand))
            if missing is not None and (one.launch, operand) in reading:
                missed.setdefault(missing, []).append(operand)
        for missing, operands in missed.items():
            text = _text(missing, one, operands, stored)
            facts.setdefault((missing.axis, tuple(operands)), []).append(text)
    counted = sorted(facts.values(), key=lambda texts: -len(texts))
    return [f"{texts[0]} [so do {len(texts) - 1} others]" if len(texts) > 1 else texts[0] for texts in counted]


def _text(missing: _Missing, footprint: Footprint, operands: list[str], outputs: list[str]) -> str:
    lines = list(dict.fromkeys(line for name in operands for line in footprint.lines.get(name, ())))
    at = f", at {', '.join(lines[:2])}" if lines else ""
    return (
        f"program {footprint.program} stores {_and(outputs)} without {missing.what} of {_and(operands)}, "
        f"and reads {missing.read}{at}"
    )


def _and(names: Sequence[str]) -> str:
    return ", ".join(names[:-1]) + f" and {names[-1]}" if len(names) > 1 else names[0]


def _read(footprints: Sequence[Footprint]) -> Needed:
    return merged(footprint.loads for footprint in footprints)


def _bytes(index: Tensor) -> bytes:
    return bytes(index.numpy().tobytes())


@dataclass(frozen=True)
class _Missing:
    """Along one ``axis``, in words: ``what`` is missing, and what was ``read`` instead."""

    axis: str
    what: str
    read: str


def _missing(problem: Problem, operand: str, required: Touched, read: Touched | None) -> _Missing | None:
    """Returns the part of ``required`` that is not ``read``, along the first axis where something is missing."""
    for axis, (name, index) in enumerate(zip(axes(problem, operand), required, strict=True)):
        held = torch.zeros_like(index) if read is None else read[axis]
        if bool((index & ~held).any()):
            return _Missing(name, f"{name} {runs(index & ~held)}", f"{name} {runs(held)}" if held.any() else "none")
    return None
