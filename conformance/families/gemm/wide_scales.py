"""Sums of many bits under scales of many bits whose product fp32 holds exactly, however the epilogue associates.

The bits of a sum and of its two scales add up to 24 at most, so ``sum * a * b`` and ``sum * (a * b)`` are exact. Lines
of A take turns, and so do those of B. Some have scales of twelve bits, which narrower formats do not hold, and integers
of 1. Others have scales of six bits and larger integers. Where they meet, a sum has up to twelve bits, which no 16-bit
format holds. With one scale per tensor nothing can take turns: nine bits of A's scale, six of B's, nine of the sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from conformance.families.gemm import integer_budget
from conformance.families.gemm.arrangement import Product, value_range
from conformance.families.gemm.problem import BLOCK_SCALINGS, SCALE_BLOCK, Gemm
from conformance.inputs.draws import Draws, Floats, Integers
from conformance.numerics.contract import Contract

#: Most bits of a scale.
WIDEST = 12
#: Kinds of lines: bits of the scale, and the largest integer of A, or the largest sum of a column of B.
LINES = ((WIDEST, 1), (6, 63))
#: The same with one scale per tensor, of A and of B.
TENSOR_LINES = {"scale_a": (9, 31), "scale_b": (6, 15)}
#: Terms of a sum at most.
TERMS = 8


@dataclass(frozen=True)
class WideScales:
    """Integers of A (rows, k) and B (k, columns), and how many bits each element of the scales has, by name."""

    a: Integers
    b: Integers
    bits: Mapping[str, Integers]


def wide_scales(problem: Gemm, contract: Contract, draws: Draws) -> WideScales:
    """Integers of the plain product whose sums are exact under scales of so many bits, for a problem with scales."""
    product = Product.of(problem)
    bits, largest = {}, {}
    for name in ("scale_a", "scale_b"):
        shape = problem.operand(name).shape
        if problem.scaling == "tensor":
            kinds = np.asarray([TENSOR_LINES[name]])[np.zeros(shape, dtype=np.int64)]
        else:
            kinds = np.asarray(LINES)[(np.indices(shape).sum(0) + draws.below(2, ())) % 2]
        bits[name], largest[name] = kinds[..., 0], kinds[..., 1]
    per_a = _by_element(problem, "scale_a", largest["scale_a"], (product.rows, product.k))
    per_b = _by_element(problem, "scale_b", largest["scale_b"], (product.k, product.cols))
    bits_a, bits_b = (value_range(problem, contract, name).bits for name in "ab")

    # three of four are large, and the others have the low bits that larger integers of few bits lack
    lower = (draws.uniform(per_a.shape) * per_a * 5 / 8).astype(np.int64)
    a = np.where(draws.chance(3 / 4, per_a.shape), per_a - lower, draws.below(16, per_a.shape))
    a = integer_budget.with_bits(np.clip(a, 1, per_a), bits_a) * draws.signs((product.rows, 1))
    b = np.zeros((product.k, product.cols), dtype=np.int64)
    columns = np.arange(product.cols)
    # the terms of a column lie in one segment of k, for other scales hold in others
    segment = product.segment if product.scaled else product.k
    start = draws.below(-(-product.k // segment), (product.cols,)) * segment
    length = np.minimum(segment, product.k - start)
    first = start + draws.permutation(product.k)[columns % product.k] % length
    limit = per_b[start, columns]
    terms = np.minimum(np.minimum(TERMS, length), np.maximum(1, limit // 3))
    for number in range(TERMS):
        where = start + (first - start + number * np.maximum(1, length // TERMS)) % length
        share = limit // terms
        value = integer_budget.with_bits(share - draws.below(2, columns.shape) * (share > 3), bits_b)
        b[where, columns] = np.where((number < terms) & (b[where, columns] == 0), value, b[where, columns])
    return WideScales(a, b * draws.signs((1, product.cols)), bits)


def _by_element(problem: Gemm, name: str, of_scale: Integers, shape: tuple[int, int]) -> Integers:
    """Returns the value for a scale at each element of A or B that it scales."""
    if problem.scaling not in BLOCK_SCALINGS:
        return np.broadcast_to(of_scale, shape)
    whole = problem.scaling.split("/")[name == "scale_b"] == "128x128"
    lines_axis = 0 if name == "scale_a" else 1
    for axis in (0, 1):
        if axis != lines_axis or whole:
            of_scale = np.repeat(of_scale, SCALE_BLOCK, axis).take(np.arange(shape[axis]), axis)
    return of_scale


def significands(bits: Integers, draws: Draws) -> Floats:
    """A significand in [1, 2) for each element, the last of whose ``bits`` is 1."""
    odd = 2 * (draws.below(2 ** (WIDEST - 2), bits.shape) >> (WIDEST - bits)) + 1
    return 1 + np.ldexp(odd.astype(np.float64), 1 - bits)
