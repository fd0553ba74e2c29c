"""Exact fills of products: integers times powers of two, so small that no order of summation rounds anything.

The output then has one possible bit pattern. Scales, alpha and beta are powers of two and biases whole units, so the
epilogue is exact too; where it is not, the product is, and only the epilogue's own error is allowed. How large the
integers may be is in :mod:`.integer_budget`, with an example; :mod:`.assembly` makes fills of them.

An example: in a small product under the fill "transparent" the k come in pairs, here (0, 1) and (2, 3). Products of
more than 2**18 units cancel, and fp16 shows the sum that remains to the unit. Any lost or repeated term changes it.

>>> from conformance.numerics.contract import Accumulator, Contract
>>> from conformance.families.gemm.problem import mm
>>> contract = Contract("fp16", Accumulator())
>>> fill = transparent(FillRequest("transparent", mm(2, 1, 4, "fp16"), contract, seed=0, device=None))
>>> (fill.inputs["a"] * 2**3).tolist()  # A's unit is 2**-3
[[-143.0, -143.0, 92.0, 92.0], [-234.0, -234.0, -229.0, -229.0]]
>>> (fill.inputs["b"] * 2**2).tolist()
[[1900.0], [-1901.0], [-808.0], [808.0]]
>>> (fill.expected * 2**5).tolist()  # -143 * 1900 + 143 * 1901 and -234 * 1900 + 234 * 1901
[[143.0], [234.0]]
"""

from __future__ import annotations

import functools

import numpy as np

from conformance.families.gemm import integer_budget, ties
from conformance.families.gemm.arrangement import Product, Range, paired_ranges, value_range
from conformance.families.gemm.assembly import Products, assemble
from conformance.families.gemm.integer_budget import IntegerBudget, budget_of
from conformance.families.gemm.problem import Gemm
from conformance.families.gemm.ties import TieBits
from conformance.families.gemm.wide_scales import wide_scales as widely_scaled
from conformance.inputs.draws import Draws, Integers
from conformance.inputs.fill_set import FillRequest
from conformance.numerics.fill import Fill

#: The least size of an integer in the fill of large int8 sums. From K = 1100 on most of these sums pass 2**24.
LARGE_INT8 = 120


def transparent(request: FillRequest[Gemm]) -> Fill:
    """Wide products whose sums fit the output's significand, so that output rounding hides nothing.

    Columns of A are paired at random, A[:,v] = A[:,u] and B[v] = -B[u] + E with E sparse in {-1, 0, 1}: what remains
    is A[:,u] @ E. With fewer than four k, small integers are multiplied directly. If B has no signs, A[:,v] = -A[:,u]
    instead. No pair has two k with different scales. Sums of int8 in int32 need no pairs.
    """
    problem, draws = request.problem, request.draws()
    product = Product.of(problem)
    if not problem.has_product:
        a = np.zeros((product.rows, product.k), dtype=np.int64)
        b = np.zeros((product.k, product.cols), dtype=np.int64)
    elif problem.dtype == "int8":  # int32 shows every sum in full
        a, b = (draws.below(256, shape) - 128 for shape in ((product.rows, product.k), (product.k, product.cols)))
    else:
        a, b = (_direct if product.k < 4 else _paired)(request, draws)
    shown = None
    if problem.op == "dual_mm":  # silu needs results of usual size, which are far below the sums that cancel
        shown = max(1, int(np.abs(a.astype(np.float64) @ b.astype(np.float64)).max(initial=0)))
    return assemble(request, draws, Products(a, b, shown))


def wide(request: FillRequest[Gemm]) -> Fill:
    """Returns a full-significand operand (A for "wide-A", B for "wide-B") times a small one: sums wider than the
    output.

    Signs of "wide-A" lean to one side per output. So sums come close to the accumulator's limit and, where the contract
    promotes, pass the limit of one chunk. Sums of int8 are as large as they get, and odd: past 16 bits, and past fp32's
    24 from a K of about 1100 on. "wide-B" are :mod:`.ties`, where the output allows them.
    """
    if request.problem.dtype == "int8":
        return _large_sums(request)
    budget = budget_of(request.problem, request.contract)
    bits = ties.tie_bits(request.problem, request.contract) if request.name == "wide-B" else None
    if bits is None:
        return integer_budget.first_that_fits(budget, functools.partial(_wide, request))
    return integer_budget.first_that_fits(budget, functools.partial(_ties, request, bits))


def wide_scales(request: FillRequest[Gemm]) -> Fill:
    """Wide sums under scales of many bits: scales that were cast down or rounded show, and sums rounded before them."""
    draws = request.draws()
    wide = widely_scaled(request.problem, request.contract, draws)
    return assemble(request, draws, Products(wide.a, wide.b, addend=0, scale_bits=wide.bits))


# Integers of the plain product


def _ranges(request: FillRequest[Gemm]) -> tuple[Range, Range]:
    return paired_ranges(request.problem, request.contract, "a" if request.name == "wide-A" else "b")


def _large_sums(request: FillRequest[Gemm]) -> Fill:
    """int8 of one sign per row of A and column of B, all near the ends of the range. A is even but for one k, where B
    is odd too: so is every sum."""
    draws, product = request.draws(), Product.of(request.problem)

    def lines(count: int) -> Integers:
        size = LARGE_INT8 + draws.below(128 - LARGE_INT8, (count, product.k))
        return np.where(draws.chance(0.5, (count, 1)), size, -1 - size)

    a, b = lines(product.rows) & ~1, lines(product.cols).T
    odd = int(draws.below(product.k, ())[()])
    a[:, odd] |= 1
    b[odd] |= 1
    return assemble(request, draws, Products(a, b))


def _ties(request: FillRequest[Gemm], bits: TieBits, boost: float) -> Fill:
    draws = request.draws()
    a, b = ties.ties(request.problem, request.contract, draws, bits, boost)
    return assemble(request, draws, Products(a, b, bits.largest, bits.step, bits.addend))


def _wide(request: FillRequest[Gemm], boost: float) -> Fill:
    problem, contract, draws = request.problem, request.contract, request.draws()
    product, ranges = Product.of(problem), _ranges(request)
    range_b = ranges[1]
    wide_a = request.name == "wide-A"
    sizes = (product.rows, product.cols) if wide_a else (product.cols, product.rows)
    full, small = _wide_pair(draws, budget_of(problem, contract), sizes, ranges if wide_a else ranges[::-1], boost)
    if integer_budget.is_curved(problem):  # which shows most where its argument is neither large nor the same
        full = np.sign(full) * np.maximum(np.abs(full) >> draws.below(4, (sizes[0], 1)), 1)
    a, b = (full, small) if wide_a else (small.T, full.T)
    if range_b.integer and range_b.signed and not wide_a:
        b = np.where(b < 0, b - 1, b)  # two's complement: from -128
    if not range_b.signed:
        b = np.abs(b)
        if wide_a:  # some terms of each sum have the other sign, as small operands with signs give them
            a = a * (1 - 2 * draws.chance(1 / 8, a.shape).astype(np.int64))
    return assemble(request, draws, Products(a, b))


def _wide_pair(
    draws: Draws, budget: IntegerBudget, sizes: tuple[int, int], ranges: tuple[Range, Range], boost: float
) -> tuple[Integers, Integers]:
    """Returns the wide operand (sizes[0] x K) and the small one (K x sizes[1]), of integers that ``ranges`` hold."""
    tops = integer_budget.wide_tops(budget, ranges)
    largest = min(tops[0], budget.chunk_limit)
    full = integer_budget.with_bits(1 + draws.below(largest, (sizes[0], budget.k)), ranges[0].bits)
    full *= draws.signs((sizes[0], 1))
    shape = (budget.k, sizes[1])
    if integer_budget.needs_one_hot(budget, largest):
        small = np.zeros(shape, dtype=np.int64)
        columns = np.arange(sizes[1])
        small[draws.permutation(budget.k)[columns % budget.k], columns] = draws.signs((sizes[1],))
        return full, small
    small_largest, density = integer_budget.small_sizes(budget, largest, tops[1], boost)
    small = integer_budget.with_bits(1 + draws.below(small_largest, shape), ranges[1].bits)
    if density < 1:
        small *= draws.chance(density, shape)
    # sums of a narrow accumulator have one sign throughout: so two chunks together pass its limit
    flipped = 0.0 if budget.is_narrow else 1 / 8
    small *= draws.signs((1, sizes[1])) * (1 - 2 * draws.chance(flipped, shape).astype(np.int64))
    return full, small


def _direct(request: FillRequest[Gemm], draws: Draws) -> tuple[Integers, Integers]:
    problem, contract = request.problem, request.contract
    product = Product.of(problem)
    largest_a, largest_b = integer_budget.direct_sizes(
        budget_of(problem, contract), *(side.top for side in _ranges(request))
    )
    a, b = draws.nonzero(largest_a, (product.rows, product.k)), draws.nonzero(largest_b, (product.k, product.cols))
    return a, b if value_range(problem, contract, "b").signed else np.abs(b)


def _pairs(product: Product, draws: Draws) -> tuple[Integers, Integers, Integers]:
    """Returns all k in random pairs (u, v), and the rest. Both k of a pair have one scale."""
    segments: list[tuple[Integers, Integers, Integers]] = []
    for start in range(0, product.k, product.one_scale):
        count = min(product.one_scale, product.k - start)
        order, pairs = start + draws.permutation(count), count // 2
        segments.append((order[:pairs], order[pairs : 2 * pairs], order[2 * pairs :]))
    u, v, rest = (np.concatenate(parts) for parts in zip(*segments, strict=True))
    return u, v, rest


def _paired(request: FillRequest[Gemm], draws: Draws) -> tuple[Integers, Integers]:
    problem, contract = request.problem, request.contract
    budget, product = budget_of(problem, contract), Product.of(problem)
    signed = value_range(problem, contract, "b").signed
    u, v, rest = _pairs(product, draws)
    pairs = len(u)
    largest_a, largest_b, density = integer_budget.paired_sizes(budget, *(side.top for side in _ranges(request)))

    a = np.empty((product.rows, product.k), dtype=np.int64)
    a[:, u] = a[:, v] = draws.nonzero(largest_a, (product.rows, pairs))
    a[:, rest] = draws.nonzero(largest_a, (product.rows, len(rest)))
    b = np.empty((product.k, product.cols), dtype=np.int64)
    base = draws.nonzero(largest_b - 1, (pairs, product.cols))
    if density < 1:
        base *= draws.chance(density, base.shape)
    b[u], b[v] = base, -base
    b[rest] = draws.signs((len(rest), product.cols))
    count = min(max(1, pairs // 2), max(1, budget.visible // largest_a) - len(rest))
    if not signed:
        a[:, v] *= -1
        b = np.abs(b)
    if count > 0:
        # evenly spaced from a random start per column: distinct, exactly `count`, and random in k through the pairing
        where = (draws.below(pairs, (1, product.cols)) + (np.arange(count)[:, None] * pairs) // count) % pairs
        step = draws.signs(where.shape)
        b[v[where], np.arange(product.cols)[None, :]] += step if signed else np.abs(step)
    return a, b
