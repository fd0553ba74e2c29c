"""The matrix products of which a problem consists, and their sums in the order of a tensor core.

Each is a problem of two dimensions with inputs in fp64 and the part of the output that it makes. So one search serves
all of them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conformance.numerics.fill import Fill
from conformance.numerics.sum_order import SumOrder, Unit
from conformance.numerics.tensor_core import Factors, sum_products


@dataclass(frozen=True, eq=False)
class Product:
    """One product of a problem.

    ``name`` says which ("" for the only one). ``problem`` has two dimensions; ``fill`` holds its inputs, in fp64 or as
    the kernel got them. ``output`` and ``bad`` (rows, columns) are what it made and where that is wrong. ``segments``
    are ranges of k, each of which is looped over by itself and begins with a k-block of its own; ``segment`` is what
    one is called. ``plain``: the operands are A and B themselves, as they lie in memory.
    """

    name: str
    problem: Any
    fill: Fill
    output: Tensor
    bad: Tensor
    segments: tuple[tuple[int, int], ...]
    segment: str = "part of K"
    plain: bool = False


def with_inputs(fill: Fill, inputs: Mapping[str, Tensor]) -> Fill:
    """Returns ``fill`` with other ``inputs`` and nothing kept."""
    return dataclasses.replace(fill, inputs=dict(inputs), cache={})


def padded(
    a: Tensor, b: Tensor, lengths: Sequence[int], block_k: int
) -> tuple[Tensor, Tensor, tuple[tuple[int, int], ...]]:
    """Returns A and B with zeros after each segment of k, so that the next begins with a k-block, and the segments."""
    columns, rows, segments, first = [], [], [], 0
    for left, right, length in zip(a.split(list(lengths), 1), b.split(list(lengths), 0), lengths, strict=True):
        behind = -length % block_k
        columns.append(torch.nn.functional.pad(left, (0, behind)))
        rows.append(torch.nn.functional.pad(right, (0, 0, 0, behind)))
        segments.append((first, first + length))
        first += length + behind
    return torch.cat(columns, 1), torch.cat(rows, 0), tuple(segments)


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
    """Returns the fp32 sum of the products of all ``runs``, one after the other; each begins with a new step.

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
