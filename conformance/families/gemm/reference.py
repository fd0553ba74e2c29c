"""The reference of products of matrices: the fp64 value and its error bound, the magnitude, a tensor core's sums.

Every operation is one product of two factors and an epilogue. A sum of products has its operands side by side, and so
have two products that the epilogue combines; a prologue and the scales of blocks are part of the factors. Nothing here
knows how a kernel computes. Products of integers whose sums stay below 2**53 are exact in fp64, so for exact fills the
value is the exact result; :func:`freivalds` checks that claim in int64 arithmetic.

The bounds are of the error that a contract allows, before the result is rounded to the output dtype. Let S = |A||B| and
u = 2**-24. One step of a tensor core aligns T products and the running sum to F fraction bits and keeps b bits of the
result. It loses at most (T+1) * 2**-F times the largest term plus 2**-b of the result (MMA-Sim, arXiv 2511.10909;
Khattak and Mikaitis, arXiv 2512.07004; form of the bound: Blanchard, Higham, Lopez, Mary and Pranesh 2020). Every term
is at most the partial S, so no assumption about the order of the sums is needed.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import torch
from torch import Tensor

from conformance.families.gemm.problem import BLOCK_SCALINGS, SCALE_BLOCK, Gemm
from conformance.families.products import Inputs, UnitAnswers, partial_sums, seen_format, sum_of
from conformance.numerics.contract import Accumulator, Contract
from conformance.numerics.rounding import FORMATS
from conformance.numerics.sum_order import SumOrder, Unit
from conformance.numerics.tensor_core import Factors, fused_multiply_add
from conformance.problems import DTYPES, EVERY_FP8, Device, check_inputs

#: Changes an operand (its name, its fp64 values as the product sees them) before it becomes part of a factor.
Change = Callable[[str, Tensor], Tensor]


def factors(
    problem: Gemm, inputs: Mapping[str, Tensor], *, device: Device = None, change: Change | None = None
) -> tuple[Tensor, Tensor]:
    """Two fp64 matrices, or batches of them, whose product is the result before the epilogue.

    A with its prologue, next to C for a sum of two products; B above D, or for a dual product next to it; both times
    the scales of their blocks.
    """
    check_inputs(problem, inputs)
    target = inputs["a"].device if device is None else torch.device(device)
    on_device = {name: tensor.to(target) for name, tensor in inputs.items()}
    operands: dict[str, Tensor] = {}
    for name in {"mm_plus_mm": "abcd", "dual_mm": "abd"}.get(problem.op, "ab"):
        seen = _prologue(problem, on_device) if name == "a" and problem.fusion is not None else on_device[name].double()
        operands[name] = seen if change is None else change(name, seen)
    if problem.op == "mm_plus_mm":
        return torch.cat([operands["a"], operands["c"]], 1), torch.cat([operands["b"], operands["d"]], 0)
    if problem.op == "dual_mm":
        return operands["a"], torch.cat([operands["b"], operands["d"]], 1)
    if problem.scaling in BLOCK_SCALINGS:
        scale_a, scale_b = block_scales(problem, on_device["scale_a"].double(), on_device["scale_b"].double())
        if change is not None:
            scale_a, scale_b = change("scale_a", scale_a), change("scale_b", scale_b)
        return operands["a"] * scale_a, operands["b"] * scale_b
    return operands["a"], operands["b"]


def block_scales(problem: Gemm, scale_a: Tensor, scale_b: Tensor) -> tuple[Tensor, Tensor]:
    """Scales of blocks, one per element of A (M, K) and of B (K, N)."""
    assert problem.scaling is not None
    kind_a, kind_b = problem.scaling.split("/")
    for axis, extent, whole in ((0, problem.M, kind_a == "128x128"), (1, problem.K, True)):
        if whole:
            scale_a = scale_a.repeat_interleave(SCALE_BLOCK, axis).narrow(axis, 0, extent)
    for axis, extent, whole in ((0, problem.K, True), (1, problem.N, kind_b == "128x128")):
        if whole:
            scale_b = scale_b.repeat_interleave(SCALE_BLOCK, axis).narrow(axis, 0, extent)
    return scale_a, scale_b


def product_shape(problem: Gemm) -> tuple[int, ...]:
    """Returns the shape of :func:`product`: that of the output, with twice its columns for a dual product."""
    shape = problem.output.shape
    return (*shape[:-1], 2 * shape[-1]) if problem.op == "dual_mm" else shape


def product(problem: Gemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """The product in fp64, in the shape of :func:`product_shape`; with the scales of blocks, which are part of the sum.

    Zeros where the problem ignores the product (K == 0 or alpha == 0).
    """
    return _multiplied(problem, *factors(problem, inputs, device=device))


def magnitude(problem: Gemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """``|A| @ |B|`` in fp64, in the shape of :func:`product_shape`, of the factors of :func:`product`, without the
    epilogue; zeros where the problem ignores the product."""
    return _multiplied(problem, *factors(problem, inputs, device=device, change=lambda name, values: values.abs()))


def _multiplied(problem: Gemm, a: Tensor, b: Tensor) -> Tensor:
    if not problem.has_product:
        return torch.zeros(product_shape(problem), dtype=torch.float64, device=a.device)
    return (a @ b).add_(0.0)  # a sum that starts from +0 is never -0


def _prologue(problem: Gemm, inputs: Mapping[str, Tensor]) -> Tensor:
    """Returns a as the product sees it, in fp64. One conversion from fp32 rounds once, to nearest even."""
    assert problem.fusion is not None
    a, kind = inputs["a"], problem.fusion.prologue
    if kind == "gather":
        return a[inputs["rows"].long()].double()
    if kind == "scatter":  # which row of A each row of the result comes from
        return a[torch.argsort(inputs["rows"].long())].double()
    if kind == "scale-k":
        return (a.float() * inputs["k_scale"]).to(DTYPES[problem.dtype]).double()
    if kind == "scale":
        return (a.float() * inputs["row_scale"][:, None]).to(DTYPES[problem.dtype]).double()
    if kind == "cast":
        if a.dtype == torch.float64:
            raise ValueError(f"{problem.id}: a cast from fp64 has no reference: store A in fp32 or narrower")
        return a.float().to(DTYPES[problem.dtype]).double()
    return a.double()


def epilogue(problem: Gemm, inputs: Mapping[str, Tensor], raw: Tensor) -> Tensor:
    """Returns the problem's epilogue in fp64 applied to the raw product, which has the shape of
    :func:`product_shape`."""
    if problem.op == "dual_mm":
        gate, factor = raw.chunk(2, -1)
        return silu(gate) * factor
    if problem.fusion is not None:
        return fused_steps(problem, inputs, raw)[-1]
    result = raw
    if problem.scaling in ("tensor", "row"):
        result = result * inputs["scale_a"].to(raw.device).double() * inputs["scale_b"].to(raw.device).double()
    elif problem.has_product and problem.alpha != 1.0:
        result = result * problem.alpha
    if problem.reads_bias:
        result = result + problem.beta * inputs["bias"].to(raw.device).double()
    return result


def silu(values: Tensor) -> Tensor:
    """x / (1 + exp(-x)) of each element."""
    return values / (1 + torch.exp(-values))


def fused_steps(problem: Gemm, inputs: Mapping[str, Tensor], raw: Tensor) -> list[Tensor]:
    """``raw`` and the value after each step of a fused epilogue, in its order. relu lets NaN through, as torch's."""
    assert problem.fusion is not None
    steps = [raw]
    for name in problem.fusion.epilogue:
        value = steps[-1]
        if name in ("bias", "residual"):
            value = value + inputs[name].to(raw.device).double()
        elif name == "relu":
            value = value.relu()
        elif name == "gelu":
            # the complement keeps its digits where the result is small
            value = 0.5 * value * torch.erfc(value * -math.sqrt(0.5))
        elif name == "dropout":
            value = torch.where(inputs["mask"].to(raw.device) != 0, 2 * value, 0.0)
        steps.append(value)
    return steps


def value(problem: Gemm, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """The product with its epilogue in fp64; arguments and errors are those of :func:`conformance.problems.value`.

    A bias that beta == 0 ignores and a product that alpha == 0 ignores contribute nothing, NaN included (as in
    ``torch.addmm``).
    """
    return epilogue(problem, inputs, product(problem, inputs, device=device))


def freivalds(a_int: Tensor, b_int: Tensor, c_int: Tensor, seed: int, rounds: int = 2) -> bool:
    """True if ``C x == A (B x)`` in int64 for ``rounds`` random integer vectors x (Freivalds 1979).

    Matrices or batches of them. Arithmetic wraps modulo 2**64 on both sides alike. A wrong C passes one round with
    probability at most 2**-16.
    """
    for array in (a_int, b_int, c_int):
        if array.dtype != torch.int64:
            raise TypeError(f"freivalds got a tensor of {array.dtype}: it needs int64, so that no sum is rounded")
    draws = np.random.PCG64(seed).random_raw(rounds * b_int.shape[-1]) >> np.uint64(48)
    vectors = torch.from_numpy(draws.astype(np.int64)).reshape(rounds, b_int.shape[-1]).to(a_int.device)
    # elementwise products and sums: integer matrix products do not exist on every device
    return all(torch.equal((c_int * x).sum(-1), (a_int * (b_int * x).sum(-1).unsqueeze(-2)).sum(-1)) for x in vectors)


def unit_knows(problem: Gemm) -> bool:
    """True if there is a product and no erf or exp, whose bits on a device are not stated."""
    fused = problem.fusion.epilogue if problem.fusion is not None else ()
    return problem.has_product and "gelu" not in fused and problem.op != "dual_mm"


def product_count(problem: Gemm) -> int:
    """Returns how many products are summed; mm_plus_mm has the operands c and d of a second one."""
    pairs = 2 if any(operand.name == "c" for operand in problem.operands) else 1
    return math.prod((problem.M, problem.N, problem.K, pairs, problem.batch or 1))


def unit_results(problem: Gemm, order: SumOrder, unit: Unit, inputs: Inputs) -> list[Tensor]:
    """See :class:`~conformance.families.products.UnitAnswers`."""
    if problem.batch is not None:
        matrices = [{name: inputs[name][number] for name in "ab"} for number in range(problem.batch)]
        totals = [sum_of(unit, order, _runs(problem, one)) for one in matrices]
        return unit_epilogue(problem, torch.stack(totals) if totals else torch.empty(problem.output.shape), inputs)
    runs = _runs(problem, inputs)
    if problem.scaling in BLOCK_SCALINGS:
        return _block_scaled(problem, order, unit, inputs, runs)
    values = unit_epilogue(problem, sum_of(unit, order, runs), inputs)
    first = problem.fusion.epilogue[0] if problem.fusion is not None and problem.fusion.epilogue else ""
    if order.begins_at_addend and first in ("bias", "residual"):
        total = sum_of(unit, order, runs, inputs[first].float())
        values.append(_unit_fused_steps(problem, total, inputs, 1))
    return values


def _runs(problem: Gemm, inputs: Inputs) -> list[Factors]:
    """The products that follow each other, with A as the prologue leaves it and B converted to A's dtype."""
    second = problem.second_dtype if problem.dtype in EVERY_FP8 else problem.dtype
    forms = seen_format(problem, problem.dtype), seen_format(problem, second)
    first = factors(problem, inputs)[0] if problem.fusion is not None else inputs["a"].double()
    runs = [Factors(first, inputs["b"].double(), *forms)]
    if problem.op == "mm_plus_mm":
        runs.append(Factors(inputs["c"].double(), inputs["d"].double(), *forms))
    return runs


def _block_scaled(problem: Gemm, order: SumOrder, unit: Unit, inputs: Inputs, runs: Sequence[Factors]) -> list[Tensor]:
    """Each partial sum times its two scales, added to the fp32 sum; the addition may be fused with the second scale."""
    scale_a, scale_b = block_scales(problem, inputs["scale_a"], inputs["scale_b"])  # (M, K) and (K, N), fp32
    apart: Tensor | None = None
    fused: Tensor | None = None
    assert order.partial is not None
    starts = itertools.count(0, order.partial)
    for first, partial in zip(starts, partial_sums(unit, order, runs), strict=False):
        scaled, second = partial * scale_a[:, first : first + 1], scale_b[first : first + 1]
        apart = scaled * second if apart is None else apart + scaled * second
        fused = scaled * second if fused is None else fused_multiply_add(scaled, second, fused)
    assert apart is not None
    assert fused is not None
    bias = inputs["bias"].float() if problem.reads_bias else None
    return [total if bias is None else total + bias for total in (apart, fused)]


def unit_epilogue(problem: Gemm, total: Tensor, inputs: Inputs) -> list[Tensor]:
    """Scales, alpha, beta, bias and fused steps in fp32."""
    if problem.fusion is not None:
        return [_unit_fused_steps(problem, total, inputs)]
    bias = inputs["bias"].float() if problem.reads_bias else None
    if problem.scaling is not None:
        scaled, second = total * inputs["scale_a"], inputs["scale_b"]
        if bias is None:
            return [scaled * second]
        return [scaled * second + bias, fused_multiply_add(scaled, second, bias)]
    factors = problem.alpha, problem.beta
    alpha, beta = (torch.tensor(factor, dtype=torch.float32, device=total.device) for factor in factors)
    if bias is None:
        return [total * alpha]
    addend = bias * beta
    if problem.alpha == problem.beta == 1:
        return [total + addend]
    return [
        total * alpha + addend,
        fused_multiply_add(total, alpha, addend),
        fused_multiply_add(bias, beta, total * alpha),
    ]


def _unit_fused_steps(problem: Gemm, total: Tensor, inputs: Inputs, first: int = 0) -> Tensor:
    """The steps of a fused epilogue from number ``first`` on. Doubling is exact, so no fusion changes a bit."""
    assert problem.fusion is not None
    for step in problem.fusion.epilogue[first:]:
        if step in ("bias", "residual"):
            total = total + inputs[step].float()
        elif step == "relu":
            total = torch.where(total < 0, 0.0, total)
        else:
            assert step == "dropout", step
            total = torch.where(inputs["mask"] != 0, total * 2, 0.0)
    return total


UNIT = UnitAnswers(unit_results, product_count, unit_knows)


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
    """Returns the bound of :func:`error_bound` for a product that every accumulator of the contract computes exactly:
    the roundings of the epilogue alone. The arguments are the same."""
    return _with_epilogue(problem, contract, value, inputs, value.new_zeros(product_shape(problem)))


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
    steps = fused_steps(problem, inputs, product(problem, inputs, device=device))
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
    gate, factor = product(problem, inputs, device=device).chunk(2, -1)
    of_gate, of_factor = error.chunk(2, -1)
    size, curved = factor.abs() + of_factor, silu(gate).abs()
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

    a, b = factors(problem, inputs, device=magnitude.device, change=lifted)
    return a @ b if subnormal else magnitude


def _compound(unit: float, steps: int) -> float:
    return math.expm1(steps * math.log1p(unit))
