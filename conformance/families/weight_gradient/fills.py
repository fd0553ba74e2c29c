"""Fills of gradients of convolutions for their weights and their bias.

Those of the weights are the fills of the convolution that has the same sums (:mod:`.conv`), with its dimensions
exchanged; in "wide-A" the image is wide, in "wide-B" grad_out.
"""

from __future__ import annotations

import dataclasses

import torch
from torch import Tensor

from conformance.families.conv import fills as conv
from conformance.families.conv.problem import Conv
from conformance.families.gemm.fills import sums_part
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.families.weight_gradient.reference import value
from conformance.inputs.fills import FillRequest, FillSet
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.problems import DTYPES

#: The operands of the convolution with the same sums, by those of the gradient.
_OPERANDS = {"x": "x", "grad_out": "w"}


def applicable(problem: WeightGradient, contract: Contract) -> tuple[str, ...]:
    """Returns every fill of the family; an empty batch has only "transparent"."""
    return FILLS.names if problem.forward.batch else FILLS.names[:1]


def build(request: FillRequest[WeightGradient]) -> Fill:
    """Returns the fill that ``request`` names; see :class:`FillSet`. Raises FillError if it shows less than it
    promises."""
    problem = request.problem
    if not problem.forward.batch:
        inputs = {operand.name: torch.zeros(operand.shape, dtype=DTYPES[operand.dtype]) for operand in problem.operands}
        fill = request.fill("exact", inputs, value(problem, inputs, device=request.device), None, {"unit_b": 0})
    else:
        same = FillRequest[Conv](request.name, problem.correlation, request.contract, request.seed, request.device)
        fill = _exchanged(problem, conv.build(same))
    if not problem.bias:
        return fill
    rows = fill.inputs["grad_out"].movedim(1, 0).flatten(1)
    part = sums_part(fill, request.contract, rows.to(request.device or "cpu"), fill.meta.get("unit_b", 0))
    return dataclasses.replace(fill, parts={"grad_bias": part})


def _exchanged(problem: WeightGradient, fill: Fill) -> Fill:
    """``fill`` of the convolution with the same sums as one of ``problem``."""
    inputs = {name: problem.stored(name, fill.inputs[other]).contiguous() for name, other in _OPERANDS.items()}
    expected: Tensor = problem.stored("grad_w", fill.expected).contiguous()
    error, or_nan = (
        None if tensor is None else problem.stored("grad_w", tensor).contiguous()
        for tensor in (fill.error, fill.or_nan)
    )
    return dataclasses.replace(fill, inputs=inputs, expected=expected, error=error, or_nan=or_nan)


FILLS = FillSet(conv.FILLS.kinds, applicable, build)
