"""Sums in the order of a tensor core, and what a family states of its operations on one."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conformance.numerics.sum_order import SumOrder, Unit
from conformance.numerics.tensor_core import Factors, sum_products

Inputs = Mapping[str, Tensor]


@dataclass(frozen=True)
class UnitAnswers:
    """The sums that a family states for its problems on a tensor core.

    ``results(problem, order, unit, inputs)`` returns the fp32 values before the output rounding, each in the first
    output's shape. An element may be any of those in its place.

    ``products(problem)`` returns how many products are summed.

    ``knows(problem)`` is True if the bits of its operation follow from the order and the unit.
    """

    results: Callable[[Any, SumOrder, Unit, Inputs], list[Tensor]]
    products: Callable[[Any], int]
    knows: Callable[[Any], bool] = lambda problem: True


def seen_format(problem: Any, dtype: str) -> str:
    """Returns the format in which the unit sees an operand of ``dtype``."""
    return "tf32" if dtype == "fp32" and problem.precision == "tf32" else dtype


def sum_of(unit: Unit, order: SumOrder, runs: Sequence[Factors], begin: Tensor | None = None) -> Tensor:
    """Returns the fp32 sum of the products of all ``runs``, one after the other; each begins with a step of its own.

    ``begin`` is what the unit adds them to, if it is not zero. Without products the sum is zero.
    """
    if begin is None and not any(factors.depth for factors in runs):
        return torch.zeros(runs[0].a.shape[0], runs[0].b.shape[1], device=runs[0].a.device)
    if order.splits > 1:
        (factors,) = runs
        depth = factors.depth // order.splits
        parts = [factors.part(first, first + depth) for first in range(0, factors.depth, depth)]
        return functools.reduce(torch.add, (sum_products(unit, part).float() for part in parts))
    if order.partial is None:
        total = torch.zeros((), dtype=torch.float64) if begin is None else begin.double()
        total = total.to(runs[0].a.device).expand(runs[0].a.shape[0], runs[0].b.shape[1])
        for factors in runs:
            total = sum_products(unit, factors, total)
        return total.float()
    return functools.reduce(torch.add, partial_sums(unit, order, runs))


def partial_sums(unit: Unit, order: SumOrder, runs: Sequence[Factors]) -> Iterator[Tensor]:
    """Yields the unit's own sums of ``order.partial`` k each, fp32."""
    assert order.partial is not None
    for factors in runs:
        for first in range(0, factors.depth, order.partial):
            yield sum_products(unit, factors.part(first, first + order.partial)).float()
