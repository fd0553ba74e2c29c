"""Rigorous bounds of the error that a contract allows, before the result is rounded to the output dtype.

Let S = |A||B| and u = 2**-24. One step of a tensor core aligns T products and the running sum to F fraction bits and
keeps b bits of the result. It loses at most (T+1) * 2**-F times the largest term plus 2**-b of the result (MMA-Sim,
arXiv 2511.10909; Khattak and Mikaitis, arXiv 2512.07004; form of the bound: Blanchard, Higham, Lopez, Mary and Pranesh
2020). Every term is at most the partial S, so no assumption about the order of the sums is needed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.families.gemm import reference as gemm
from conformance.families.gemm.problem import BLOCK_SCALINGS, SCALE_BLOCK, Gemm
from conformance.numerics.contract import Accumulator, Contract
from conformance.numerics.rounding import FORMATS

#: Unit roundoff of the fp32 arithmetic of epilogues.
U = 2.0**-24
#: The same of tf32, whose 11 bits some units round towards zero.
U_TF32 = 2.0**-10
#: Unit roundoff of the reference's own arithmetic.
U64 = 2.0**-53
#: Largest slope of gelu, rounded up (at sqrt(2): erf(1) / 2 + 1 / 2 + exp(-1) / sqrt(pi) = 1.1289...).
GELU_SLOPE = 1.13
#: Error of an fp32 gelu(x) = x * (1 + erf(x / sqrt(2))) / 2 over |x|. The sum errs by eight units of 2**-24 in erf
#: (CUDA states two) and by one by its own rounding. The two roundings of its argument add one (their slope z * erf'(z)
#: is below 1/2), and half of that counts; the products' roundings make up the rest.
GELU_ERROR = 8 * U
#: Largest slope of silu, rounded up (at 2.3994: 1.0998...).
SILU_SLOPE = 1.1
#: Error of an fp32 silu(x) = x / (1 + exp(-x)) over |x|, in units of 2**-24. The quotient errs by up to five (2.5 units
#: in the last place on AMD, two by CUDA) and the sum by one. exp errs by four (CUDA states 2**-22) and, because its
#: argument is rounded, by 2 |x|. The latter counts times exp(-x) / (1 + exp(-x))**2, which is at most 1/4 and decays:
#: less than two.
SILU_ERROR = 8 * U
#: And its error where exp overflows, or the quotient of a large number is 0: silu itself is below this there.
SILU_TINY = 2.0**-118
#: A block-wise scaled sum adds a partial sum for each so many k at least.
SMALLEST_PARTIAL = 16
#: The fewest products that one step of a known matrix unit adds (Volta's, and Ampere's of tf32: MMA-Sim). A unit may
#: take so small steps where its contract names larger ones: each step cuts the running sum once more.
SMALLEST_STEP = 4


def growth(accumulator: Accumulator, k: int, *, fused: bool = False) -> float:
    """g such that a sum of ``k`` products errs by at most g * S. ``fused``: an epilogue's operation may be fused in.

    Narrow accumulators (fewer than 23 result bits) count whole chunks. Wide ones count single k, and eight more for
    ragged chunks, where one term bears the cost of a whole step. Both allow steps of :data:`SMALLEST_STEP` products: a
    step of t loses (t+1) * 2**-F + 2**-b, which for each product is the more, the smaller t is.
    """
    if k == 0:
        return 0.0
    if accumulator.kind == "fma":
        return _compound(2.0 ** -(accumulator.result_bits + 1), k + (4 if fused else 2))
    span = min(accumulator.promote or k, k)
    promotions = math.ceil(k / span)
    b, t = accumulator.result_bits, min(SMALLEST_STEP, accumulator.chunk)
    step = (t + 1) * 2.0**-accumulator.alignment_bits + 2.0**-b
    if b < 23:
        narrow = math.ceil(span / accumulator.chunk) * math.ceil(accumulator.chunk / t) * math.log1p(step)
        return math.expm1(narrow + (math.ceil(k / accumulator.chunk) + promotions) * math.log1p(U))
    c = max(2.0**-b, step / t)
    if accumulator.assumed:
        c = max(c, 2.0 ** (1 - b))
    return _compound(c, k + 8 + (promotions if accumulator.promote else 0))


def error_bound(
    problem: Gemm, contract: Contract, value: Tensor, magnitude: Tensor, inputs: Mapping[str, Tensor]
) -> Tensor:
    """Bound, in fp64 and the output's shape, of |computed - value| before the output rounding.

    ``value`` and ``magnitude`` are those of ``conformance.reference`` (fp64, on one device); a dual product has two
    magnitudes for each value. Includes the roundings of the epilogue (the constants alpha and beta themselves may be
    rounded to fp32) and the reference's own error. Includes underflow: the accumulator's smallest subnormal per
    operation, or, where the contract flushes subnormals, its smallest normal and that of the output. Rounded up, so
    that fp64 evaluation keeps it a bound. Sums of integers have no error.
    """
    if contract.accumulator.kind == "int":
        return torch.zeros_like(value)
    error = _product_error(problem, contract, magnitude, inputs, _tiny(contract))
    return _with_epilogue(problem, contract, value, inputs, error)


def row_sums(contract: Contract, a: Tensor) -> tuple[Tensor, Tensor]:
    """The sum of each row of ``a`` (rows, k) in fp64, and the bound of the error of an fp32 sum in any order; both are
    on its device. The bound is 0 for a sum that is not finite."""
    values = a.double()
    total, size, k = values.sum(1).add_(0.0), values.abs().sum(1), values.shape[1]
    error = size * (_compound(U, k) + (k + 8) * U64) + (k + 4) * _tiny(contract)
    return total, torch.where(total.isfinite(), error, 0.0)


def epilogue_bound(problem: Gemm, contract: Contract, value: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """The same where the product is exact, as any accumulator of the contract computes it: the roundings of the
    epilogue alone. Arguments are those of :func:`error_bound`."""
    return _with_epilogue(problem, contract, value, inputs, value.new_zeros(gemm.product_shape(problem)))


def _tiny(contract: Contract) -> float:
    accumulator = contract.accumulator
    smallest = FORMATS[accumulator.dtype].smallest_normal
    return smallest if contract.flushes_subnormals else smallest * 2.0**-accumulator.result_bits


def _with_epilogue(
    problem: Gemm, contract: Contract, value: Tensor, inputs: Mapping[str, Tensor], error: Tensor
) -> Tensor:
    """``error`` of the product, carried through the epilogue, with underflow and the output's subnormals."""
    if problem.op == "dual_mm":
        error = _dual_error(problem, inputs, error, value.device)
    elif problem.fusion is not None:
        error = _fused_error(problem, inputs, error, value.device)
    else:
        error = _epilogue_error(problem, inputs, value, error)
    error = error + 4 * _tiny(contract)
    if contract.flushes_subnormals:
        error = error + FORMATS[contract.out_dtype].smallest_normal
    return error * (1 + 2.0**-20)


def _product_error(
    problem: Gemm, contract: Contract, magnitude: Tensor, inputs: Mapping[str, Tensor], tiny: float
) -> Tensor:
    """Error of the product before the epilogue; the sum of scaled partial sums is part of it."""
    k = problem.K * (2 if problem.op == "mm_plus_mm" else 1) if problem.has_product else 0
    if contract.accumulator.kind == "tensor-core" and k:
        magnitude = _aligned_magnitude(problem, contract, magnitude, inputs)
    if problem.scaling in BLOCK_SCALINGS and k:
        # Each block's sum errs by its growth. Its scales round twice, and each addition of a scaled partial sum once.
        # Where the unit sees operands with their scales in tf32, both are rounded to it, and all blocks are one sum.
        tf32 = contract.operand == "tf32"
        within = math.log1p(growth(contract.accumulator, k if tf32 else min(k, SCALE_BLOCK), fused=True))
        outside = (math.ceil(k / SMALLEST_PARTIAL) + 4) * math.log1p(U) + 2 * tf32 * math.log1p(U_TF32)
        scales = [float(inputs[name].double().abs().max()) for name in ("scale_a", "scale_b")]
        underflow = (2 * k + 8) * tiny * max(1.0, math.prod(scales)) * max(1.0, *scales)
        return magnitude * (math.expm1(within + outside) + (k + 12) * U64) + underflow
    terms, dropped = k, 0.0
    if (split := contract.split) is not None and k:
        # parts are rounded up by less than 2**-7; a compiler may sum each block of k by itself, and add that
        magnitude, dropped = magnitude * (1 + 2.0**-6), split.dropped
        if contract.accumulator.kind == "tensor-core":
            terms = split.products * k + math.ceil(k / SMALLEST_PARTIAL)
    relative = growth(contract.accumulator, terms, fused=problem.op != "mm") + dropped + (k + 8) * U64
    return magnitude * relative + (terms + 4) * tiny


def _epilogue_error(problem: Gemm, inputs: Mapping[str, Tensor], value: Tensor, error: Tensor) -> Tensor:
    """``error`` of the product, carried through scales, alpha, beta and bias."""
    bias = torch.zeros((), dtype=torch.float64, device=value.device)
    if problem.reads_bias:
        bias = (problem.beta * inputs["bias"].to(value.device).double()).abs()
    size = value.abs() + bias  # at least the size of the product after its scaling
    if problem.scaling in ("tensor", "row"):
        scale = (inputs["scale_a"].to(value.device).double() * inputs["scale_b"].to(value.device).double()).abs()
        error = error * scale
        error = error + 3 * U * (size + error)
    elif problem.op in ("addmm", "baddbmm"):
        error = error * abs(problem.alpha)
        error = error + 2 * U * (size + error) + 2 * U * bias
    if problem.reads_bias:
        error = error + 2 * U * (value.abs() + error)
    return error + 8 * U64 * size


def _fused_error(problem: Gemm, inputs: Mapping[str, Tensor], error: Tensor, device: torch.device) -> Tensor:
    """``error`` of the product, carried through the steps of a fused epilogue: their slope times it, and their own."""
    assert problem.fusion is not None
    steps = gemm.fused_steps(problem, inputs, gemm.product(problem, inputs, device=device))
    for name, before, after in zip(problem.fusion.epilogue, steps, steps[1:], strict=False):
        if name in ("bias", "residual"):
            error = error + 2 * U * (after.abs() + error) + 8 * U64 * (before.abs() + after.abs())
        elif name == "gelu":
            error = GELU_SLOPE * error + (GELU_ERROR + 16 * U64) * (before.abs() + error)
        elif name == "dropout":
            error = torch.where(inputs["mask"].to(device) != 0, 2 * error, 0.0)
        # what relu and dropout make of an infinity or NaN is 0 without any error
        error = torch.where(before.isfinite() | ~after.isfinite(), error, 0.0)
    return error


def _dual_error(problem: Gemm, inputs: Mapping[str, Tensor], error: Tensor, device: torch.device) -> Tensor:
    """``error`` of both products, carried through silu of the first and the multiplication with the second."""
    gate, factor = gemm.product(problem, inputs, device=device).chunk(2, -1)
    of_gate, of_factor = error.chunk(2, -1)
    size, curved = factor.abs() + of_factor, gemm.silu(gate).abs()
    of_silu = SILU_SLOPE * of_gate + (SILU_ERROR + 16 * U64) * (gate.abs() + of_gate) + SILU_TINY
    return of_silu * size + curved * of_factor + (2 * U + 8 * U64) * (curved + of_silu) * size


def _aligned_magnitude(problem: Gemm, contract: Contract, magnitude: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """Returns |A||B| as a tensor core aligns it. The unit does not normalise a subnormal operand. So a product with one
    has the exponent that it would have with the smallest normal. The other terms of its step are cut accordingly.

    This was found on an H200. There fp16 sums of one subnormal times a large value with ordinary terms err by up to
    four times the bound without this. The last part of an operand that is split is subnormal long before the operand
    is.
    """
    subnormal = False

    def lifted(name: str, values: Tensor) -> Tensor:
        nonlocal subnormal
        size = values.abs()
        if name not in "abcd":
            return size
        # a converted operand is in the problem's dtype when the unit sees it
        seen = problem.dtype if name in "ac" or problem.converts_b else problem.second_dtype
        smallest = FORMATS[seen].smallest_normal * (2.0**24 if contract.split is not None else 1.0)
        small = (size > 0) & (size < smallest)
        subnormal |= bool(small.any())
        return torch.where(small, smallest, size)

    a, b = gemm.factors(problem, inputs, device=magnitude.device, change=lifted)
    return a @ b if subnormal else magnitude


def _compound(unit: float, steps: int) -> float:
    return math.expm1(steps * math.log1p(unit))
