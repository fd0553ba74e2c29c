"""Faults of functions of rows: rows and columns taken for others, columns that are left out, what a function forgets.

Also what an output needs of the operands.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

from torch import Tensor

from conformance.families.family import Indices, Needed, every
from conformance.families.gemm.alterations import lines, other_indices
from conformance.families.rows.problem import RowProblem
from conformance.families.rows.reference import evaluated
from conformance.families.usual_faults import usual_faults
from conformance.numerics.alterations import Alteration, Outputs, Tiling
from conformance.numerics.contract import Contract


def alterations(problem: RowProblem, contract: Contract, tiling: Tiling, exact: bool) -> Iterator[Alteration]:
    """Every alteration of ``problem``; ``exact``: the fills are judged bit by bit."""
    make = functools.partial(_computed, problem, exact)
    for cause, compute in problem.function.faults:
        yield Alteration(cause, functools.partial(make, compute, {}))
    parts = problem.function.operands
    matrices = tuple(part for part in parts if part.axes == "rc")
    for group in dict.fromkeys(filter(None, (matrices, *((part,) for part in parts)))):
        names = " and ".join(part.name for part in group)
        for dim, axis in enumerate(group[0].axes):
            for what, index in other_indices(problem.extents(group[0])[dim]):
                changes = {part.name: lines(index, dim) for part in group}
                cause = f"{names} of another {problem.function.axis(axis).name}: {what}"
                yield Alteration(cause, functools.partial(make, None, changes))
    yield from usual_faults(problem, tiling, axes, functools.partial(_evaluated, exact))


def _evaluated(exact: bool, problem: RowProblem, inputs: Mapping[str, Tensor]) -> Outputs:
    return _computed(problem, exact, None, {}, inputs)


def _computed(
    problem: RowProblem, exact: bool, compute: Any, changes: Mapping[str, Any], inputs: Mapping[str, Tensor]
) -> Outputs:
    changed = {name: changes[name](tensor) if name in changes else tensor for name, tensor in inputs.items()}
    parts = evaluated(problem, changed, device="cpu", compute=compute)
    return {name: (part.value, None if exact else part.error()) for name, part in parts.items()}


def axes(problem: RowProblem, name: str) -> tuple[str, ...]:
    """Names the indices of an operand or output: those of an axis mean the same in all of them."""
    function = problem.function
    (part,) = (part for part in (*function.operands, *function.outputs) if part.name == name)
    return tuple(function.axis(letter).name for letter in part.axes)


def needed(problem: RowProblem, inputs: Mapping[str, Tensor], output: str, stored: Indices) -> Needed:
    """Returns what the function says that it needs. Else that is the whole rows of the elements ``stored``; their
    columns of operands without rows, and all rows of these columns for an output without rows."""
    (part,) = (part for part in problem.function.outputs if part.name == output)
    along = dict(zip(part.axes, stored, strict=True))
    if problem.function.needs is not None:
        return problem.function.needs(problem, inputs, along)
    result: Needed = {}
    for other in problem.function.operands:
        whole_rows = "r" in along and "r" in other.axes
        indices = [
            along[letter] if letter in along and not (letter != "r" and whole_rows) else every(extent)
            for letter, extent in zip(other.axes, problem.extents(other), strict=True)
        ]
        result[other.name] = tuple(indices)
    return result
