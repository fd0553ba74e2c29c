"""Exact fills: integers times powers of two, so small that no order of summation rounds anything.

Condition (checked when a fill is built): with P and N the sums of the positive and of the negative products of one
output, in units, max(P, N) < 2**p for the p bits that the contract's accumulator keeps, for all of K or, where it
promotes, for each chunk. Every partial sum, over any subset in any order, is then exact, and the output has one
possible bit pattern. Scales, alpha and beta are powers of two and biases whole units, so the epilogue is exact too.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.inputs.arrangement import (
    Product,
    arrange,
    draw_exponents,
    draw_rows,
    formats,
    period,
    scale_exponents,
    value_range,
)
from conformance.inputs.draws import Draws, Integers
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import DTYPES, Gemm, Operand
from conformance.references import gemm
from conformance.references.operands import Device

#: fp32 epilogues are exact up to this many bits.
EPILOGUE_BITS = 24
#: The factors alpha and beta of an exact fill are powers of two of at most this exponent.
FACTOR_EXPONENT = 8
#: Significant bits of each scale in the fill that is about scales: the product of two is exact in fp32.
WIDE_SCALE_BITS = 12
#: Integers of the fill of large int8 sums: sizes of at least this. From K = 1100 most sums pass 2**24.
LARGE_INT8 = 120
#: With fewer nonzero products than this per output, a full-width operand meets one-hot columns.
ONE_HOT = 16


class FillError(AssertionError):
    """A fill does not hold what it promises; the message has the figures. Always an error of the harness."""


class BudgetError(FillError):
    """Some sums of an exact fill could be rounded."""


@dataclass(frozen=True)
class Room:
    """What the contract leaves for integers, in units of the product (``addend``: in units of the output).

    ``k``: that of the plain product; ``chunk``: number of k per accumulation chunk; ``chunk_total``: largest max(P, N)
    in a chunk; ``total``: over all k; ``cap``: largest |C| that the output's significand shows to the unit;
    ``addend``: largest element of each of the ``addends``, bias and residual; ``factor``: largest scale product over
    the smallest; ``doubling``: the factor of a dropout.
    """

    k: int
    chunk: int
    chunk_total: int
    total: int
    cap: int
    addend: int
    addends: int
    factor: int
    doubling: int

    @property
    def per_k(self) -> float:
        """Worst-case size of one product such that any choice of signs stays within the room."""
        return min(self.chunk_total / self.chunk, self.total / self.k)


def factor_exponent(factor: float) -> int | None:
    """e for a factor of +-2**e with |e| <= FACTOR_EXPONENT, else None."""
    fraction, exponent = math.frexp(abs(factor))
    return exponent - 1 if fraction == 0.5 and abs(exponent - 1) <= FACTOR_EXPONENT else None


def allows_exact(problem: Gemm) -> bool:
    """Whether the epilogue rounds nothing: alpha and beta, where they act, are powers of two, and there is no gelu."""
    if problem.fusion is not None and "gelu" in problem.fusion.epilogue:
        return problem.output.numel == 0
    product = not problem.has_product or factor_exponent(problem.alpha) is not None
    return product and (not problem.reads_bias or factor_exponent(problem.beta) is not None)


def addends(problem: Gemm) -> tuple[Operand, ...]:
    """What the epilogue adds: the bias and the residual, those that are read."""
    return tuple(
        operand
        for operand in problem.operands
        if operand.name == "residual" or (operand.name == "bias" and problem.reads_bias)
    )


def room(problem: Gemm, contract: Contract) -> Room:
    """The room that ``contract`` leaves; see :class:`Room`."""
    a, b = (value_range(problem, contract, name) for name in "ab")
    out, product, added = FORMATS[contract.out_dtype], Product.of(problem), addends(problem)
    factor = 2 ** sum(max(exponents) - min(exponents) for exponents in _all_scale_exponents(problem))
    doubling = 2 if problem.fusion is not None and "dropout" in problem.fusion.epilogue else 1
    # the inputs' smallest normals limit the output's unit from below, the output's range then limits the integers
    units = (FORMATS[operand.dtype].emin + _addend_exponent(problem, operand) for operand in added)
    lowest = max([a.emin + b.emin + _epilogue_exponent(problem), *units])
    # fp32 holds what an epilogue computes; integers have none
    held = contract.accumulator.exact_bits if problem.op == "int_mm" else EPILOGUE_BITS
    reach = out.significand if problem.op == "int_mm" else out.max_exponent - lowest
    whole = 2 ** min(held, reach) // doubling
    shown = 2 ** min(held, out.significand) // doubling
    addend = 0
    if added:
        significand = min(FORMATS[operand.dtype].significand for operand in added)
        addend = min(2**significand - 1, max(1, shown // (4 * len(added))), 1023)
    everything = len(added) * addend
    chunk = min(contract.accumulator.promote or product.k, product.segment if product.scaled else product.k)
    total = (whole - 1 - everything) // factor
    chunk_total = min(2**contract.accumulator.exact_bits - 1, total)
    cap = max(1, (shown - everything) // factor)
    return Room(product.k, chunk, chunk_total, total, cap, addend, len(added), factor, doubling)


def transparent(problem: Gemm, contract: Contract, seed: int, device: Device) -> Fill:
    """Wide products whose sums fit the output's significand, so that output rounding hides nothing.

    Columns of A are paired at random, A[:,v] = A[:,u] and B[v] = -B[u] + E with E sparse in {-1, 0, 1}: what remains
    is A[:,u] @ E. With fewer than four k, small integers are multiplied directly. A B without signs is paired through
    A[:,v] = -A[:,u]; k of different scales are not paired; int8 sums in int32 need no pairs.
    """
    draws, product = Draws(seed, "transparent"), Product.of(problem)
    if not problem.has_product:
        a = np.zeros((product.rows, product.k), dtype=np.int64)
        b = np.zeros((product.k, product.cols), dtype=np.int64)
    elif problem.op == "int_mm":  # int32 shows every sum in full
        a, b = (draws.below(256, shape) - 128 for shape in ((product.rows, product.k), (product.k, product.cols)))
    else:
        a, b = _direct(problem, contract, draws) if product.k < 4 else _paired(problem, contract, draws)
    return _assemble("transparent", problem, contract, seed, draws, a, b, device)


def wide(side: str, problem: Gemm, contract: Contract, seed: int, device: Device) -> Fill:
    """A full-significand operand (``side`` "A" or "B") times a small one: sums wider than the output.

    Signs lean to one side per output, so that sums come close to the accumulator's limit and, where the contract
    promotes, pass the limit of one chunk. Sums of int8 are as large as they get: past 16 bits, and past fp32's 24.
    """
    if problem.op == "int_mm":
        return _large_sums(f"wide-{side}", problem, contract, seed, device)
    try:
        return _wide(side, problem, contract, seed, device, daring=True)
    except BudgetError:
        return _wide(side, problem, contract, seed, device, daring=False)


def wide_scales(problem: Gemm, contract: Contract, seed: int, device: Device) -> Fill:
    """Products of +-1 under scales of twelve significant bits: scales that were cast down or rounded show."""
    draws, product = Draws(seed, "wide-scales"), Product.of(problem)
    a = draws.signs((product.rows, product.k))
    b = np.zeros((product.k, product.cols), dtype=np.int64)
    columns = np.arange(product.cols)
    b[draws.permutation(product.k)[columns % product.k], columns] = 1
    return _assemble("wide-scales", problem, contract, seed, draws, a, b, device, scales_only=True)


def _large_sums(name: str, problem: Gemm, contract: Contract, seed: int, device: Device) -> Fill:
    """int8 of one sign per row of A and column of B, all near the ends of the range."""
    draws, product = Draws(seed, name), Product.of(problem)
    found = []
    for lines, k in ((product.rows, product.k), (product.cols, product.k)):
        size = LARGE_INT8 + draws.below(128 - LARGE_INT8, (lines, k))
        found.append(np.where(draws.chance(0.5, (lines, 1)), size, -1 - size))
    return _assemble(name, problem, contract, seed, draws, found[0], found[1].T, device)


def _wide(side: str, problem: Gemm, contract: Contract, seed: int, device: Device, *, daring: bool) -> Fill:
    name = f"wide-{side}"
    draws, product = Draws(seed, name), Product.of(problem)
    sizes = (product.rows, product.cols) if side == "A" else (product.cols, product.rows)
    range_a, range_b = (value_range(problem, contract, o) for o in "ab")
    wide_bits, small_bits = (r.bits for r in ((range_a, range_b) if side == "A" else (range_b, range_a)))
    full, small = _wide_pair(draws, room(problem, contract), sizes, wide_bits, small_bits, daring)
    a, b = (full, small) if side == "A" else (small.T, full.T)
    if range_b.integer and range_b.signed and side == "B":
        b = np.where(b < 0, b - 1, b)  # two's complement: from -128
    if not range_b.signed:
        b = np.abs(b)
        if side == "A":  # some terms of each sum have the other sign, as small operands with signs give them
            a = a * (1 - 2 * draws.chance(1 / 8, a.shape).astype(np.int64))
    return _assemble(name, problem, contract, seed, draws, a, b, device)


def _direct(problem: Gemm, contract: Contract, draws: Draws) -> tuple[Integers, Integers]:
    space, product = room(problem, contract), Product.of(problem)
    range_a, range_b = (value_range(problem, contract, name) for name in "ab")
    size = max(1, min(int(space.per_k), space.cap // product.k))
    largest_a = min(2**range_a.bits - 1, math.isqrt(size))
    largest_b = min(2**range_b.bits - 1, size // largest_a)
    a, b = draws.nonzero(largest_a, (product.rows, product.k)), draws.nonzero(largest_b, (product.k, product.cols))
    return a, b if range_b.signed else np.abs(b)


def _pairs(product: Product, draws: Draws) -> tuple[Integers, Integers, Integers]:
    """All k in random pairs (u, v) and the rest; where segments have scales of their own, within each segment."""
    found: list[tuple[Integers, Integers, Integers]] = []
    for start in range(0, product.k, product.segment if product.scaled else product.k):
        count = min(product.segment, product.k - start) if product.scaled else product.k
        order, pairs = start + draws.permutation(count), count // 2
        found.append((order[:pairs], order[pairs : 2 * pairs], order[2 * pairs :]))
    u, v, rest = (np.concatenate(parts) for parts in zip(*found, strict=True))
    return u, v, rest


def _paired(problem: Gemm, contract: Contract, draws: Draws) -> tuple[Integers, Integers]:
    space, product = room(problem, contract), Product.of(problem)
    range_a, range_b = (value_range(problem, contract, name) for name in "ab")
    u, v, rest = _pairs(product, draws)
    pairs = len(u)
    wanted = 8 if space.cap >= 64 else 3 if space.cap >= 3 else 1
    balance = max(math.isqrt(int(space.per_k)), int(space.per_k) // (2**range_b.bits - 1), 1)
    largest_a = max(1, min(2**range_a.bits - 1, space.cap // wanted, balance))
    largest_b = max(2, min(2**range_b.bits - 1, int(space.per_k) // largest_a))
    density = space.per_k / (largest_a * largest_b)

    a = np.empty((product.rows, product.k), dtype=np.int64)
    a[:, u] = a[:, v] = draws.nonzero(largest_a, (product.rows, pairs))
    a[:, rest] = draws.nonzero(largest_a, (product.rows, len(rest)))
    b = np.empty((product.k, product.cols), dtype=np.int64)
    base = draws.nonzero(largest_b - 1, (pairs, product.cols))
    if density < 1:
        base *= draws.chance(density, base.shape)
    b[u], b[v] = base, -base
    b[rest] = draws.signs((len(rest), product.cols))
    count = min(max(1, pairs // 2), max(1, space.cap // largest_a) - len(rest))
    if not range_b.signed:
        a[:, v] *= -1
        b = np.abs(b)
    if count > 0:
        # evenly spaced from a random start per column: distinct, exactly `count`, and random in k through the pairing
        where = (draws.below(pairs, (1, product.cols)) + (np.arange(count)[:, None] * pairs) // count) % pairs
        step = draws.signs(where.shape)
        b[v[where], np.arange(product.cols)[None, :]] += step if range_b.signed else np.abs(step)
    return a, b


def _wide_pair(
    draws: Draws, space: Room, sizes: tuple[int, int], wide_bits: int, small_bits: int, daring: bool
) -> tuple[Integers, Integers]:
    """The wide operand (sizes[0] x K) and the small one (K x sizes[1])."""
    largest = min(2**wide_bits - 1, space.chunk_total)
    full = 1 + draws.below(largest, (sizes[0], space.k))
    full *= draws.signs((sizes[0], 1))
    shape = (space.k, sizes[1])
    if space.chunk_total // largest < ONE_HOT:
        small = np.zeros(shape, dtype=np.int64)
        columns = np.arange(sizes[1])
        small[draws.permutation(space.k)[columns % space.k], columns] = draws.signs((sizes[1],))
        return full, small
    small_largest = max(1, min(2**small_bits - 1, int(space.per_k / largest)))
    density = space.per_k / (largest * small_largest)
    if daring:
        small_largest, density = likely(space, largest, 2**small_bits - 1)
    small = 1 + draws.below(small_largest, shape)
    if density < 1:
        small *= draws.chance(density, shape)
    small *= draws.signs((1, sizes[1])) * (1 - 2 * draws.chance(1 / 8, shape).astype(np.int64))
    return full, small


def likely(space: Room, largest: int, top: int) -> tuple[int, float]:
    """Largest small integer (at most ``top``) and density for which max(P, N) stays in the room by six deviations.

    The worst case of all signs and sizes agreeing leaves three quarters of the room unused; whether the likely case
    held is checked when the fill is assembled.
    """
    spans = ((space.chunk_total, space.chunk), (space.total, space.k))

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


def _assemble(
    name: str,
    problem: Gemm,
    contract: Contract,
    seed: int,
    draws: Draws,
    a: Integers,
    b: Integers,
    device: Device,
    *,
    scales_only: bool = False,
) -> Fill:
    """Choose units, make tensors, compute the reference and check everything that the fill promises.

    ``a`` and ``b`` are those of the plain product. ``scales_only``: scales of many bits and a bias of zero, for
    products that leave fp32 room for them."""
    space, product = room(problem, contract), Product.of(problem)
    a_int, b_int = torch.from_numpy(np.ascontiguousarray(a)), torch.from_numpy(np.ascontiguousarray(b))
    if device is not None:
        a_int, b_int = a_int.to(device), b_int.to(device)
    chunk = space.chunk if problem.has_product else 1
    largest_chunk, largest_total = subset_sums(a_int, b_int, chunk, product.segment)
    check_budget(problem, contract, name, largest_chunk, largest_total)

    unit_out = output_unit(problem, contract, space, largest_total)
    unit_a, unit_b = operand_units(problem, contract, unit_out - _epilogue_exponent(problem))
    arranged: dict[str, Tensor] = {}
    if problem.alpha != 0:
        tensors = (
            exactly(integers, unit, problem.operand(operand), formats(problem, contract, operand))
            for operand, integers, unit in (("a", a, unit_a), ("b", b, unit_b))
        )
        arranged = arrange(problem, *tensors)
    inputs: dict[str, Tensor] = {}
    for operand in problem.operands:
        if operand.name in "abcd":
            inputs[operand.name] = arranged[operand.name] if arranged else ignored(operand)
        elif operand.name in ("bias", "residual"):
            inputs[operand.name] = _addend(problem, operand, draws, space, unit_out, zero=scales_only)
        elif operand.name == "rows":
            inputs["rows"] = draw_rows(problem, draws)
        elif operand.name == "mask":
            inputs["mask"] = torch.from_numpy(draws.chance(0.5, operand.shape).astype(np.uint8))
        else:
            picked = draw_exponents(problem, operand.name, operand.shape, draws)
            significand = np.ones(operand.shape)
            if scales_only:
                odd = 2 * draws.below(2 ** (WIDE_SCALE_BITS - 2), operand.shape) + 1
                significand = 1 + np.ldexp(odd, 1 - WIDE_SCALE_BITS)
            inputs[operand.name] = exactly(significand, picked, operand, (operand.dtype,))

    raw = gemm.product(problem, inputs, device=device)
    if problem.has_product:
        units = _factor_units(problem, product, (unit_a, unit_b), scales_only)
        if not _is_product(problem, gemm.factors(problem, inputs, device=device), raw, units, seed):
            raise FillError(f"{problem.id}, fill {name}, seed {seed}: the fp64 reference is not A @ B (Freivalds)")
    expected = gemm.epilogue(problem, inputs, raw)
    meta: dict[str, Any] = {
        "unit_a": unit_a,
        "unit_b": unit_b,
        "unit_out": unit_out,
        "budget_bits": contract.accumulator.exact_bits,
        "max_subset_sum": largest_chunk,
        "max_subset_sum_total": largest_total,
    }
    return Fill(name, seed, "exact", inputs, expected, None, meta)


def _is_product(problem: Gemm, factors: tuple[Tensor, Tensor], raw: Tensor, units: tuple[int, int], seed: int) -> bool:
    """Whether ``raw`` is the product of ``factors`` (fp64; integers in these units), by :func:`gemm.freivalds`."""
    a, b = factors
    if problem.batch is not None:  # a large batch repeats itself
        repeat = period(problem)
        if not torch.equal(raw[repeat:], raw[:-repeat]):
            return False
        a, b, raw = a[:repeat], b[:repeat], raw[:repeat]
    a_int, b_int, found = (
        (values * 2.0**-unit).to(torch.int64) for values, unit in ((a, units[0]), (b, units[1]), (raw, sum(units)))
    )
    return gemm.freivalds(a_int, b_int, found, seed)


def _factor_units(problem: Gemm, product: Product, units: tuple[int, int], scales_only: bool) -> tuple[int, int]:
    """Units of the factors of the reference: with the scales that are part of them."""
    unit_a, unit_b = units
    unit_a += min(scale_exponents(problem, "row_scale"))
    if product.scaled:
        below = WIDE_SCALE_BITS - 1 if scales_only else 0
        unit_a += min(scale_exponents(problem, "scale_a")) - below
        unit_b += min(scale_exponents(problem, "scale_b")) - below
    return unit_a, unit_b


def subset_sums(a: Tensor, b: Tensor, chunk: int, segment: int | None = None) -> tuple[int, int]:
    """max(P, N) over all outputs of A @ B (int64 matrices), within one aligned chunk of k and in total. Chunks begin
    anew with each ``segment`` of k."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64, device=a.device)
    total_size = torch.zeros_like(total)
    largest, k = 0, a.shape[1]
    segment = max(1, segment or k)
    for first in range(0, k, segment):
        last = min(first + segment, k)
        for start in range(first, last, max(1, chunk)):
            stop = min(start + chunk, last)
            left, right = a[:, start:stop].double(), b[start:stop].double()
            part, size = left @ right, left.abs() @ right.abs()
            largest = max(largest, _half_sum(part, size))
            total += part
            total_size += size
    return largest, _half_sum(total, total_size)


def _half_sum(value: Tensor, size: Tensor) -> int:
    return int((size + value.abs()).max()) // 2 if value.numel() else 0


def check_budget(problem: Gemm, contract: Contract, name: str, chunk: int, total: int) -> None:
    """Raise :class:`BudgetError` unless the measured max(P, N) of a chunk and in total fit the contract."""
    space = room(problem, contract)
    limit, limit_total = 2**contract.accumulator.exact_bits, space.total + 1
    if chunk >= limit or total >= limit_total:
        raise BudgetError(
            f"{problem.id}, fill {name}: max(P, N) is {chunk} units in a chunk of {space.chunk} k and {total} in all, "
            f"but the accumulator keeps only sums below {limit} and the epilogue and output below {limit_total} exact"
        )


def output_unit(problem: Gemm, contract: Contract, space: Room, largest: int) -> int:
    """Exponent of the output's unit, for sums of at most ``largest`` units of the product."""
    if problem.op == "int_mm":
        return 0
    size = max(1, (largest * space.factor + space.addends * space.addend) * space.doubling)
    unit = min(0, FORMATS[contract.out_dtype].max_exponent - (size - 1).bit_length())
    for operand in addends(problem):
        reach = FORMATS[operand.dtype].max_exponent - space.addend.bit_length()
        unit = min(unit, reach + _addend_exponent(problem, operand))
    return unit


def operand_units(problem: Gemm, contract: Contract, exponent: int) -> tuple[int, int]:
    """Unit exponents of A and B with the given sum, each within the range of its normals."""
    (low_a, high_a), (low_b, high_b) = (value_range(problem, contract, name).units for name in "ab")
    unit_a = min(max(exponent // 2, low_a, exponent - high_b), high_a, exponent - low_b)
    return unit_a, exponent - unit_a


def _addend(problem: Gemm, operand: Operand, draws: Draws, space: Room, unit_out: int, *, zero: bool) -> Tensor:
    """The bias or the residual: integers in the output's unit, or ``zero``."""
    if zero:
        return torch.zeros(operand.shape, dtype=DTYPES[operand.dtype])
    if operand not in addends(problem):
        return ignored(operand)
    unit = unit_out - _addend_exponent(problem, operand)
    return exactly(draws.nonzero(space.addend, operand.shape), unit, operand, (operand.dtype,))


def _addend_exponent(problem: Gemm, operand: Operand) -> int:
    """Exponent by which the epilogue moves the unit of an addend."""
    exponent = factor_exponent(problem.beta) if operand.name == "bias" else 0
    if exponent is None:
        raise FillError(f"{problem.id}: beta {problem.beta} is no power of two, so its exact fills do not exist")
    return exponent


def exactly(integers: Any, unit: Any, operand: Operand, forms: tuple[str, ...]) -> Tensor:
    """``integers * 2**unit`` in the first of the formats ``forms``; FillError if one of them cannot hold it."""
    values = torch.from_numpy(np.asarray(np.ldexp(np.asarray(integers, dtype=np.float64), unit)))
    found = []
    for form in forms:
        lowest = FORMATS[form].lowest
        held = lowest is None or bool(((values >= lowest) & (values <= FORMATS[form].largest)).all())
        if held:
            found.append(round_to(values, form))
        if not held or not torch.equal(found[-1].double(), values):
            largest = float(values.abs().max())
            raise FillError(
                f"operand {operand.name!r}: integers up to {largest:g} with unit 2**{unit} do not fit {form}"
            )
    return found[0]


def ignored(operand: Operand) -> Tensor:
    """NaN throughout: for an operand that the problem must not let through."""
    return round_to(torch.full(operand.shape, math.nan, dtype=torch.float64), operand.dtype)


def _all_scale_exponents(problem: Gemm) -> list[tuple[int, ...]]:
    return [scale_exponents(problem, name) for name in ("scale_a", "scale_b", "row_scale")]


def _epilogue_exponent(problem: Gemm) -> int:
    """Exponent by which scales and alpha move the product's unit at least."""
    scales = sum(min(exponents) for exponents in _all_scale_exponents(problem))
    return scales + ((factor_exponent(problem.alpha) or 0) if problem.has_product else 0)
