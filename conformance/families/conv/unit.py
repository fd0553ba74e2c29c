"""The values that a tensor core allows a convolution."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from conformance.families.conv import reference
from conformance.families.conv.problem import Conv
from conformance.families.gemm import unit as gemm
from conformance.families.unit_sums import Inputs, UnitAnswers, seen_format, sum_of
from conformance.numerics.sum_order import SumOrder, Unit
from conformance.numerics.tensor_core import Factors


def products(problem: Any) -> int:
    """Returns how many products are summed: those of the product of each group."""
    return gemm.products(problem.product) * int(problem.groups)


def results(problem: Conv, order: SumOrder, unit: Unit, inputs: Inputs) -> list[Tensor]:
    """Returns the implicit product of each group, and the bias."""
    totals = [sum_of(unit, order, runs) for runs in _runs(problem, inputs)]
    values = [_output(problem, totals)]
    if not problem.bias:
        return values
    bias = inputs["bias"].float()
    values = [values[0] + bias.reshape(-1, *[1] * len(problem.size))]
    if order.begins_at_addend:
        pairs = zip(_runs(problem, inputs), bias.split(problem.out_channels // problem.groups), strict=True)
        values.append(_output(problem, [sum_of(unit, order, runs, begin) for runs, begin in pairs]))
    return values


def _output(problem: Conv, groups: Sequence[Tensor]) -> Tensor:
    """The output of products (positions, channels of a group)."""
    total = torch.cat(list(groups), -1).reshape(problem.batch, *problem.out_size, problem.out_channels)
    return total.movedim(-1, 1)


def _runs(problem: Conv, inputs: Inputs) -> Iterator[list[Factors]]:
    """For each group the products that follow each other: taps in the order of the kernel's dimensions, the last
    fastest, and channels within a tap."""
    form = seen_format(problem, problem.dtype)
    view = problem.correlation
    seen = {
        tap: reference.seen(view, inputs["x"].double(), tap)[0] for tap in itertools.product(*map(range, view.kernel))
    }
    w = problem.by_output(inputs["w"].double())
    weights = w.reshape(problem.groups, problem.out_channels // problem.groups, problem.group_channels, *problem.kernel)
    for group in range(problem.groups):
        runs = []
        for tap, values in seen.items():
            at_tap: Any = (..., *tap)
            of_group = values.unflatten(1, (problem.groups, problem.group_channels))[:, group]
            rows = of_group.movedim(1, -1).reshape(-1, problem.group_channels)
            runs.append(Factors(rows, weights[group][at_tap].t(), form, form))
        yield runs


UNIT = UnitAnswers(results, products)
