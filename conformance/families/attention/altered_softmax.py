"""Alterations of attention's softmax: the maximum, what is rescaled, the merge of parts, the logarithm of the sum."""

from __future__ import annotations

import dataclasses
import functools
import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from conformance.families.attention import bounds as attention_bounds
from conformance.families.attention import reference as meaning
from conformance.families.attention.outcomes import LOG2E, LOOSE, Inputs
from conformance.families.attention.problem import Attention
from conformance.numerics.alterations import Alteration, Outputs
from conformance.numerics.contract import Contract
from conformance.numerics.tiling import Tiling


def about_softmax(problem: Attention, contract: Contract, tiling: Tiling) -> Iterator[Alteration]:
    """Alterations of what follows the scores of a forward problem."""

    def of_values(
        cause: str, change: Callable[[meaning.ForwardValues], Mapping[str, Tensor]], special: bool = False
    ) -> Alteration:
        def compute(inputs: Inputs) -> Outputs:
            values = meaning.forward(problem, inputs)
            errors = attention_bounds.forward_error(problem, contract, values)
            changed = change(values)
            # what is changed is no larger than some multiple of the right result, and so is its error
            scale = {name: torch.where(values.outputs[name] == 0, 1.0, (value / values.outputs[name]).abs())
                     for name, value in changed.items()}  # fmt: skip
            return {
                name: (value, error * scale[name].nan_to_num(1.0, 1.0, 1.0).clamp(min=1.0))
                for (name, value), error in zip(changed.items(), errors, strict=True)
            }

        return Alteration(cause, compute, special)

    def lse_as(
        change: Callable[[meaning.ForwardValues], Tensor],
    ) -> Callable[[meaning.ForwardValues], Mapping[str, Tensor]]:
        return lambda values: {"out": values.out, "lse": torch.where(values.live, change(values), -math.inf)}

    yield of_values("lse holds log2 of the sum, and not its logarithm", lse_as(lambda v: v.top + torch.log2(v.total)))
    yield of_values("lse is in base 2", lse_as(lambda v: (v.top + torch.log(v.total)) * LOG2E))
    yield of_values("lse lacks the maximum", lse_as(lambda v: torch.log(v.total)))
    yield of_values("lse lacks the logarithm of the sum", lse_as(lambda v: v.top))
    yield of_values(
        "the output is not divided by the sum of the weights",
        lambda v: {"out": v.out * torch.where(v.live, v.total, 1.0).unsqueeze(-1), "lse": v.lse},
    )
    yield of_values(
        "a query that sees no key gives NaN",
        lambda v: {
            "out": torch.where(v.live.unsqueeze(-1), v.out, torch.nan),
            "lse": torch.where(v.live, v.lse, torch.nan),
        },
        special=True,
    )
    block, splits = tiling.block[1], tiling.splits
    for cause, options in (
        ("the output is not rescaled when the maximum grows", (False, True)),
        ("the sum of the weights is not rescaled when the maximum grows", (True, False)),
        ("neither output nor sum is rescaled when the maximum grows", (False, False)),
    ):
        stepped = functools.partial(_by_blocks, problem, contract, block, options)
        yield Alteration(f"{cause} ({block} keys a step)", stepped)
    for cause, largest in (
        ("no maximum is subtracted from the scores", lambda top: 0 * top),
        ("the running maximum begins at 0", lambda top: top.clamp(min=0.0)),
    ):
        yield Alteration(cause, functools.partial(_with_maximum, problem, contract, largest), special=True)
    if splits:
        yield Alteration(
            "the parts of the keys are merged without their weights",
            functools.partial(_merged_equally, problem, contract, block, splits),
        )


def _by_blocks(
    problem: Attention,
    contract: Contract,
    block: int,
    rescaled: tuple[bool, bool],
    inputs: Inputs,
) -> Outputs:
    """The softmax in steps of ``block`` keys; ``rescaled``: whether the output and the sum so far are."""
    rescale_out, rescale_sum = rescaled
    scored = meaning.scores(problem, inputs)
    hidden = torch.where(scored.visible, scored.score, -math.inf)
    shape = (*hidden.shape[:-1], 1)
    top = torch.full(shape, -math.inf, dtype=torch.float64)
    total, out = torch.zeros(shape).double(), torch.zeros(*hidden.shape[:-1], scored.v.shape[-1]).double()
    for start in range(0, problem.keys, block):
        part = hidden[..., start : start + block]
        larger = torch.maximum(top, part.amax(-1, keepdim=True))
        reference = torch.where(larger.isfinite(), larger, 0.0)
        shrink = torch.exp(torch.where(top.isfinite(), top - reference, -math.inf))
        weights = torch.exp(part - reference)
        total = (total * shrink if rescale_sum else total) + weights.sum(-1, keepdim=True)
        out = (out * shrink if rescale_out else out) + weights @ scored.v[:, :, start : start + block]
        top = larger
    live = total > 0
    result = out / torch.where(live, total, 1.0)
    lse = torch.where(live, top + torch.log(total), -math.inf)
    return _with_right_errors(problem, contract, inputs, result, lse[..., 0])


def _with_right_errors(problem: Attention, contract: Contract, inputs: Inputs, out: Tensor, lse: Tensor) -> Outputs:
    """Outputs with the bounds of the right computation, grown as much as the outputs themselves."""
    right = meaning.forward(problem, inputs)
    errors = attention_bounds.forward_error(problem, contract, right)
    growth = out.abs().amax(-1, keepdim=True) / right.out.abs().amax(-1, keepdim=True).clamp(min=2.0**-60)
    growth = growth.nan_to_num(1.0, 1.0, 1.0).clamp(min=1.0)
    return {"out": (out, LOOSE * errors[0] * growth), "lse": (lse, LOOSE * errors[1] + 2.0**-20)}


def _with_maximum(
    problem: Attention, contract: Contract, largest: Callable[[Tensor], Tensor], inputs: Inputs
) -> Outputs:
    """Weights relative to another number than the largest score, in the range of fp32."""
    scored = meaning.scores(problem, inputs)
    hidden = torch.where(scored.visible, scored.score, -math.inf)
    top = hidden.amax(-1, keepdim=True)
    reference = largest(torch.where(top.isfinite(), top, 0.0))
    weights = torch.exp(hidden - reference).float().double()
    total = weights.sum(-1, keepdim=True).float().double()
    if bool(((total > 0) & (total < 2.0**-100)).any()):
        raise ValueError("sums of subnormal weights depend on their order")
    out = (weights @ scored.v).float().double() / torch.where(total > 0, total, 1.0)
    lse = torch.where(total > 0, reference + torch.log(total), -math.inf)
    return _with_right_errors(problem, contract, inputs, out, lse[..., 0])


def _merged_equally(problem: Attention, contract: Contract, block: int, splits: int, inputs: Inputs) -> Outputs:
    scored = meaning.scores(problem, inputs)
    steps = -(-problem.keys // block)
    size = -(-steps // splits) * block
    total, out, top = torch.zeros(()).double(), torch.zeros(()).double(), []
    for start in range(0, problem.keys, size):
        inside = torch.zeros(problem.keys, dtype=torch.bool)
        inside[start : start + size] = True
        part = meaning.attended(dataclasses.replace(scored, visible=scored.visible & inside))
        total = total + part.total.unsqueeze(-1)
        out = out + part.out * part.total.unsqueeze(-1)
        top.append(torch.where(part.live, part.top, -math.inf))
    largest = torch.stack(top).amax(0)
    lse = torch.where(total[..., 0] > 0, largest + torch.log(total[..., 0]), -math.inf)
    return _with_right_errors(problem, contract, inputs, out / torch.where(total > 0, total, 1.0), lse)
