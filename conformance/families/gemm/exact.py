"""Exact fills of products: integers times powers of two, so small that no order of summation rounds anything.

The output then has one possible bit pattern. Scales, alpha and beta are powers of two and biases whole units, so the
epilogue is exact too; where it is not, the product is, and only the epilogue's own error is allowed. How large the
integers may be is in :mod:`.integer_budget`, with an example; :func:`assemble` makes fills of them.

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

Every fill is checked here against the budget of :mod:`.integer_budget`, and its reference in integers.

The bits of a sum and of its two scales add up to 24 at most, so ``sum * a * b`` and ``sum * (a * b)`` are exact. Lines
of A take turns, and so do those of B. Some have scales of twelve bits, which narrower formats do not hold, and integers
of 1. Others have scales of six bits and larger integers. Where they meet, a sum has up to twelve bits, which no 16-bit
format holds. With one scale per tensor nothing can take turns: nine bits of A's scale, six of B's, nine of the sum.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from conformance.families.gemm import arrangement, integer_budget, ties
from conformance.families.gemm import reference as gemm
from conformance.families.gemm.arrangement import PlainProduct, Range, paired_ranges, value_range
from conformance.families.gemm.integer_budget import IntegerBudget, budget_of, exactly
from conformance.families.gemm.problem import BLOCK_SCALINGS, SCALE_BLOCK, Gemm
from conformance.families.gemm.reference import epilogue_bound
from conformance.families.gemm.ties import TieBits
from conformance.inputs.fills import Draws, FillError, FillRequest, Floats, Integers
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS
from conformance.problems import DTYPES, Operand

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


def draw_wide_scales(problem: Gemm, contract: Contract, draws: Draws) -> WideScales:
    """Integers of the plain product whose sums are exact under scales of so many bits, for a problem with scales."""
    product = PlainProduct.of(problem)
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


@dataclass(frozen=True)
class Products:
    """The integers of a fill: ``a`` (rows, k) and ``b`` (k, columns) of the plain product.

    ``shown``: the largest result in units of the products, None for that of any partial sum. Biases and residuals are
    multiples of ``step``, at most ``addend`` (None: the budget's), in units of the output. ``scale_bits``: the bits of
    each element of the scales by name; without it scales are powers of two.
    """

    a: Integers
    b: Integers
    shown: int | None = None
    step: int = 1
    addend: int | None = None
    scale_bits: Mapping[str, Integers] | None = None


@dataclass(frozen=True)
class _Units:
    """Exponents of the units of A, B and the output."""

    a: int
    b: int
    out: int


def assemble(request: FillRequest[Gemm], draws: Draws, products: Products) -> Fill:
    """Returns the fill of ``products``. It is judged bit for bit, or, where the epilogue rounds, by the epilogue's own
    error.

    Raises FillError if a sum or an operand does not fit, or if the reference is wrong.
    """
    problem, contract = request.problem, request.contract
    budget = budget_of(problem, contract)
    largest_in_chunk, largest = _measured_sums(request, budget, products)
    integer_budget.check_budget(problem, contract, request.name, largest_in_chunk, largest)
    units = _units(request, budget, products, largest if products.shown is None else products.shown)
    inputs = _inputs(request, budget, draws, products, units)
    meta = {
        "unit_a": units.a,
        "unit_b": units.b,
        "unit_out": units.out,
        "budget_bits": contract.accumulator.exact_bits,
        "max_subset_sum": largest_in_chunk,
        "max_subset_sum_total": largest,
    }
    if problem.dtype == "int8":  # below that, sums in fp32 would be right
        meta["exceeds_fp32"] = largest > 2 ** FORMATS["fp32"].significand
    expected = _expected(request, inputs, units, products)
    if integer_budget.allows_exact(problem):
        return request.fill("exact", inputs, expected, None, meta)
    return request.fill("bounded", inputs, expected, epilogue_bound(problem, contract, expected, inputs), meta)


def _measured_sums(request: FillRequest[Gemm], budget: IntegerBudget, products: Products) -> tuple[int, int]:
    """max(P, N) in one chunk and in all."""
    sides = products.a, products.b
    a_int, b_int = (torch.from_numpy(np.ascontiguousarray(side)).to(request.device or "cpu") for side in sides)
    chunk = budget.chunk if request.problem.has_product else 1
    return integer_budget.subset_sums(a_int, b_int, chunk, PlainProduct.of(request.problem).segment)


def _units(request: FillRequest[Gemm], budget: IntegerBudget, products: Products, shown: int) -> _Units:
    problem, contract = request.problem, request.contract
    addend = budget.addend if products.addend is None else products.addend
    # two scales of significands below 2
    largest = shown if products.scale_bits is None else 4 * shown
    out = integer_budget.output_unit(problem, contract, budget, largest, addend)
    epilogue = integer_budget.epilogue_exponent(problem)
    sizes = (int(np.abs(products.a).max(initial=0)), int(np.abs(products.b).max(initial=0)))
    a, b = integer_budget.operand_units(problem, contract, out - epilogue, sizes)
    return _Units(a, b, a + b + epilogue)


def _inputs(
    request: FillRequest[Gemm], budget: IntegerBudget, draws: Draws, products: Products, units: _Units
) -> dict[str, Tensor]:
    problem = request.problem

    def matrix(name: str) -> Tensor:
        integers, unit = (products.a, units.a) if name == "a" else (products.b, units.b)
        return exactly(integers, unit, problem.operand(name), arrangement.formats(problem, request.contract, name))

    def addend(operand: Operand) -> Tensor:
        if operand not in integer_budget.addends(problem):
            return arrangement.ignored(operand)
        most = (budget.addend if products.addend is None else products.addend) // products.step
        if not most:
            return torch.zeros(operand.shape, dtype=DTYPES[operand.dtype])
        unit = units.out - integer_budget.addend_exponent(problem, operand)
        return exactly(products.step * draws.nonzero(most, operand.shape), unit, operand, (operand.dtype,))

    def scale(operand: Operand) -> Tensor:
        exponents = arrangement.draw_exponents(problem, operand.name, operand.shape, draws)
        significand = np.ones(operand.shape)
        if products.scale_bits is not None:
            significand = significands(products.scale_bits[operand.name], draws)
        return exactly(significand, exponents, operand, (operand.dtype,))

    return arrangement.operand_tensors(problem, draws, matrix=matrix, addend=addend, scale=scale)


def _expected(request: FillRequest[Gemm], inputs: dict[str, Tensor], units: _Units, products: Products) -> Tensor:
    """The value of the reference, whose product is checked in integers. Raises FillError if that is wrong."""
    problem, device = request.problem, request.device
    raw = gemm.product(problem, inputs, device=device)
    if problem.has_product:
        factors = gemm.factors(problem, inputs, device=device)
        below = 0 if products.scale_bits is None else WIDEST - 1
        if not _is_product(problem, factors, raw, _factor_units(problem, units, below), request.seed):
            raise FillError(
                f"{problem.id}, fill {request.name}, seed {request.seed}: the fp64 reference is not A @ B (Freivalds)"
            )
    return gemm.epilogue(problem, inputs, raw)


def _is_product(problem: Gemm, factors: tuple[Tensor, Tensor], raw: Tensor, units: tuple[int, int], seed: int) -> bool:
    """True if ``raw`` is the product of ``factors`` (fp64; integers in these units), by :func:`gemm.freivalds`."""
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


def _factor_units(problem: Gemm, units: _Units, below: int) -> tuple[int, int]:
    """Units of the factors of the reference: with the scales that are part of them, which have so many bits ``below``
    the leading one."""
    unit_a = units.a + sum(min(arrangement.scale_exponents(problem, name)) for name in arrangement.PROLOGUES)
    unit_b = units.b
    if PlainProduct.of(problem).scaled:
        unit_a += min(arrangement.scale_exponents(problem, "scale_a")) - below
        unit_b += min(arrangement.scale_exponents(problem, "scale_b")) - below
    return unit_a, unit_b


#: The least size of an integer in the fill of large int8 sums. From K = 1100 on most of these sums pass 2**24.
LARGE_INT8 = 120


def transparent(request: FillRequest[Gemm]) -> Fill:
    """Wide products whose sums fit the output's significand, so that output rounding hides nothing.

    Columns of A are paired at random, A[:,v] = A[:,u] and B[v] = -B[u] + E with E sparse in {-1, 0, 1}: what remains
    is A[:,u] @ E. With fewer than four k, small integers are multiplied directly. If B has no signs, A[:,v] = -A[:,u]
    instead. No pair has two k with different scales. Sums of int8 in int32 need no pairs.
    """
    problem, draws = request.problem, request.draws()
    product = PlainProduct.of(problem)
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
    wide = draw_wide_scales(request.problem, request.contract, draws)
    return assemble(request, draws, Products(wide.a, wide.b, addend=0, scale_bits=wide.bits))


# Integers of the plain product


def _ranges(request: FillRequest[Gemm]) -> tuple[Range, Range]:
    return paired_ranges(request.problem, request.contract, "a" if request.name == "wide-A" else "b")


def _large_sums(request: FillRequest[Gemm]) -> Fill:
    """int8 of one sign per row of A and column of B, all near the ends of the range. A is even but for one k, where B
    is odd too: so is every sum."""
    draws, product = request.draws(), PlainProduct.of(request.problem)

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
    product, ranges = PlainProduct.of(problem), _ranges(request)
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
    product = PlainProduct.of(problem)
    largest_a, largest_b = integer_budget.direct_sizes(
        budget_of(problem, contract), *(side.top for side in _ranges(request))
    )
    a, b = draws.nonzero(largest_a, (product.rows, product.k)), draws.nonzero(largest_b, (product.k, product.cols))
    return a, b if value_range(problem, contract, "b").signed else np.abs(b)


def _pairs(product: PlainProduct, draws: Draws) -> tuple[Integers, Integers, Integers]:
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
    budget, product = budget_of(problem, contract), PlainProduct.of(problem)
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
