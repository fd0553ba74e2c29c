"""The budget of an exact fill: how large its integers may be, and by which powers of two they are multiplied.

Sums. P and N are the sums of the positive and of the negative products of one output. If max(P, N) < 2**p for the p
bits that the accumulator keeps, then every partial sum, over any subset in any order, is exact.

Units. Every tensor of an exact fill holds integers times one power of two, its unit; a unit is always given by its
exponent. The units of A and B add up to the unit of their products. Scales and alpha move that to the unit of the
output, in which biases and residuals are integers, too. Sums and limits count units of the products, unless they say
otherwise.

An example: fp16 operands under a contract that keeps 24 bits.

>>> from conformance.numerics.contract import Accumulator, Contract
>>> from conformance.families.gemm.problem import mm
>>> problem, contract = mm(64, 64, 1000, "fp16"), Contract("fp16", Accumulator())
>>> budget = budget_of(problem, contract)
>>> budget.limit == 2**24 - 1  # what max(P, N) may be
True
>>> budget.visible == 2**11  # the largest result that fp16's 11 bits show to the unit
True
>>> int(budget.per_product)  # 1000 products of this size and of one sign just fit
16777

Operands of equal width may then be as large as the square root of that. For the fill "transparent" A stays smaller, so
that results of about eight terms are still shown to the unit; B takes what is left:

>>> paired_sizes(budget, 2**11 - 1, 2**11 - 1)
(129, 130, 1.0)

The units follow from the largest sum that was measured. Say it is 2**20; the largest power of two of fp16 is 2**15, so
the output's unit is 2**-5, which A and B share:

>>> output_unit(problem, contract, budget, 2**20, addend=0)
-5
>>> operand_units(problem, contract, -5, (129, 130))
(-3, -2)
"""

from __future__ import annotations

import contextlib
import dataclasses
import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.families.gemm.arrangement import PROLOGUES, PlainProduct, Range, scale_exponents, value_range
from conformance.families.gemm.problem import Gemm
from conformance.inputs.fills import FillError, Integers
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import DTYPES, Operand

#: fp32 epilogues are exact up to this many bits.
EPILOGUE_BITS = 24
#: The factors alpha and beta of an exact fill are powers of two of at most this exponent.
FACTOR_EXPONENT = 8
#: Largest element of a bias or residual, in units of the output.
LARGEST_ADDEND = 1023
#: Exponents that the integers of floating-point operands may have in addition to those that the significand holds. They
#: are used where full significands alone leave the accumulator's limit far away.
FURTHER_BITS = 3
#: Up to how many terms of a chunk a narrow accumulator's sums are measured first.
FEW_TERMS = 256
#: Which shares of the room that the likely sums leave are tried, because sizes are whole numbers.
SHARES_OF_ROOM = (0.97, 0.9, 0.82, 0.74)
#: In so many steps the sums of a chunk are measured, wherever it starts.
CHUNK_STEPS = 4
#: A gelu or silu sees values of at most 2**CURVE_EXPONENT: beyond it is the identity, or so close to zero that nothing
#: shows.
CURVE_EXPONENT = 2
#: With fewer nonzero products than this per output, a full-width operand meets one-hot columns.
FEWEST_PRODUCTS = 16


class BudgetError(FillError):
    """Some sums of an exact fill could be rounded. ``room``: by which factor its sums would have to change to fit."""

    def __init__(self, message: str, room: float = 0.0) -> None:
        super().__init__(message)
        self.room = room


@dataclass(frozen=True)
class IntegerBudget:
    """The room that a contract leaves for the integers of an exact fill.

    ``k``: that of the plain product. ``chunk``: consecutive k that the accumulator sums before a promotion or a change
    of scales. ``chunk_limit`` and ``limit``: largest max(P, N) in a chunk and over all k. ``visible``: largest |result|
    that the output's significand shows to the unit. ``addend``: largest element of each of the ``addends`` (bias and
    residual), in units of the output. ``scale_spread``: largest product of scales over the smallest.
    ``dropout_factor``: by how much a dropout multiplies the result.
    """

    k: int
    chunk: int
    chunk_limit: int
    limit: int
    visible: int
    addend: int
    addends: int
    scale_spread: int
    dropout_factor: int

    @property
    def is_narrow(self) -> bool:
        """True if chunks have so few bits and terms that likely sums stay far below the limit."""
        return self.chunk_limit < 2**16 and self.chunk <= FEW_TERMS

    @property
    def per_product(self) -> float:
        """Size of one product such that sums stay within the limits whatever the signs are."""
        return min(self.chunk_limit / self.chunk, self.limit / self.k)


def budget_of(problem: Gemm, contract: Contract) -> IntegerBudget:
    """Returns the budget of ``contract`` for the integers of ``problem``. Raises FillError if :func:`allows_exact` is
    False."""
    a, b = (value_range(problem, contract, name) for name in "ab")
    out, product, added = FORMATS[contract.out_dtype], PlainProduct.of(problem), addends(problem)
    spread = 2 ** sum(max(exponents) - min(exponents) for exponents in _all_scale_exponents(problem))
    dropout = 2 if problem.fusion is not None and "dropout" in problem.fusion.epilogue else 1
    # the inputs' smallest normals limit the output's unit from below, the output's range then limits the integers
    units = (FORMATS[operand.dtype].emin + addend_exponent(problem, operand) for operand in added)
    lowest = max([a.emin + b.emin + epilogue_exponent(problem), *units])
    # fp32 holds what an epilogue computes; integers have none, and fp64 sums none in fp32
    wider = contract.accumulator.exact_bits > EPILOGUE_BITS
    exact_bits = contract.accumulator.exact_bits if wider else EPILOGUE_BITS
    reach = out.significand if problem.dtype == "int8" else out.max_exponent - lowest
    whole = 2 ** min(exact_bits, reach) // dropout
    shown = 2 ** min(exact_bits, out.significand) // dropout
    addend = 0
    if added:
        significand = min(FORMATS[operand.dtype].significand for operand in added)
        addend = min(2**significand - 1, max(1, shown // (4 * len(added))), LARGEST_ADDEND)
    all_addends = len(added) * addend
    chunk = min(contract.accumulator.promote or product.k, product.segment if product.scaled else product.k)
    limit = (whole - 1 - all_addends) // spread
    most = 2**contract.accumulator.exact_bits - 1
    if contract.split is not None:
        # sums of some parts may exceed those of all: by what rounding adds to a first part, and by all second parts
        limit, most = limit - (limit >> 6), most - (most >> 6)
    chunk_limit = min(most, limit)
    visible = max(1, (shown - all_addends) // spread)
    return IntegerBudget(product.k, chunk, chunk_limit, limit, visible, addend, len(added), spread, dropout)


# What the epilogue does to the unit


def factor_exponent(factor: float) -> int | None:
    """e for a factor of +-2**e with |e| <= FACTOR_EXPONENT, else None."""
    fraction, exponent = math.frexp(abs(factor))
    return exponent - 1 if fraction == 0.5 and abs(exponent - 1) <= FACTOR_EXPONENT else None


def is_curved(problem: Gemm) -> bool:
    """True if the epilogue has a gelu or a silu."""
    return problem.op == "dual_mm" or (problem.fusion is not None and "gelu" in problem.fusion.epilogue)


def allows_exact(problem: Gemm) -> bool:
    """True if the epilogue rounds nothing: alpha and beta, where they act, are powers of two, and there is no gelu and
    no silu."""
    if is_curved(problem):
        return problem.output.numel == 0
    product = not problem.has_product or factor_exponent(problem.alpha) is not None
    return product and (not problem.reads_bias or factor_exponent(problem.beta) is not None)


def addends(problem: Gemm) -> tuple[Operand, ...]:
    """Returns the operands that the epilogue adds: the bias and the residual, those that are read."""
    return tuple(
        operand
        for operand in problem.operands
        if operand.name == "residual" or (operand.name == "bias" and problem.reads_bias)
    )


def addend_exponent(problem: Gemm, operand: Operand) -> int:
    """Exponent by which the epilogue moves the unit of an addend; 0 where beta is no power of two."""
    return (factor_exponent(problem.beta) or 0) if operand.name == "bias" else 0


def epilogue_exponent(problem: Gemm) -> int:
    """Exponent by which scales and alpha move the unit of the products at least."""
    scales = sum(min(exponents) for exponents in _all_scale_exponents(problem))
    return scales + ((factor_exponent(problem.alpha) or 0) if problem.has_product else 0)


def _all_scale_exponents(problem: Gemm) -> list[tuple[int, ...]]:
    return [scale_exponents(problem, name) for name in ("scale_a", "scale_b", *PROLOGUES)]


# Sizes of integers. ``top_a`` and ``top_b`` are the largest integers that the operands' formats hold.


def direct_sizes(budget: IntegerBudget, top_a: int, top_b: int) -> tuple[int, int]:
    """Largest integers of A and B whose results the output shows to the unit without any cancellation."""
    size = max(1, min(int(budget.per_product), budget.visible // budget.k))
    largest_a = min(top_a, math.isqrt(size))
    return largest_a, min(top_b, size // largest_a)


def paired_sizes(budget: IntegerBudget, top_a: int, top_b: int) -> tuple[int, int, float]:
    """Largest integers of A and B, and the density of B, for pairs of k that cancel but for a sparse rest.

    The rest is a sum of elements of A: of eight elements if the output's significand shows so many to the unit."""
    terms = 8 if budget.visible >= 64 else 3 if budget.visible >= 3 else 1
    balance = max(math.isqrt(int(budget.per_product)), int(budget.per_product) // top_b, 1)
    largest_a = max(1, min(top_a, budget.visible // terms, balance))
    largest_b = max(2, min(top_b, int(budget.per_product) // largest_a))
    return largest_a, largest_b, min(1.0, budget.per_product / (largest_a * largest_b))


def wide_tops(budget: IntegerBudget, ranges: tuple[Range, Range]) -> tuple[int, int]:
    """Returns the largest integers of the wide and of the small operand. They are what their significands hold, and up
    to :data:`FURTHER_BITS` more bits, the small operand first, until a chunk's sums may reach the limit."""
    tops = [side.top for side in ranges]
    for side in (1, 0):
        for _ in range(0 if ranges[side].integer else FURTHER_BITS):
            if budget.chunk * math.prod(tops) < 4 * budget.chunk_limit:
                tops[side] = 2 * tops[side] + 1
    return tops[0], tops[1]


def needs_one_hot(budget: IntegerBudget, largest: int) -> bool:
    """True if so few products with integers up to ``largest`` fit that the other operand must be one-hot."""
    return budget.chunk_limit // largest < FEWEST_PRODUCTS


def small_sizes(budget: IntegerBudget, largest: int, top: int, boost: float) -> tuple[int, float]:
    """Returns the largest integer and the density of an operand that meets another of integers up to ``largest``.

    With a ``boost`` of 0 sums fit whatever the signs are, with 1 they fit most likely. With more they are larger by so
    much, and may fit."""
    if boost:
        chunk_limit, limit = int(budget.chunk_limit * boost), int(budget.limit * boost)
        return _probable_sizes(dataclasses.replace(budget, chunk_limit=chunk_limit, limit=limit), largest, top)
    small = max(1, min(top, int(budget.per_product / largest)))
    return small, budget.per_product / (largest * small)


def _probable_sizes(budget: IntegerBudget, largest: int, top: int) -> tuple[int, float]:
    """Largest small integer (at most ``top``) and density for which max(P, N) stays in the budget by six deviations.

    The worst case of all signs and sizes agreeing leaves three quarters of the budget unused; whether the likely case
    held is checked when the fill is assembled.
    """
    spans = ((budget.chunk_limit, budget.chunk), (budget.limit, budget.k))

    def fits(small: int, density: float) -> bool:
        share = 7 / 8 * density
        mean = share * (largest + 1) * (small + 1) / 4
        square = share * (largest + 1) * (2 * largest + 1) * (small + 1) * (2 * small + 1) / 36
        deviation = math.sqrt(max(0.0, square - mean**2))
        return all(span * mean + 6 * math.sqrt(span) * deviation <= limit for limit, span in spans)

    small = top
    while small > 1 and not fits(small, 1.0):
        small -= max(1, small // 8)
    density = 1.0
    while not fits(small, density):
        density *= 0.75
    return small, density


def first_that_fits(budget: IntegerBudget, build: Callable[[float], Fill]) -> Fill:
    """Returns the fill of a boost (see :func:`small_sizes`) whose sums fit.

    Few terms differ much from what is likely. So the sums of a narrow accumulator with short chunks are measured, and a
    second fill comes closer to the limit.
    """
    fill = None
    try:
        fill = build(1.0)
        room = min(budget.chunk_limit / max(1, fill.meta["max_subset_sum"]), budget.limit / _total(fill))
    except BudgetError as error:
        room = error.room
    for share in SHARES_OF_ROOM if budget.is_narrow else ():
        if fill is None or share * room > 1:
            with contextlib.suppress(BudgetError):
                return build(share * room)
    return build(0.0) if fill is None else fill


def _total(fill: Fill) -> int:
    return max(1, int(fill.meta.get("max_subset_sum_total", fill.meta["max_subset_sum"])))


# Units, and the check of the sums


def output_unit(problem: Gemm, contract: Contract, budget: IntegerBudget, largest: int, addend: int) -> int:
    """Returns the exponent of the output's unit, for sums of at most ``largest`` units of the products. Biases and
    residuals of at most ``addend`` units of the output are added to them."""
    if problem.dtype == "int8":
        return 0
    size = max(1, (largest * budget.scale_spread + budget.addends * addend) * budget.dropout_factor)
    if not allows_exact(problem):
        size *= math.ceil(max(1.0, abs(problem.alpha), abs(problem.beta)))
    unit = min(0, FORMATS[contract.out_dtype].max_exponent - (size - 1).bit_length())
    if is_curved(problem):
        unit = min(unit, CURVE_EXPONENT - (size - 1).bit_length())
    for operand in addends(problem):
        reach = FORMATS[operand.dtype].max_exponent - addend.bit_length()
        unit = min(unit, reach + addend_exponent(problem, operand))
    return unit


def operand_units(problem: Gemm, contract: Contract, unit: int, largest: tuple[int, int]) -> tuple[int, int]:
    """Units of A and B, each such that all integers up to its ``largest`` are normal. Their sum is ``unit``, or less
    where that would be too large."""
    (low_a, high_a), (low_b, high_b) = (
        value_range(problem, contract, name).units(size) for name, size in zip("ab", largest, strict=True)
    )
    unit = min(unit, high_a + high_b)
    unit_a = min(max(unit // 2, low_a, unit - high_b), high_a, unit - low_b)
    return unit_a, unit - unit_a


def with_bits(integers: Integers, bits: int) -> Integers:
    """``integers`` cut towards zero to ``bits`` significant bits."""
    spare = np.maximum(np.frexp(np.abs(integers).astype(np.float64))[1] - bits, 0)
    cut: Integers = np.sign(integers) * ((np.abs(integers) >> spare) << spare)
    return cut


#: Outputs whose sums :func:`subset_sums` holds at once. Those of 2,560 x 2,560 outputs took longer with 4 and 16 times
#: fewer, and twice as long with all.
OUTPUTS_AT_ONCE = 2**19


def subset_sums(a: Tensor, b: Tensor, chunk: int, segment: int | None = None) -> tuple[int, int]:
    """max(P, N) over all outputs of A @ B (int64 matrices), within any ``chunk`` consecutive k and in total. A chunk
    lies within one ``segment`` of k.

    Chunks may start at any k, for a kernel that splits K may promote elsewhere than at multiples of a chunk. Of long
    chunks the first figure is a bound, at most a quarter too large.
    """
    k = a.shape[1]
    segment = max(1, min(segment or k, k))
    chunk = min(chunk, segment)
    step = chunk if chunk >= k else max(1, chunk // CHUNK_STEPS)
    rows = max(1, OUTPUTS_AT_ONCE // max(1, b.shape[1]))
    right = b.double()
    parts = [_subset_sums(left, right, chunk, segment, step) for left in a.double().split(rows)]
    return max(in_chunk for in_chunk, _ in parts), max(total for _, total in parts)


def _subset_sums(left: Tensor, right: Tensor, chunk: int, segment: int, step: int) -> tuple[int, int]:
    """Does the work of :func:`subset_sums`, for matrices in fp64 and chunks that begin at multiples of ``step``."""
    largest, k = 0, left.shape[1]
    left_size, right_size = left.abs(), right.abs()
    steps = -(-chunk // step) + (step > 1 and step < k)  # any chunk lies in so many steps
    for first in range(0, k, segment):
        last = min(first + segment, k)
        window: deque[tuple[Tensor, Tensor]] = deque()
        inside, inside_size = (left.new_zeros(left.shape[0], right.shape[1]) for _ in range(2))
        for start in range(first, last, step):
            where = slice(start, min(start + step, last))
            part, size = left[:, where] @ right[where], left_size[:, where] @ right_size[where]
            inside += part
            inside_size += size
            window.append((part, size))
            if len(window) > steps:
                oldest, oldest_size = window.popleft()
                inside -= oldest
                inside_size -= oldest_size
            largest = max(largest, larger_part(inside, inside_size))
    if step >= k:
        return largest, largest
    return largest, larger_part(left @ right, left_size @ right_size)


def larger_part(total: Tensor, size: Tensor) -> int:
    """max(P, N) over all outputs, from P - N (``total``) and P + N (``size``)."""
    return int(total.abs().add_(size).max()) // 2 if total.numel() else 0


def check_budget(problem: Gemm, contract: Contract, name: str, chunk: int, total: int) -> None:
    """Raises :class:`BudgetError` unless the measured max(P, N) of a chunk and in total fit the contract."""
    budget = budget_of(problem, contract)
    limit, limit_total = 2**contract.accumulator.exact_bits, budget.limit + 1
    if chunk >= limit or total >= limit_total:
        raise BudgetError(
            f"{problem.id}, fill {name}: max(P, N) is {chunk} units in a chunk of {budget.chunk} k and {total} in all. "
            f"But the accumulator keeps only sums below {limit} and the epilogue and output below {limit_total} exact",
            min(limit / max(1, chunk), limit_total / max(1, total)),
        )


def exactly(integers: Any, unit: Any, operand: Operand, forms: tuple[str, ...]) -> Tensor:
    """``integers * 2**unit`` in the first of the formats ``forms``; FillError if one of them cannot hold it."""
    values = torch.from_numpy(np.asarray(np.ldexp(np.asarray(integers, dtype=np.float64), unit)))
    stored = []
    for form in forms:
        lowest = FORMATS[form].lowest
        in_range = lowest is None or bool(((values >= lowest) & (values <= FORMATS[form].largest)).all())
        if in_range and lowest is None and form in DTYPES:
            stored.append(values.to(DTYPES[form]))  # compared below: what fits exactly, every conversion keeps
        elif in_range:
            stored.append(round_to(values, form))
        if not in_range or not torch.equal(stored[-1].double(), values):
            largest = float(values.abs().max())
            raise FillError(
                f"operand {operand.name!r}: integers up to {largest:g} with unit 2**{unit} do not fit {form}"
            )
    return stored[0]
