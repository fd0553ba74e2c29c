"""Rigorous bounds of the error of a convolution; see :mod:`.bounds` for where the constants come from."""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from conformance.families.conv.problem import Conv
from conformance.families.conv.reference import magnitude
from conformance.families.gemm.bounds import U64, U, growth
from conformance.numerics.contract import Contract
from conformance.numerics.rounding import FORMATS


def error_bound(problem: Conv, contract: Contract, expected: Tensor, inputs: Mapping[str, Tensor]) -> Tensor:
    """Bound, in fp64 and the output's shape, of |computed - expected| before the output rounding.

    Returns the bound of the product (see :mod:`conformance.families.gemm.bounds`) with k of taps times channels of a
    group. It includes the rounding of the bias's addition, the reference's own error and underflow. A tensor core does
    not normalise a subnormal operand: in the magnitude it counts as the smallest normal.
    """
    k = problem.product.K
    sizes = {name: inputs[name].double().abs() for name in "xw"}
    if contract.accumulator.kind == "tensor-core":
        smallest = FORMATS[problem.dtype].smallest_normal
        sizes = {name: torch.where(size > 0, size.clamp(min=smallest), size) for name, size in sizes.items()}
    size = magnitude(problem, {**inputs, **sizes}, device=expected.device)
    tiny = 2.0**-126 if contract.flushes_subnormals else 2.0 ** (-126 - contract.accumulator.result_bits)
    error = size * (growth(contract.accumulator, k, fused=problem.bias) + (k + 8) * U64) + (k + 8) * tiny
    if problem.bias:
        addend = inputs["bias"].to(expected.device).double().abs().reshape(-1, *[1] * len(problem.size))
        error = error + 2 * U * (expected.abs() + error) + 8 * U64 * addend
    error = error + 8 * U64 * expected.abs()
    if contract.flushes_subnormals:
        error = error + FORMATS[contract.out_dtype].smallest_normal
    return error * (1 + 2.0**-20)
