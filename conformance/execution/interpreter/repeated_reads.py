"""Finds programs that store to the same elements of a result: terms that both add to it, and results that are lost."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Sequence

import torch
from torch import Tensor

from conformance.diagnosis.diagnose import axes, runs
from conformance.execution.interpreter.accesses import Footprint, Footprints, Touched
from conformance.execution.interpreter.missing_reads import storing_together
from conformance.families.family import family_of
from conformance.problems import Problem

#: Programs that store the same elements and are compared, each with each.
COMPARED = 32


def repeated_reads(problem: Problem, run: Footprints) -> list[str]:
    """Returns a sentence if two programs of ``run`` store to the same elements of an output and both read a term of
    their sum. A term has an index along every axis that no output has. Empty for a family whose axes have no names, and
    for one that gives none to its outputs."""
    if family_of(problem).axes is None:
        return []
    outputs = [output.name for output in problem.outputs]
    try:
        outer = {axis for name in outputs for axis in axes(problem, name)}
    except KeyError:
        return []
    facts: list[str] = []
    for together in storing_together(problem, run.footprints).values():
        for first, second in itertools.combinations(together[:COMPARED], 2):
            shared = _shared(problem, outer, (first, second))
            if shared and all(bool(index.any()) for index in shared.values()):
                terms = " and ".join(f"{axis} {runs(index)}" for axis, index in shared.items())
                where = " and ".join(name for name in outputs if name in first.stores)
                programs = f"programs {first.program} and {second.program}"
                facts.append(f"{terms} counted twice: {programs}, which both add to {where}, read it")
                break
    return [f"{facts[0]} [so do {len(facts) - 1} others]" if len(facts) > 1 else facts[0]] if facts else []


def lost_stores(problem: Problem, run: Footprints) -> list[str]:
    """Returns a sentence if two programs of ``run`` store to the same elements of an output, and not atomically.
    They must read different elements of the operands: what one of them stored is then lost."""
    operands = {operand.name for operand in problem.operands}
    facts: list[str] = []
    for together in storing_together(problem, run.footprints).values():
        for first, second in itertools.combinations(together[:COMPARED], 2):
            lost = sorted({*first.stores, *second.stores} - first.changed - second.changed)
            if lost and any(not _alike(first.loads.get(name), second.loads.get(name)) for name in operands):
                programs = f"programs {first.program} and {second.program}"
                facts.append(f"{programs} store to the same elements of {' and '.join(lost)}, and neither adds to them")
                break
    return [f"{facts[0]} [so do {len(facts) - 1} others]" if len(facts) > 1 else facts[0]] if facts else []


def _alike(first: Touched | None, second: Touched | None) -> bool:
    """True if two programs read the same indices of an operand."""
    if first is None or second is None:
        return first is second
    return all(torch.equal(one, other) for one, other in zip(first, second, strict=True))


def _shared(problem: Problem, outer: set[str], programs: Sequence[Footprint]) -> dict[str, Tensor]:
    """Returns, for each axis that is not ``outer``, the indices that all ``programs`` read of every operand that has
    it. Empty if one of them reads nothing of an operand that another one reads."""
    read: dict[str, list[Tensor]] = {}
    for operand in (tensor.name for tensor in problem.operands):
        inner = [(place, axis) for place, axis in enumerate(axes(problem, operand)) if axis not in outer]
        parts = [program.loads.get(operand) for program in programs]
        if not inner or not any(parts):
            continue
        if not all(parts):
            return {}
        for place, axis in inner:
            read.setdefault(axis, []).extend(part[place] for part in parts if part)
    return {axis: functools.reduce(torch.logical_and, indices) for axis, indices in read.items()}
