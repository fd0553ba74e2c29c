"""The reference of products of matrices: the fp64 value, the magnitude, and the sums of a tensor core.

Every operation is one product of two factors and an epilogue. A sum of products has its operands side by side, and so
have two products that the epilogue combines; a prologue and the scales of blocks are part of the factors. Nothing here
knows how a kernel computes. Products of integers whose sums stay below 2**53 are exact in fp64, so for exact fills the
value is the exact result;
:func:`freivalds` checks that claim in int64 arithmetic.
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
