"""Rigorous bounds of the errors that a contract allows attention, before its results are rounded to their dtypes.

The model of the forward pass:

* The unit accumulates scores as the contract says. Everything between the two products is fp32, in base 2 or e.
* The softmax runs block by block, of at least BLOCK keys each, with a running maximum. The order of the blocks is free,
  and so is the number of splits, which are merged at the end.
* Probabilities are summed in fp32 without rounding. For the second product they are rounded to
  ``contract.intermediate``. When the maximum grows, the accumulator of that product is rescaled. The division by the
  sum comes last, or where ``contract.divides`` is "weights" before that rounding.

The model of the backward pass:

* Probabilities are recomputed from the given lse, and delta is summed in fp32 from the given out.
* Probabilities and gradients of scores are rounded to ``contract.intermediate``.
* The scale is applied to scores and to fp32 sums.

The bound of the softmax. Let a_j be the logarithms of the relative errors of the weights of a row, P their exact shares
and O the exact output. The output of the perturbed weights is
``O + sum_j P_j (exp(a_j) - 1) (v_j - O) / sum_j P_j exp(a_j)``, so an error that all keys share cancels. With W = P *
expm1(|a|) and t = sum W, the inequality of Cauchy and Schwarz bounds the difference by
``sqrt(t * sum_j W_j (v_j - O)**2) / (1 - t)``. Blanchard, Higham and Higham (2021) show that a softmax with a shift is
this stable. The relative errors of fp64 are 2**-29 of those of fp32; rounding the bounds up covers them.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.families.attention.problem import Attention
from conformance.families.attention.reference import BackwardValues, ForwardValues, Scores, gathered
from conformance.families.gemm.reference import U, growth
from conformance.numerics.contract import Contract
from conformance.numerics.rounding import FORMATS
from conformance.problems import EVERY_FP8

#: The fewest keys between two updates of the running maximum.
BLOCK = 16
#: Relative error of exp2 (PTX ISA: 2**-22 for ex2.approx.ftz.f32; other units are closer). Error of log2
#: (lg2.approx.ftz.f32, likewise): absolute for results below 1, relative above.
EXP2 = LOG2 = 2.0**-22
#: Relative error of a division (div.full.f32: 2 ulp), also where a kernel multiplies by a reciprocal. It leaves room
#: for the product with a scale of v.
DIVISION = 6 * U
#: Absolute error of a tanh that is computed by exp2, a sum, a division and a difference, each in fp32. The hardware's
#: tanh.approx (2**-11) is not allowed.
TANH = 16 * U
#: Relative error of the conversion to base 2: the scale and log2(e) are each rounded to fp32 and multiplied. It counts
#: twice in a score, which leaves room for products with scales of q and k.
CONVERSION = 6 * U
#: Rounds a bound up by more than its evaluation in fp64 loses.
UP = 1 + 2.0**-20
#: fp32 results below this may become zero.
TINY = 2.0**-126


@dataclass(frozen=True)
class Cast:
    """The rounding of an intermediate operand: with the relative error ``unit`` and the absolute error ``tiny``.

    A tensor core aligns subnormal values as if they had the size ``aligned``; 0 for other units.
    """

    unit: float
    tiny: float
    aligned: float


def cast(contract: Contract) -> Cast:
    """Returns the rounding of probabilities and of gradients of scores: to ``contract.intermediate``, else to the
    operands'.

    A unit that converts to tf32 by itself may truncate, so tf32 counts one bit less.
    """
    name = contract.intermediate or contract.operand
    name = "fp32" if name == "exact" else name
    form = FORMATS[name]
    unit = 2.0 ** (1 - form.significand if name == "tf32" else -form.significand)
    tiny = form.smallest_normal if contract.flushes_subnormals else form.smallest_subnormal
    aligned = form.smallest_normal if contract.accumulator.kind == "tensor-core" else 0.0
    return Cast(unit, max(tiny, TINY), aligned)


def forward_error(
    problem: Attention,
    contract: Contract,
    exact: ForwardValues,
    *,
    exact_products: bool = False,
    extreme: Tensor | None = None,
    unit: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Bounds of |out' - out| (batch, heads, queries, value_dim) and |lse' - lse| (batch, heads, queries), fp64.

    ``exact_products``: the sums of q k^T are exact, whatever their order, so that scores have the errors of what
    follows only. ``extreme``: the rows, bool (batch, heads, queries), whose scores are too large for a bound of the
    softmax; whatever their weights are, their outputs are averages of the values that they see. ``unit``: the relative
    error of rounding these weights, where it is less than the format's.

    Rows that see no key have the bound 0. Raises ValueError if scores are so large that the bound would say nothing.
    """
    scores, accumulator, rounding = exact.scores, contract.accumulator, cast(contract)
    rounding = rounding if unit is None else dataclasses.replace(rounding, unit=min(unit, rounding.unit))
    # a key's weight is rescaled by later blocks of its split and by the merge, at most once per block and twice more
    steps = math.ceil(problem.keys / BLOCK) + 2
    sums, rescaled = growth(accumulator, problem.keys), math.expm1(2 * steps * math.log1p(U))
    logs = score_error(problem, contract, scores, exact_products=exact_products)
    logs = logs + 6 * U * (exact.top.unsqueeze(-1) - scores.score).clamp(min=0)
    if extreme is not None:
        largest = torch.where(scores.visible, logs, 0.0).amax(-1)
        logs = torch.where(extreme.unsqueeze(-1), 0.0, logs)
    relative = _expm1(problem, logs + (steps + 1) * EXP2, scores)

    share = exact.probabilities
    loose = share * relative
    t = loose.sum(-1, keepdim=True)
    if bool((t > 0.5).any()):
        raise ValueError(f"{problem.id}: scores err by up to {float(t.max()):g}: use smaller q or k")
    size = _aligned(problem, contract, scores.v, scores.v_scale)
    moved, squared = (loose @ torch.cat([scores.v, scores.v**2], -1)).chunk(2, -1)
    spread = squared - 2 * exact.out * moved + exact.out**2 * t
    spread = spread.clamp(min=0) + (squared + exact.out**2 * t) * (problem.keys * 2.0**-50)
    error = torch.sqrt(t * spread) / (1 - t)

    divided = DIVISION if contract.divides == "weights" else 0.0
    second = (1 + rounding.unit) * (1 + divided) * (1 + sums) * (1 + rescaled) - 1
    lost = rounding.tiny * (1 + sums) + rounding.aligned * sums
    count = (scores.visible & exact.live.unsqueeze(-1)).sum(-1, keepdim=True)
    small = share.amax(-1, keepdim=True) * count * size.amax(-2, keepdim=True) * lost
    if problem.dtype in EVERY_FP8:  # whose subnormal weights are so large that this would say little
        small = _small_weights(share, rounding, sums) @ size
    error = error + (second * (1 + float(relative.max())) * (share @ size) + small) / (1 - t)
    denominator = math.expm1((problem.keys + 2 * steps) * math.log1p(U))
    division = (1 + DIVISION) / (1 - denominator) - 1
    error = error + division * (exact.out.abs() + error)
    if extreme is not None:
        rounded = 2 * (second + count * lost + division) * size.amax(-2, keepdim=True)  # twice: products of errors
        error = torch.where(extreme.unsqueeze(-1), rounded, error)
        error[extreme] += _spread(exact, extreme)
    error = torch.where(exact.live.unsqueeze(-1), error + (problem.keys + 4) * TINY, 0.0)

    log_total = torch.log(exact.total)
    lse = (t / (1 - t)).squeeze(-1) + denominator / (1 - denominator)
    if extreme is not None:
        lse = torch.where(extreme, lse + largest, lse)
    lse = torch.where(exact.live, lse + lse_error(exact.top, log_total), 0.0)
    if contract.flushes_subnormals:
        error = error + FORMATS[contract.out_dtype].smallest_normal
    return error * UP, lse * UP


def _small_weights(share: Tensor, rounding: Cast, sums: float) -> Tensor:
    """Returns the most that rounding takes from the subnormal ones of these shares, and sums of their products.

    Against the running maximum a weight loses ``tiny``, and no more than itself. One of less than half of ``tiny`` is
    0, and adds no error to a sum; so its error is within twice its share, times what is aligned instead of ``tiny``."""
    largest = share.amax(-1, keepdim=True)
    lost = torch.minimum(share, largest * rounding.tiny) * (1 + sums)
    return lost + sums * torch.minimum(largest * rounding.aligned, 2 * share * rounding.aligned / rounding.tiny)


def _spread(exact: ForwardValues, rows: Tensor) -> Tensor:
    """Returns the largest distance of the values that each of the chosen ``rows`` sees from its output: (rows,
    value_dim)."""
    batch, head, _ = rows.nonzero(as_tuple=True)
    seen = exact.scores.visible.expand(exact.weights.shape)[rows].unsqueeze(-1)
    v, out = exact.scores.v[batch, head], exact.out[rows].unsqueeze(1)
    return torch.where(seen, (v - out).abs(), 0.0).amax(1)


def backward_error(
    problem: Attention, contract: Contract, exact: BackwardValues, *, exact_products: bool = False
) -> tuple[Tensor, Tensor, Tensor]:
    """Bounds of the errors of grad_q, grad_k and grad_v, in their shapes, fp64. ``exact_products`` and what is raised
    are those of :func:`forward_error`."""
    scores, accumulator, rounding = exact.scores, contract.accumulator, cast(contract)
    shared = problem.heads // problem.key_heads * (problem.batch // problem.key_batch)
    over_keys = growth(accumulator, problem.keys)
    over_queries = growth(accumulator, shared * (problem.queries + 8))  # every head may end in a ragged chunk
    seen = (scores.visible & exact.lse.isfinite().unsqueeze(-1)).double()
    shift = torch.where(exact.lse.isfinite(), exact.lse, 0.0).abs().unsqueeze(-1)
    scored = score_error(problem, contract, scores, exact_products=exact_products)
    relative = _expm1(problem, scored + CONVERSION * (scores.score.abs() + shift) + EXP2, scores)

    share = exact.probabilities * (1 + relative)
    grad_out, v = (_aligned(problem, contract, t) for t in (exact.grad_out, scores.v))
    wrong = exact.probabilities * relative + share * rounding.unit + rounding.tiny * seen
    used = share * (1 + rounding.unit) + max(rounding.aligned, rounding.tiny) * seen
    grad_v = gathered(problem, (wrong + over_queries * used).transpose(-1, -2) @ grad_out)

    size = (exact.grad_probabilities - exact.delta.unsqueeze(-1)).abs()
    delta = math.expm1((problem.values_dim + 2) * math.log1p(U)) * (exact.out * exact.grad_out).abs().sum(-1)
    loose = growth(accumulator, problem.values_dim) * (grad_out @ v.transpose(-1, -2)) + delta.unsqueeze(-1)
    error = exact.probabilities * relative * size + share * (loose + 2 * U * (size + loose))
    error = error + TINY * seen * (1 + size + loose)
    if scores.slope is not None:
        bent = torch.sqrt(1 - scores.slope).clamp(max=1)
        linear = _linear_error(problem, contract, scores, exact_products=exact_products)
        bend = linear / problem.score.cap + TANH + CONVERSION
        bend = 2 * bent * bend + bend**2 + 3 * U
        error = error * (scores.slope + bend) + exact.grad_scores.abs() * (bend + U)
    error = error + rounding.unit * (exact.grad_scaled.abs() + error) + rounding.tiny * seen
    used = exact.grad_scaled.abs() + error + rounding.aligned * seen
    q, k = (_aligned(problem, contract, t) for t in (scores.q, scores.k))
    scale = abs(problem.softmax_scale)
    grad_q = scale * ((error + over_keys * used) @ k)
    grad_k = scale * gathered(problem, (error + over_queries * used).transpose(-1, -2) @ q)
    grad_q = grad_q + CONVERSION * (exact.grad_q.abs() + grad_q)
    grad_k = grad_k + CONVERSION * (exact.grad_k.abs() + grad_k)
    flushed = FORMATS[contract.out_dtype].smallest_normal if contract.flushes_subnormals else TINY
    return (grad_q + flushed) * UP, (grad_k + flushed) * UP, (grad_v + flushed) * UP


def lse_error(top: Tensor, log_total: Tensor) -> Tensor:
    """Bound of the error of ``top + log_total``, the largest score plus the logarithm of the denominator."""
    return LOG2 * (1 + log_total.abs()) + CONVERSION * (top.abs() + log_total.abs())


def score_error(problem: Attention, contract: Contract, scores: Scores, *, exact_products: bool = False) -> Tensor:
    """Bound of |score' - score| (batch, heads, queries, keys), the conversion to base 2 included.

    Soft-cap: tanh has Lipschitz constant 1; the quotient and the cap are rounded, tanh errs by TANH. Alibi: one
    rounding of slope times distance and one of the sum, each also once more by the conversion.
    """
    error = _linear_error(problem, contract, scores, exact_products=exact_products)
    if problem.score.kind == "soft-cap":
        error = error + (DIVISION + U) * scores.scaled.abs() + (TANH + 2 * U) * problem.score.cap
    if scores.bias is not None:
        error = error + 3 * U * scores.bias.abs()
    return error + CONVERSION * scores.score.abs()


def _linear_error(problem: Attention, contract: Contract, scores: Scores, *, exact_products: bool) -> Tensor:
    """Bound of the error of the scaled score: that of the product, and of the conversion to base 2."""
    if exact_products:
        return CONVERSION * scores.scaled.abs()
    q, k = (_aligned(problem, contract, t) for t in (scores.q, scores.k))
    size = (q @ k.transpose(-1, -2)) * abs(scores.scale)
    return (growth(contract.accumulator, problem.head_dim) + CONVERSION) * size


def _aligned(problem: Attention, contract: Contract, operand: Tensor, scale: float = 1.0) -> Tensor:
    """Sizes of an operand, which is multiplied by ``scale``, as a tensor core aligns them: a subnormal value counts as
    the smallest normal value."""
    size = operand.abs()
    if contract.accumulator.kind != "tensor-core":
        return size
    smallest = FORMATS[problem.dtype].smallest_normal * scale
    return torch.where((size > 0) & (size < smallest), smallest, size)


def _expm1(problem: Attention, logs: Tensor, scores: Scores) -> Tensor:
    """exp(logs) - 1 of the visible pairs, 0 elsewhere."""
    logs = torch.where(scores.visible, logs, 0.0)
    if bool((logs > 0.5).any()):
        raise ValueError(f"{problem.id}: scores err by up to {float(logs.max()):g}: use smaller q or k")
    return torch.expm1(logs)
