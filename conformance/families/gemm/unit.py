"""The values that a tensor core allows a product of matrices."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import torch
from torch import Tensor

from conformance.families.gemm import reference
from conformance.families.gemm.problem import BLOCK_SCALINGS, Gemm
from conformance.families.unit_sums import Inputs, UnitAnswers, partial_sums, seen_format, sum_of
from conformance.numerics.sum_order import SumOrder, Unit
from conformance.numerics.tensor_core import Factors, fused_multiply_add
from conformance.problems import EVERY_FP8


def knows(problem: Gemm) -> bool:
    """True if there is a product and no erf or exp, whose bits on a device are not stated."""
    fused = problem.fusion.epilogue if problem.fusion is not None else ()
    return problem.has_product and "gelu" not in fused and problem.op != "dual_mm"


def products(problem: Gemm) -> int:
    """Returns how many products are summed; mm_plus_mm has the operands c and d of a second one."""
    pairs = 2 if any(operand.name == "c" for operand in problem.operands) else 1
    return math.prod((problem.M, problem.N, problem.K, pairs, problem.batch or 1))


def results(problem: Gemm, order: SumOrder, unit: Unit, inputs: Inputs) -> list[Tensor]:
    """See :class:`~conformance.families.unit_sums.UnitAnswers`."""
    if problem.batch is not None:
        matrices = [_of_matrix(problem, inputs, number) for number in range(problem.batch)]
        totals = [sum_of(unit, order, _runs(problem, one)) for one in matrices]
        return epilogue(problem, torch.stack(totals) if totals else torch.empty(problem.output.shape), inputs)
    runs = _runs(problem, inputs)
    if problem.scaling in BLOCK_SCALINGS:
        return _block_scaled(problem, order, unit, inputs, runs)
    values = epilogue(problem, sum_of(unit, order, runs), inputs)
    first = problem.fusion.epilogue[0] if problem.fusion is not None and problem.fusion.epilogue else ""
    if order.begins_at_addend and first in ("bias", "residual"):
        total = sum_of(unit, order, runs, inputs[first].float())
        values.append(_fused_steps(problem, total, inputs, 1))
    return values


def _of_matrix(problem: Gemm, inputs: Inputs, number: int) -> dict[str, Tensor]:
    return {name: inputs[name][number] for name in "ab"}


def _runs(problem: Gemm, inputs: Inputs) -> list[Factors]:
    """The products that follow each other, with A as the prologue leaves it and B converted to A's dtype."""
    second = problem.second_dtype if problem.dtype in EVERY_FP8 else problem.dtype
    forms = seen_format(problem, problem.dtype), seen_format(problem, second)
    first = reference.factors(problem, inputs)[0] if problem.fusion is not None else inputs["a"].double()
    runs = [Factors(first, inputs["b"].double(), *forms)]
    if problem.op == "mm_plus_mm":
        runs.append(Factors(inputs["c"].double(), inputs["d"].double(), *forms))
    return runs


def _block_scaled(problem: Gemm, order: SumOrder, unit: Unit, inputs: Inputs, runs: Sequence[Factors]) -> list[Tensor]:
    """Each partial sum times its two scales, added to the fp32 sum; the addition may be fused with the second scale."""
    scale_a, scale_b = reference.block_scales(problem, inputs["scale_a"], inputs["scale_b"])  # (M, K) and (K, N), fp32
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


def epilogue(problem: Gemm, total: Tensor, inputs: Inputs) -> list[Tensor]:
    """Scales, alpha, beta, bias and fused steps in fp32."""
    if problem.fusion is not None:
        return [_fused_steps(problem, total, inputs)]
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


def _fused_steps(problem: Gemm, total: Tensor, inputs: Inputs, first: int = 0) -> Tensor:
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


UNIT = UnitAnswers(results, products, knows)
