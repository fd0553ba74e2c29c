"""The values that a tensor core allows grouped products."""

from __future__ import annotations

import math

from torch import Tensor

from conformance.families.gemm.unit import epilogue
from conformance.families.grouped import reference
from conformance.families.grouped.problem import GroupedGemm
from conformance.families.unit_sums import Inputs, UnitAnswers, seen_format, sum_of
from conformance.numerics.sum_order import SumOrder, Unit
from conformance.numerics.tensor_core import Factors


def products(problem: GroupedGemm) -> int:
    """Returns how many products are summed."""
    return sum(math.prod(problem.group_extents(group)) for group in range(problem.groups))


def results(problem: GroupedGemm, order: SumOrder, unit: Unit, inputs: Inputs) -> list[Tensor]:
    """Returns the product of each group with its scales."""
    form = seen_format(problem, problem.dtype)
    operands = [reference.parts(problem, name, inputs[name].double()) for name in "ab"]
    totals = []
    for group, (a, b) in enumerate(zip(*operands, strict=True)):
        total = sum_of(unit, order, [Factors(a, b, form, form)])
        totals += epilogue(problem.group_product(group), total, reference.group_scales(problem, inputs)[group])
    return [reference.joined(problem, "out", totals)]


UNIT = UnitAnswers(results, products)
