"""Says on which elements of the operands an element of an output depends, axis by axis.

A program that stores an output must have read them, whatever its order of work: :func:`needed` is a lower bound.
"""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor

from conformance.families.family import family_of
from conformance.families.index_sets import Indices, Needed, merged
from conformance.problems import Problem

__all__ = ["Indices", "Needed", "axes", "merged", "needed"]


def axes(problem: Problem, name: str) -> tuple[str, ...]:
    """Returns the name of one index along each dimension of the operand ``name``. Raises TypeError for a family that
    does not say."""
    family = family_of(problem)
    if family.axes is None:
        raise TypeError(f"{problem.id}: the axes of its operands have no names: {family.lacks['axes']}")
    return family.axes(problem, name)


def needed(problem: Problem, inputs: Mapping[str, Tensor], output: str, stored: Indices) -> Needed:
    """Returns, for each operand, the indices on which the elements ``stored`` of ``output`` depend; {} for a family
    that does not say. If only some axes of an operand are bound to the output, all indices of the others are needed."""
    family = family_of(problem)
    if family.needed is None or not all(bool(index.any()) for index in stored):
        return {}
    return family.needed(problem, inputs, output, stored)
