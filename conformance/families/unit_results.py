"""The outputs that a tensor core allows a problem: one for each element, or a few where a compiler may fuse."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from conformance.families.family import family_of
from conformance.families.unit_sums import Inputs, seen_format
from conformance.numerics.rounding import round_to
from conformance.numerics.sum_order import SumOrder, Unit
from conformance.problems import EVERY_FP8, Problem


def operand_name(problem: Problem) -> str:
    """Returns the name of what the unit multiplies: the key of ``FORMATS`` of both operands, or "a*b" where they
    differ."""
    first = seen_format(problem, problem.dtype)
    second = getattr(problem, "second_dtype", problem.dtype) if problem.dtype in EVERY_FP8 else problem.dtype
    return first if second == problem.dtype else f"{first}*{second}"


def knows(problem: Problem) -> bool:
    """True if :func:`results` can follow the operation of ``problem`` with operands of a tensor core."""
    if (problem.dtype == "fp32" and problem.precision != "tf32") or problem.dtype in ("int8", "fp64"):
        return False
    answers = family_of(problem).unit
    return answers is not None and answers.knows(problem)


def results(problem: Problem, order: SumOrder, unit: Unit, inputs: Inputs) -> list[Tensor]:
    """Returns the fp32 values before the output rounding that ``unit`` allows, each in the first output's shape, on the
    device of ``inputs``. These are dense operands by name, finite.

    An element may be any of those in its place. Raises TypeError for a problem that :func:`knows` refuses.
    """
    answers = family_of(problem).unit
    if answers is None or not knows(problem):
        raise TypeError(f"{problem.id}: the bits of its operation are not known")
    return answers.results(problem, order, unit, inputs)


def rounded(values: Sequence[Tensor], dtype: str, overflow: str) -> Tensor:
    """``values`` in the output's ``dtype``, one behind the other."""
    return torch.stack([round_to(value.double(), dtype, overflow=overflow) for value in values])
