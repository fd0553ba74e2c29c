"""The outputs that a tensor core allows a problem: one for each element, or a few where a compiler may fuse.

Each function here follows a family's operation from its operands to the fp32 value that is rounded to the output dtype.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from conformance.families.conv import reference as conv
from conformance.families.conv.problem import Conv
from conformance.families.gemm import reference as gemm
from conformance.families.gemm.problem import BLOCK_SCALINGS, Gemm
from conformance.families.grouped import reference as grouped
from conformance.families.grouped.problem import GroupedGemm
from conformance.families.weight_gradient import reference as weight_gradient
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.numerics.rounding import round_to
from conformance.numerics.sum_order import SumOrder, Unit
from conformance.numerics.tensor_core import Factors, fused_multiply_add, sum_products
from conformance.problems import EVERY_FP8, Problem

Inputs = Mapping[str, Tensor]


def operand_name(problem: Problem) -> str:
    """Returns the name of what the unit multiplies: the key of ``FORMATS`` of both operands, or "a*b" where they
    differ."""
    first = seen_format(problem, problem.dtype)
    second = problem.second_dtype if isinstance(problem, Gemm) and problem.dtype in EVERY_FP8 else problem.dtype
    return first if second == problem.dtype else f"{first}*{second}"


def seen_format(problem: Problem, dtype: str) -> str:
    """The format in which the unit sees an operand of ``dtype``."""
    return "tf32" if dtype == "fp32" and problem.precision == "tf32" else dtype


def knows(problem: Problem) -> bool:
    """True if :func:`results` can follow the operation of ``problem`` with operands of a tensor core."""
    if (problem.dtype == "fp32" and problem.precision != "tf32") or problem.dtype in ("int8", "fp64"):
        return False
    if isinstance(problem, Gemm):
        fused = problem.fusion.epilogue if problem.fusion is not None else ()
        # the bits of a device's erf and exp are not published
        return problem.has_product and "gelu" not in fused and problem.op != "dual_mm"
    if isinstance(problem, WeightGradient):
        return problem.positions > 0
    return isinstance(problem, (Conv, GroupedGemm))


def results(problem: Problem, order: SumOrder, unit: Unit, inputs: Inputs) -> list[Tensor]:
    """The fp32 values before the output rounding that ``unit`` allows, each in the first output's shape, on the device
    of ``inputs`` (dense operands by name, finite).

    An element may be any of those in its place. Raises TypeError for a problem that :func:`knows` refuses.
    """
    if not knows(problem):
        raise TypeError(f"{problem.id}: the bits of its operation are not known")
    if isinstance(problem, Conv):
        return _conv(problem, order, unit, inputs)
    if isinstance(problem, GroupedGemm):
        return _grouped(problem, order, unit, inputs)
    if isinstance(problem, WeightGradient):
        return [_weight_gradient(problem, order, unit, inputs)]
    assert isinstance(problem, Gemm)
    return _gemm(problem, order, unit, inputs)


def rounded(values: Sequence[Tensor], dtype: str, overflow: str) -> Tensor:
    """``values`` in the output's ``dtype``, one behind the other."""
    return torch.stack([round_to(value.double(), dtype, overflow=overflow) for value in values])


def _sum(unit: Unit, order: SumOrder, runs: Sequence[Factors], begin: Tensor | None = None) -> Tensor:
    """The fp32 sum of the products of all ``runs``, one after the other; each begins with a step of its own. ``begin``
    is what the unit adds them to, if it is not zero. Without products the sum is zero."""
    if begin is None and not any(factors.depth for factors in runs):
        return torch.zeros(runs[0].a.shape[0], runs[0].b.shape[1], device=runs[0].a.device)
    if order.splits > 1:
        (factors,) = runs
        depth = factors.depth // order.splits
        parts = [factors.part(first, first + depth) for first in range(0, factors.depth, depth)]
        return functools.reduce(torch.add, (sum_products(unit, part).float() for part in parts))
    if order.partial is None:
        total = torch.zeros((), dtype=torch.float64) if begin is None else begin.double()
        total = total.to(runs[0].a.device).expand(runs[0].a.shape[0], runs[0].b.shape[1])
        for factors in runs:
            total = sum_products(unit, factors, total)
        return total.float()
    return functools.reduce(torch.add, _partial_sums(unit, order, runs))


def _partial_sums(unit: Unit, order: SumOrder, runs: Sequence[Factors]) -> Iterator[Tensor]:
    """The unit's own sums of ``order.partial`` k each, fp32."""
    assert order.partial is not None
    for factors in runs:
        for first in range(0, factors.depth, order.partial):
            yield sum_products(unit, factors.part(first, first + order.partial)).float()


# --- products of matrices -------------------------------------------------------------------------------------------


def _gemm(problem: Gemm, order: SumOrder, unit: Unit, inputs: Inputs) -> list[Tensor]:
    if problem.batch is not None:
        matrices = [_of_matrix(problem, inputs, number) for number in range(problem.batch)]
        totals = [_sum(unit, order, _runs(problem, one)) for one in matrices]
        return _epilogue(problem, torch.stack(totals) if totals else torch.empty(problem.output.shape), inputs)
    runs = _runs(problem, inputs)
    if problem.scaling in BLOCK_SCALINGS:
        return _block_scaled(problem, order, unit, inputs, runs)
    values = _epilogue(problem, _sum(unit, order, runs), inputs)
    first = problem.fusion.epilogue[0] if problem.fusion is not None and problem.fusion.epilogue else ""
    if order.begins_at_addend and first in ("bias", "residual"):
        total = _sum(unit, order, runs, inputs[first].float())
        values.append(_fused_steps(problem, total, inputs, 1))
    return values


def _of_matrix(problem: Gemm, inputs: Inputs, number: int) -> dict[str, Tensor]:
    return {name: inputs[name][number] for name in "ab"}


def _runs(problem: Gemm, inputs: Inputs) -> list[Factors]:
    """The products that follow each other, with A as the prologue leaves it and B converted to A's dtype."""
    second = problem.second_dtype if problem.dtype in EVERY_FP8 else problem.dtype
    forms = seen_format(problem, problem.dtype), seen_format(problem, second)
    first = gemm.factors(problem, inputs)[0] if problem.fusion is not None else inputs["a"].double()
    runs = [Factors(first, inputs["b"].double(), *forms)]
    if problem.op == "mm_plus_mm":
        runs.append(Factors(inputs["c"].double(), inputs["d"].double(), *forms))
    return runs


def _block_scaled(problem: Gemm, order: SumOrder, unit: Unit, inputs: Inputs, runs: Sequence[Factors]) -> list[Tensor]:
    """Each partial sum times its two scales, added to the fp32 sum; the addition may be fused with the second scale."""
    scale_a, scale_b = gemm.block_scales(problem, inputs["scale_a"], inputs["scale_b"])  # (M, K) and (K, N), fp32
    apart: Tensor | None = None
    fused: Tensor | None = None
    assert order.partial is not None
    starts = itertools.count(0, order.partial)
    for first, partial in zip(starts, _partial_sums(unit, order, runs), strict=False):
        scaled, second = partial * scale_a[:, first : first + 1], scale_b[first : first + 1]
        apart = scaled * second if apart is None else apart + scaled * second
        fused = scaled * second if fused is None else fused_multiply_add(scaled, second, fused)
    assert apart is not None
    assert fused is not None
    bias = inputs["bias"].float() if problem.reads_bias else None
    return [total if bias is None else total + bias for total in (apart, fused)]


def _epilogue(problem: Gemm, total: Tensor, inputs: Inputs) -> list[Tensor]:
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


# --- grouped products and convolutions ------------------------------------------------------------------------------


def _grouped(problem: GroupedGemm, order: SumOrder, unit: Unit, inputs: Inputs) -> list[Tensor]:
    """The product of each group, and its scales."""
    form = seen_format(problem, problem.dtype)
    operands = [grouped.parts(problem, name, inputs[name].double()) for name in "ab"]
    totals = []
    for group, (a, b) in enumerate(zip(*operands, strict=True)):
        total = _sum(unit, order, [Factors(a, b, form, form)])
        totals += _epilogue(problem.group_product(group), total, grouped.group_scales(problem, inputs)[group])
    return [grouped.joined(problem, "out", totals)]


def _conv(problem: Conv, order: SumOrder, unit: Unit, inputs: Inputs) -> list[Tensor]:
    """The implicit product of each group, and the bias."""
    totals = [_sum(unit, order, runs) for runs in _conv_runs(problem, inputs)]
    values = [_conv_output(problem, totals)]
    if not problem.bias:
        return values
    bias = inputs["bias"].float()
    values = [values[0] + bias.reshape(-1, *[1] * len(problem.size))]
    if order.begins_at_addend:
        pairs = zip(_conv_runs(problem, inputs), bias.split(problem.out_channels // problem.groups), strict=True)
        values.append(_conv_output(problem, [_sum(unit, order, runs, begin) for runs, begin in pairs]))
    return values


def _weight_gradient(problem: WeightGradient, order: SumOrder, unit: Unit, inputs: Inputs) -> Tensor:
    """The product of each group."""
    form = seen_format(problem, problem.dtype)
    groups = [_sum(unit, order, [Factors(a, b, form, form)]) for a, b in weight_gradient.factors(problem, inputs)]
    return weight_gradient.joined(problem, torch.stack(groups))


def _conv_output(problem: Conv, groups: Sequence[Tensor]) -> Tensor:
    """The output of products (positions, channels of a group)."""
    total = torch.cat(list(groups), -1).reshape(problem.batch, *problem.out_size, problem.out_channels)
    return total.movedim(-1, 1)


def _conv_runs(problem: Conv, inputs: Inputs) -> Iterator[list[Factors]]:
    """For each group the products that follow each other: taps in the order of the kernel's dimensions, the last
    fastest, and channels within a tap."""
    form = seen_format(problem, problem.dtype)
    view = problem.correlation
    seen = {tap: conv.seen(view, inputs["x"].double(), tap)[0] for tap in itertools.product(*map(range, view.kernel))}
    w = problem.by_output(inputs["w"].double())
    weights = w.reshape(problem.groups, problem.out_channels // problem.groups, problem.group_channels, *problem.kernel)
    for group in range(problem.groups):
        runs = []
        for tap, values in seen.items():
            at_tap: Any = (..., *tap)
            of_group = values.unflatten(1, (problem.groups, problem.group_channels))[:, group]
            rows = of_group.movedim(1, -1).reshape(-1, problem.group_channels)
            runs.append(Factors(rows, weights[group][at_tap].t(), form, form))
        yield runs
