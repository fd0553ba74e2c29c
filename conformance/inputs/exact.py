"""Exact fills of products: integers times powers of two, so small that no order of summation rounds anything.

The output then has one possible bit pattern. Scales, alpha and beta are powers of two and biases whole units, so the
epilogue is exact too. How large the integers may be is in :mod:`.integer_budget`, with an example; every fill is
checked against it when it is built.

An example: in a small product under the fill "transparent" the k come in pairs, here (0, 1) and (2, 3). Products of
more than 2**18 units cancel, and fp16 shows the sum that remains to the unit. Any lost or repeated term changes it.

>>> from conformance.numerics.contract import Accumulator, Contract
>>> from conformance.problems import mm
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
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from conformance.inputs import arrangement, integer_budget
from conformance.inputs.arrangement import Product, value_range
from conformance.inputs.draws import Draws, Integers
from conformance.inputs.fill_set import FillError, FillRequest
from conformance.inputs.integer_budget import IntegerBudget, budget_of, exactly
from conformance.numerics.fill import Fill
from conformance.problems import DTYPES, Gemm, Operand
from conformance.references import gemm

#: Significant bits of each scale in the fill that is about scales: the product of two is exact in fp32.
WIDE_SCALE_BITS = 12
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
    elif problem.op == "int_mm":  # int32 shows every sum in full
        a, b = (draws.below(256, shape) - 128 for shape in ((product.rows, product.k), (product.k, product.cols)))
    else:
        a, b = (_direct if product.k < 4 else _paired)(request, draws)
    return _assemble(request, draws, a, b)


def wide(request: FillRequest[Gemm]) -> Fill:
    """A full-significand operand (A for "wide-A", B for "wide-B") times a small one: sums wider than the output.

    Signs lean to one side per output, so that sums come close to the accumulator's limit and, where the contract
    promotes, pass the limit of one chunk. Sums of int8 are as large as they get: past 16 bits, and past fp32's 24.
    """
    if request.problem.op == "int_mm":
        return _large_sums(request)
    return integer_budget.first_that_fits(functools.partial(_wide, request))


def wide_scales(request: FillRequest[Gemm]) -> Fill:
    """Products of +-1 under scales of twelve significant bits: scales that were cast down or rounded show."""
    draws, product = request.draws(), Product.of(request.problem)
    a = draws.signs((product.rows, product.k))
    b = np.zeros((product.k, product.cols), dtype=np.int64)
    columns = np.arange(product.cols)
    b[draws.permutation(product.k)[columns % product.k], columns] = 1
    return _assemble(request, draws, a, b, scales_only=True)


# Integers of the plain product


def _tops(request: FillRequest[Gemm]) -> tuple[int, int]:
    """The largest integers that A's and B's significands hold."""
    ranges = [value_range(request.problem, request.contract, name) for name in "ab"]
    return 2 ** ranges[0].bits - 1, 2 ** ranges[1].bits - 1


def _large_sums(request: FillRequest[Gemm]) -> Fill:
    """int8 of one sign per row of A and column of B, all near the ends of the range."""
    draws, product = request.draws(), Product.of(request.problem)

    def lines(count: int) -> Integers:
        size = LARGE_INT8 + draws.below(128 - LARGE_INT8, (count, product.k))
        return np.where(draws.chance(0.5, (count, 1)), size, -1 - size)

    a, b = lines(product.rows), lines(product.cols).T
    return _assemble(request, draws, a, b)


def _wide(request: FillRequest[Gemm], optimistic: bool) -> Fill:
    problem, contract, draws = request.problem, request.contract, request.draws()
    product, range_b = Product.of(problem), value_range(problem, contract, "b")
    wide_a = request.name == "wide-A"
    sizes = (product.rows, product.cols) if wide_a else (product.cols, product.rows)
    tops = _tops(request) if wide_a else _tops(request)[::-1]
    full, small = _wide_pair(draws, budget_of(problem, contract), sizes, tops, optimistic)
    a, b = (full, small) if wide_a else (small.T, full.T)
    if range_b.integer and range_b.signed and not wide_a:
        b = np.where(b < 0, b - 1, b)  # two's complement: from -128
    if not range_b.signed:
        b = np.abs(b)
        if wide_a:  # some terms of each sum have the other sign, as small operands with signs give them
            a = a * (1 - 2 * draws.chance(1 / 8, a.shape).astype(np.int64))
    return _assemble(request, draws, a, b)


def _wide_pair(
    draws: Draws, budget: IntegerBudget, sizes: tuple[int, int], tops: tuple[int, int], optimistic: bool
) -> tuple[Integers, Integers]:
    """The wide operand (sizes[0] x K) and the small one (K x sizes[1]), of integers up to ``tops``."""
    largest = min(tops[0], budget.chunk_limit)
    full = 1 + draws.below(largest, (sizes[0], budget.k))
    full *= draws.signs((sizes[0], 1))
    shape = (budget.k, sizes[1])
    if integer_budget.needs_one_hot(budget, largest):
        small = np.zeros(shape, dtype=np.int64)
        columns = np.arange(sizes[1])
        small[draws.permutation(budget.k)[columns % budget.k], columns] = draws.signs((sizes[1],))
        return full, small
    small_largest, density = integer_budget.small_sizes(budget, largest, tops[1], optimistic=optimistic)
    small = 1 + draws.below(small_largest, shape)
    if density < 1:
        small *= draws.chance(density, shape)
    small *= draws.signs((1, sizes[1])) * (1 - 2 * draws.chance(1 / 8, shape).astype(np.int64))
    return full, small


def _direct(request: FillRequest[Gemm], draws: Draws) -> tuple[Integers, Integers]:
    problem, contract = request.problem, request.contract
    product = Product.of(problem)
    largest_a, largest_b = integer_budget.direct_sizes(budget_of(problem, contract), *_tops(request))
    a, b = draws.nonzero(largest_a, (product.rows, product.k)), draws.nonzero(largest_b, (product.k, product.cols))
    return a, b if value_range(problem, contract, "b").signed else np.abs(b)


def _pairs(product: Product, draws: Draws) -> tuple[Integers, Integers, Integers]:
    """All k in random pairs (u, v), and the rest. With scales per segment, both k of a pair are in one segment."""
    segments: list[tuple[Integers, Integers, Integers]] = []
    for start in range(0, product.k, product.segment if product.scaled else product.k):
        count = min(product.segment, product.k - start) if product.scaled else product.k
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
    largest_a, largest_b, density = integer_budget.paired_sizes(budget, *_tops(request))

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


# From integers to a fill


@dataclass(frozen=True)
class _Units:
    """Exponents of the units of A, B and the output."""

    a: int
    b: int
    out: int


def _assemble(request: FillRequest[Gemm], draws: Draws, a: Integers, b: Integers, *, scales_only: bool = False) -> Fill:
    """The fill whose plain product is ``a`` (rows, k) times ``b`` (k, cols), with everything checked that it promises.

    ``scales_only``: scales have many bits and the bias is zero. The products must be so small that fp32 holds them
    with these scales.
    """
    problem, contract = request.problem, request.contract
    budget = budget_of(problem, contract)
    largest_in_chunk, largest = _measured_sums(request, budget, a, b)
    integer_budget.check_budget(problem, contract, request.name, largest_in_chunk, largest)
    out = integer_budget.output_unit(problem, contract, budget, largest)
    units = _Units(
        *integer_budget.operand_units(problem, contract, out - integer_budget.epilogue_exponent(problem)), out
    )
    inputs = _inputs(request, budget, draws, a, b, units, scales_only)
    meta = {
        "unit_a": units.a,
        "unit_b": units.b,
        "unit_out": units.out,
        "budget_bits": contract.accumulator.exact_bits,
        "max_subset_sum": largest_in_chunk,
        "max_subset_sum_total": largest,
    }
    return request.fill("exact", inputs, _expected(request, inputs, units, scales_only), None, meta)


def _measured_sums(request: FillRequest[Gemm], budget: IntegerBudget, a: Integers, b: Integers) -> tuple[int, int]:
    """max(P, N) in one chunk and in all."""
    a_int, b_int = (torch.from_numpy(np.ascontiguousarray(side)).to(request.device or "cpu") for side in (a, b))
    chunk = budget.chunk if request.problem.has_product else 1
    return integer_budget.subset_sums(a_int, b_int, chunk, Product.of(request.problem).segment)


def _inputs(
    request: FillRequest[Gemm],
    budget: IntegerBudget,
    draws: Draws,
    a: Integers,
    b: Integers,
    units: _Units,
    scales_only: bool,
) -> dict[str, Tensor]:
    problem = request.problem

    def matrix(name: str) -> Tensor:
        integers, unit = (a, units.a) if name == "a" else (b, units.b)
        return exactly(integers, unit, problem.operand(name), arrangement.formats(problem, request.contract, name))

    def addend(operand: Operand) -> Tensor:
        if scales_only:
            return torch.zeros(operand.shape, dtype=DTYPES[operand.dtype])
        if operand not in integer_budget.addends(problem):
            return arrangement.ignored(operand)
        unit = units.out - integer_budget.addend_exponent(problem, operand)
        return exactly(draws.nonzero(budget.addend, operand.shape), unit, operand, (operand.dtype,))

    def scale(operand: Operand) -> Tensor:
        exponents = arrangement.draw_exponents(problem, operand.name, operand.shape, draws)
        significand = np.ones(operand.shape)
        if scales_only:
            odd = 2 * draws.below(2 ** (WIDE_SCALE_BITS - 2), operand.shape) + 1
            significand = 1 + np.ldexp(odd, 1 - WIDE_SCALE_BITS)
        return exactly(significand, exponents, operand, (operand.dtype,))

    return arrangement.operand_tensors(problem, draws, matrix=matrix, addend=addend, scale=scale)


def _expected(request: FillRequest[Gemm], inputs: dict[str, Tensor], units: _Units, scales_only: bool) -> Tensor:
    """The value of the reference, whose product is checked in integers. Raises FillError if that is wrong."""
    problem, device = request.problem, request.device
    raw = gemm.product(problem, inputs, device=device)
    if problem.has_product:
        factors = gemm.factors(problem, inputs, device=device)
        if not _is_product(problem, factors, raw, _factor_units(problem, units, scales_only), request.seed):
            raise FillError(
                f"{problem.id}, fill {request.name}, seed {request.seed}: the fp64 reference is not A @ B (Freivalds)"
            )
    return gemm.epilogue(problem, inputs, raw)


def _is_product(problem: Gemm, factors: tuple[Tensor, Tensor], raw: Tensor, units: tuple[int, int], seed: int) -> bool:
    """Whether ``raw`` is the product of ``factors`` (fp64; integers in these units), by :func:`gemm.freivalds`."""
    a, b = factors
    if problem.batch is not None:  # a large batch repeats itself
        repeat = arrangement.period(problem)
        if not torch.equal(raw[repeat:], raw[:-repeat]):
            return False
        a, b, raw = a[:repeat], b[:repeat], raw[:repeat]
    a_int, b_int, raw_int = (
        (values * 2.0**-unit).to(torch.int64) for values, unit in ((a, units[0]), (b, units[1]), (raw, sum(units)))
    )
    return gemm.freivalds(a_int, b_int, raw_int, seed)


def _factor_units(problem: Gemm, units: _Units, scales_only: bool) -> tuple[int, int]:
    """Units of the factors of the reference: with the scales that are part of them."""
    unit_a = units.a + min(arrangement.scale_exponents(problem, "row_scale"))
    unit_b = units.b
    if Product.of(problem).scaled:
        below = WIDE_SCALE_BITS - 1 if scales_only else 0
        unit_a += min(arrangement.scale_exponents(problem, "scale_a")) - below
        unit_b += min(arrangement.scale_exponents(problem, "scale_b")) - below
    return unit_a, unit_b
