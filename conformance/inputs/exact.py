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

from conformance import reference
from conformance.inputs.draws import Draws, Integers
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, Format, round_to
from conformance.problems import DTYPES, Gemm, Operand

#: fp32 epilogues are exact up to this many bits.
EPILOGUE_BITS = 24
#: Exponents of the row scales of A and B (drawn), and of the tensor scales (fixed); no product of two is 1 throughout.
ROW_SCALES = {"scale_a": (1, 2), "scale_b": (-2, -1)}
TENSOR_SCALES = {"scale_a": (1,), "scale_b": (-2,)}
#: The factors alpha and beta of an exact fill are powers of two of at most this exponent.
FACTOR_EXPONENT = 8
#: Significant bits of each scale in the fill that is about scales: the product of two is exact in fp32.
WIDE_SCALE_BITS = 12
#: With fewer nonzero products than this per output, a full-width operand meets one-hot columns.
ONE_HOT = 16


class FillError(AssertionError):
    """A fill does not hold what it promises; the message has the figures. Always an error of the harness."""


class BudgetError(FillError):
    """Some sums of an exact fill could be rounded."""


@dataclass(frozen=True)
class Room:
    """What the contract leaves for integers, in units of the product (``bias``: in units of the output).

    ``k``: K; ``chunk``: number of k per accumulation chunk; ``chunk_total``: largest max(P, N) in a chunk; ``total``:
    over all of K; ``cap``: largest |C| that the output's significand shows to the unit; ``bias``: largest bias;
    ``factor``: largest scale product over the smallest.
    """

    k: int
    chunk: int
    chunk_total: int
    total: int
    cap: int
    bias: int
    factor: int

    @property
    def per_k(self) -> float:
        """Worst-case size of one product such that any choice of signs stays within the room."""
        return min(self.chunk_total / self.chunk, self.total / self.k)


def factor_exponent(factor: float) -> int | None:
    """e for a factor of +-2**e with |e| <= FACTOR_EXPONENT, else None."""
    fraction, exponent = math.frexp(abs(factor))
    return exponent - 1 if fraction == 0.5 and abs(exponent - 1) <= FACTOR_EXPONENT else None


def allows_exact(problem: Gemm) -> bool:
    """Whether alpha and beta, where they act, are powers of two: others round in the epilogue."""
    product = not problem.has_product or factor_exponent(problem.alpha) is not None
    return product and (not problem.reads_bias or factor_exponent(problem.beta) is not None)


def format_name(operand: Operand, contract: Contract) -> str:
    """The format whose values the fill may use: the operand's, or tf32 for an fp32 A or B under a tf32 contract."""
    return (
        "tf32"
        if operand.name in ("a", "b") and (operand.dtype, contract.operand) == ("fp32", "tf32")
        else operand.dtype
    )


def _format(problem: Gemm, contract: Contract, name: str) -> Format:
    return FORMATS[format_name(problem.operand(name), contract)]


def room(problem: Gemm, contract: Contract) -> Room:
    """The room that ``contract`` leaves; see :class:`Room`."""
    a, b = (_format(problem, contract, name) for name in "ab")
    out = FORMATS[contract.out_dtype]
    factor = 2 ** (_spread(problem, "scale_a") + _spread(problem, "scale_b"))
    # the inputs' smallest normals limit the output's unit from below, the output's range then limits the integers
    lowest = a.emin + b.emin + _epilogue_exponent(problem)
    if problem.reads_bias:
        lowest = max(lowest, FORMATS[problem.operand("bias").dtype].emin + _exponent_of_beta(problem))
    whole = 2 ** min(EPILOGUE_BITS, out.max_exponent - lowest)
    shown = 2 ** min(EPILOGUE_BITS, out.significand)
    bias = 0
    if problem.reads_bias:
        bias_form = FORMATS[problem.operand("bias").dtype]
        bias = min(2**bias_form.significand - 1, max(1, shown // 4), 1023)
    chunk = min(contract.accumulator.promote or problem.K, problem.K)
    total = (whole - 1 - bias) // factor
    chunk_total = min(2**contract.accumulator.exact_bits - 1, total)
    return Room(problem.K, chunk, chunk_total, total, max(1, (shown - bias) // factor), bias, factor)


def transparent(problem: Gemm, contract: Contract, seed: int, device: reference.Device) -> Fill:
    """Wide products whose sums fit the output's significand, so that output rounding hides nothing.

    Columns of A are paired at random, A[:,v] = A[:,u] and B[v] = -B[u] + E with E sparse in {-1, 0, 1}: what remains
    is A[:,u] @ E. With fewer than four k, small integers are multiplied directly.
    """
    draws = Draws(seed, "transparent")
    if not problem.has_product:
        a = np.zeros((problem.M, problem.K), dtype=np.int64)
        b = np.zeros((problem.K, problem.N), dtype=np.int64)
    else:
        a, b = _direct(problem, contract, draws) if problem.K < 4 else _paired(problem, contract, draws)
    return _assemble("transparent", problem, contract, seed, draws, a, b, device)


def wide(side: str, problem: Gemm, contract: Contract, seed: int, device: reference.Device) -> Fill:
    """A full-significand operand (``side`` "A" or "B") times a small one: sums wider than the output.

    Signs lean to one side per output, so that sums come close to the accumulator's limit and, where the contract
    promotes, pass the limit of one chunk.
    """
    try:
        return _wide(side, problem, contract, seed, device, daring=True)
    except BudgetError:
        return _wide(side, problem, contract, seed, device, daring=False)


def wide_scales(problem: Gemm, contract: Contract, seed: int, device: reference.Device) -> Fill:
    """Products of +-1 under scales of twelve significant bits: scales that were cast down or rounded show."""
    draws = Draws(seed, "wide-scales")
    a = draws.signs((problem.M, problem.K))
    b = np.zeros((problem.K, problem.N), dtype=np.int64)
    columns = np.arange(problem.N)
    b[draws.permutation(problem.K)[columns % problem.K], columns] = 1
    return _assemble("wide-scales", problem, contract, seed, draws, a, b, device, scales_only=True)


def _wide(side: str, problem: Gemm, contract: Contract, seed: int, device: reference.Device, *, daring: bool) -> Fill:
    name = f"wide-{side}"
    draws = Draws(seed, name)
    sizes = (problem.M, problem.N) if side == "A" else (problem.N, problem.M)
    wide_bits, small_bits = (_format(problem, contract, o).significand for o in ("ab" if side == "A" else "ba"))
    full, small = _wide_pair(draws, room(problem, contract), sizes, wide_bits, small_bits, daring)
    a, b = (full, small) if side == "A" else (small.T, full.T)
    return _assemble(name, problem, contract, seed, draws, a, b, device)


def _direct(problem: Gemm, contract: Contract, draws: Draws) -> tuple[Integers, Integers]:
    space = room(problem, contract)
    bits_a, bits_b = (_format(problem, contract, name).significand for name in "ab")
    product = max(1, min(int(space.per_k), space.cap // problem.K))
    largest_a = min(2**bits_a - 1, math.isqrt(product))
    largest_b = min(2**bits_b - 1, product // largest_a)
    return draws.nonzero(largest_a, (problem.M, problem.K)), draws.nonzero(largest_b, (problem.K, problem.N))


def _paired(problem: Gemm, contract: Contract, draws: Draws) -> tuple[Integers, Integers]:
    space = room(problem, contract)
    bits_a, bits_b = (_format(problem, contract, name).significand for name in "ab")
    pairs = problem.K // 2
    order = draws.permutation(problem.K)
    u, v, rest = order[:pairs], order[pairs : 2 * pairs], order[2 * pairs :]
    wanted = 8 if space.cap >= 64 else 3 if space.cap >= 3 else 1
    balance = max(math.isqrt(int(space.per_k)), int(space.per_k) // (2**bits_b - 1), 1)
    largest_a = max(1, min(2**bits_a - 1, space.cap // wanted, balance))
    largest_b = max(2, min(2**bits_b - 1, int(space.per_k) // largest_a))
    density = space.per_k / (largest_a * largest_b)

    a = np.empty((problem.M, problem.K), dtype=np.int64)
    a[:, u] = a[:, v] = draws.nonzero(largest_a, (problem.M, pairs))
    a[:, rest] = draws.nonzero(largest_a, (problem.M, len(rest)))
    b = np.empty((problem.K, problem.N), dtype=np.int64)
    base = draws.nonzero(largest_b - 1, (pairs, problem.N))
    if density < 1:
        base *= draws.chance(density, base.shape)
    b[u], b[v] = base, -base
    b[rest] = draws.signs((len(rest), problem.N))
    count = min(max(1, pairs // 2), max(1, space.cap // largest_a) - len(rest))
    if count > 0:
        # evenly spaced from a random start per column: distinct, exactly `count`, and random in k through the pairing
        where = (draws.below(pairs, (1, problem.N)) + (np.arange(count)[:, None] * pairs) // count) % pairs
        b[v[where], np.arange(problem.N)[None, :]] += draws.signs(where.shape)
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
        small_largest, density = _likely(space, largest, 2**small_bits - 1)
    small = 1 + draws.below(small_largest, shape)
    if density < 1:
        small *= draws.chance(density, shape)
    small *= draws.signs((1, sizes[1])) * (1 - 2 * draws.chance(1 / 8, shape).astype(np.int64))
    return full, small


def _likely(space: Room, largest: int, top: int) -> tuple[int, float]:
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
    device: reference.Device,
    *,
    scales_only: bool = False,
) -> Fill:
    """Choose units, make tensors, compute the reference and check everything that the fill promises.

    ``scales_only``: scales of many bits and a bias of zero, for products that leave fp32 room for them."""
    space = room(problem, contract)
    a_int, b_int = torch.from_numpy(np.ascontiguousarray(a)), torch.from_numpy(np.ascontiguousarray(b))
    if device is not None:
        a_int, b_int = a_int.to(device), b_int.to(device)
    largest_chunk, largest_total = subset_sums(a_int, b_int, space.chunk if problem.has_product else 1)
    check_budget(problem, contract, name, largest_chunk, largest_total)

    size = max(1, largest_total * space.factor + space.bias)
    unit_out = min(0, FORMATS[contract.out_dtype].max_exponent - (size - 1).bit_length())
    if problem.reads_bias:
        bias_range = FORMATS[problem.operand("bias").dtype].max_exponent - space.bias.bit_length()
        unit_out = min(unit_out, bias_range + _exponent_of_beta(problem))
    unit_a, unit_b = _units(problem, contract, unit_out - _epilogue_exponent(problem))
    inputs: dict[str, Tensor] = {}
    for operand in problem.operands:
        if operand.name in ("a", "b"):
            integers, unit = (a, unit_a) if operand.name == "a" else (b, unit_b)
            inputs[operand.name] = (
                _exactly(integers, unit, operand, contract) if problem.alpha != 0 else ignored(operand)
            )
        elif operand.name == "bias" and scales_only:
            inputs["bias"] = torch.zeros(operand.shape, dtype=DTYPES[operand.dtype])
        elif operand.name == "bias":
            inputs["bias"] = _bias(problem, contract, operand, draws, space, unit_out)
        else:
            exponents: tuple[int, ...] = (ROW_SCALES if problem.scaling == "row" else TENSOR_SCALES)[operand.name]
            picked = np.asarray(exponents)[draws.below(len(exponents), operand.shape)]
            significand = np.ones(operand.shape)
            if scales_only:
                odd = 2 * draws.below(2 ** (WIDE_SCALE_BITS - 2), operand.shape) + 1
                significand = 1 + np.ldexp(odd, 1 - WIDE_SCALE_BITS)
            inputs[operand.name] = _exactly(significand, picked, operand, contract)

    raw = reference.product(problem, inputs, device=device)
    if problem.has_product:
        found = (raw * 2.0 ** -(unit_a + unit_b)).to(torch.int64)
        if not reference.freivalds(a_int, b_int, found, seed):
            raise FillError(f"{problem.id}, fill {name}, seed {seed}: the fp64 reference is not A @ B (Freivalds)")
    expected = reference.epilogue(problem, inputs, raw)
    meta: dict[str, Any] = {
        "unit_a": unit_a,
        "unit_b": unit_b,
        "unit_out": unit_out,
        "budget_bits": contract.accumulator.exact_bits,
        "max_subset_sum": largest_chunk,
        "max_subset_sum_total": largest_total,
    }
    return Fill(name, seed, "exact", inputs, expected, None, meta)


def subset_sums(a: Tensor, b: Tensor, chunk: int) -> tuple[int, int]:
    """max(P, N) over all outputs of A @ B (int64 matrices), within one aligned chunk of k and in total."""
    total = torch.zeros(a.shape[0], b.shape[1], dtype=torch.float64, device=a.device)
    total_size = torch.zeros_like(total)
    largest = 0
    for start in range(0, a.shape[1], max(1, chunk)):
        left, right = a[:, start : start + chunk].double(), b[start : start + chunk].double()
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


def _units(problem: Gemm, contract: Contract, exponent: int) -> tuple[int, int]:
    """Unit exponents of A and B with the given sum, each within the range of its normals."""
    ranges = []
    for name in "ab":
        form = _format(problem, contract, name)
        ranges.append((form.emin, form.max_exponent - form.significand))
    (low_a, high_a), (low_b, high_b) = ranges
    unit_a = min(max(exponent // 2, low_a, exponent - high_b), high_a, exponent - low_b)
    return unit_a, exponent - unit_a


def _bias(problem: Gemm, contract: Contract, operand: Operand, draws: Draws, space: Room, unit_out: int) -> Tensor:
    if not problem.reads_bias:
        return ignored(operand)
    unit = unit_out - _exponent_of_beta(problem)
    return _exactly(draws.nonzero(space.bias, operand.shape), unit, operand, contract)


def _exponent_of_beta(problem: Gemm) -> int:
    exponent = factor_exponent(problem.beta)
    if exponent is None:
        raise FillError(f"{problem.id}: beta {problem.beta} is no power of two, so its exact fills do not exist")
    return exponent


def _exactly(integers: Any, unit: Any, operand: Operand, contract: Contract) -> Tensor:
    """``integers * 2**unit`` in the operand's format; FillError if that format cannot hold them."""
    values = torch.from_numpy(np.asarray(np.ldexp(np.asarray(integers, dtype=np.float64), unit)))
    name = format_name(operand, contract)
    rounded = round_to(values, name)
    if not torch.equal(rounded.double(), values):
        largest = float(values.abs().max())
        raise FillError(f"operand {operand.name!r}: integers up to {largest:g} with unit 2**{unit} do not fit {name}")
    return rounded


def ignored(operand: Operand) -> Tensor:
    """NaN throughout: for an operand that the problem must not let through."""
    return round_to(torch.full(operand.shape, math.nan, dtype=torch.float64), operand.dtype)


def _spread(problem: Gemm, name: str) -> int:
    return max(ROW_SCALES[name]) - min(ROW_SCALES[name]) if problem.scaling == "row" else 0


def _epilogue_exponent(problem: Gemm) -> int:
    """Exponent by which the epilogue moves the product's unit at least."""
    if problem.scaling is not None:
        table = ROW_SCALES if problem.scaling == "row" else TENSOR_SCALES
        return sum(min(exponents) for exponents in table.values())
    return (factor_exponent(problem.alpha) or 0) if problem.has_product else 0
