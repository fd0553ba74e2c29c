"""The values that a tensor core allows a gradient of weights."""

from __future__ import annotations

import torch
from torch import Tensor

from conformance.families.conv.unit import products
from conformance.families.unit_sums import Inputs, UnitAnswers, seen_format, sum_of
from conformance.families.weight_gradient import reference
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.numerics.sum_order import SumOrder, Unit
from conformance.numerics.tensor_core import Factors


def knows(problem: WeightGradient) -> bool:
    """True if there is anything to sum."""
    return problem.positions > 0


def results(problem: WeightGradient, order: SumOrder, unit: Unit, inputs: Inputs) -> list[Tensor]:
    """Returns the product of each group."""
    form = seen_format(problem, problem.dtype)
    groups = [sum_of(unit, order, [Factors(a, b, form, form)]) for a, b in reference.factors(problem, inputs)]
    return [reference.joined(problem, torch.stack(groups))]


UNIT = UnitAnswers(results, products, knows)
