"""Rigorous bounds of the error that a contract allows, before the result is rounded to the output dtype.

With S = |A||B| and u = 2**-24: one step of a tensor core that aligns T products and the running sum to F fraction
bits and keeps b bits of the result loses at most (T+1) * 2**-F times the largest term plus 2**-b of the result
(MMA-Sim, arXiv 2511.10909; Khattak and Mikaitis, arXiv 2512.07004; form of the bound: Blanchard, Higham, Lopez, Mary
and Pranesh 2020). Every term is at most the partial S, so no assumption about the order of the sums is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.numerics.contract import Accumulator, Contract
from conformance.numerics.rounding import FORMATS
from conformance.problems import Gemm

#: Unit roundoff of the fp32 arithmetic of epilogues.
U = 2.0**-24
#: Unit roundoff of the reference's own arithmetic.
U64 = 2.0**-53


def growth(accumulator: Accumulator, k: int, *, fused: bool = False) -> float:
    """g such that a sum of ``k`` products errs by at most g * S. ``fused``: an epilogue's operation may be fused in.

    Narrow accumulators (fewer than 23 result bits) count whole chunks, T+4 per chunk because some units split one in
    two; wide ones count single k, and eight more for ragged chunks, where one term bears the cost of a whole step.
    """
    if k == 0:
        return 0.0
    if accumulator.kind == "fma":
        return _compound(2.0 ** -(accumulator.result_bits + 1), k + (4 if fused else 2))
    span = min(accumulator.promote or k, k)
    promotions = math.ceil(k / span)
    if accumulator.result_bits < 23:
        per_chunk = math.log1p((accumulator.chunk + 4) * 2.0**-accumulator.alignment_bits)
        narrow = math.ceil(span / accumulator.chunk) * per_chunk
        return math.expm1(narrow + (math.ceil(k / accumulator.chunk) + promotions) * math.log1p(U))
    b, t = accumulator.result_bits, accumulator.chunk
    c = max(1.0, ((t + 1) * 2.0 ** (b - accumulator.alignment_bits) + 1) / t) * 2.0**-b
    if accumulator.assumed:
        c = max(c, 2.0 ** (1 - b))
    return _compound(c, k + 8 + (promotions if accumulator.promote else 0))


def error_bound(
    problem: Gemm, contract: Contract, value: Tensor, magnitude: Tensor, inputs: Mapping[str, Tensor]
) -> Tensor:
    """Bound, in fp64 and shape (M, N), of |computed - value| before the output rounding.

    ``value`` and ``magnitude`` are those of ``conformance.reference`` (fp64, (M, N), on one device). Includes the
    roundings of the epilogue (the constants alpha and beta themselves may be rounded to fp32), the reference's own
    error and underflow: the smallest subnormal of the accumulator per operation, or, where the contract flushes
    subnormals, its smallest normal and that of the output. Rounded up, so that fp64 evaluation keeps it a bound.
    """
    k = problem.K if problem.has_product else 0
    fused = problem.op != "mm"
    relative = growth(contract.accumulator, k, fused=fused) + (k + 8) * U64
    if contract.accumulator.kind == "tensor-core" and k:
        magnitude = _aligned_magnitude(problem, magnitude, inputs)
    tiny = 2.0**-126 if contract.flushes_subnormals else 2.0 ** (-126 - contract.accumulator.result_bits)
    error = magnitude * relative + (k + 4) * tiny
    bias = torch.zeros((), dtype=torch.float64, device=value.device)
    if problem.reads_bias:
        bias = (problem.beta * inputs["bias"].to(value.device).double()).abs()
    size = value.abs() + bias  # at least the size of the product after its scaling
    if problem.scaling is not None:
        scale = (inputs["scale_a"].to(value.device).double() * inputs["scale_b"].to(value.device).double()).abs()
        error = error * scale
        error = error + 3 * U * (size + error)
    elif problem.op == "addmm":
        error = error * abs(problem.alpha)
        error = error + 2 * U * (size + error) + 2 * U * bias
    if problem.reads_bias:
        error = error + 2 * U * (value.abs() + error)
    error = error + 8 * U64 * size + 4 * tiny
    if contract.flushes_subnormals:
        error = error + FORMATS[contract.out_dtype].smallest_normal
    return error * (1 + 2.0**-20)


def _aligned_magnitude(problem: Gemm, magnitude: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """|A||B| as a tensor core aligns it: the unit does not normalise a subnormal operand, so a product with one has
    the exponent that it would have with the smallest normal, and the other terms of its step are cut accordingly.

    Found on an H200: fp16 sums of one subnormal times a large value with ordinary terms err by up to four times the
    bound without this.
    """
    sizes, subnormal = [], False
    for name in ("a", "b"):
        smallest = FORMATS[problem.operand(name).dtype].smallest_normal
        size = inputs[name].to(magnitude.device).double().abs()
        small = (size > 0) & (size < smallest)
        subnormal |= bool(small.any())
        sizes.append(torch.where(small, smallest, size))
    return sizes[0] @ sizes[1] if subnormal else magnitude


def _compound(unit: float, steps: int) -> float:
    return math.expm1(steps * math.log1p(unit))
