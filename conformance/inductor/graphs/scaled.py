"""Scaled products by both of torch's functions: ``a`` is M x K by rows and ``b`` K x N by columns, both of fp8 unless
they say more. With operands of fp64 each function is its own reference: ATen has no scaled product of them."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from conformance.families.gemm.problem import SCALE_BLOCK
from conformance.problems import DTYPES

#: MX format -> dtypes of the operands and of their scales, and how many values share a scale.
MX_FORMATS = {
    "mxfp8": ("float8_e4m3fn", "float8_e8m0fnu", 32),
    "mxfp4": ("float4_e2m1fn_x2", "float8_e8m0fnu", 32),
    "nvfp4": ("float4_e2m1fn_x2", "float8_e4m3fn", 16),
}


def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    *,
    out_dtype: str,
    fast: bool = False,
) -> Tensor:
    """By torch._scaled_mm, which reads from the scales' shapes what they are."""
    if a.dtype == torch.float64:
        result = (a * spread(scale_a, a)) @ (b * spread(scale_b, b))
        return result if bias is None else result + bias
    return torch._scaled_mm(a, b, scale_a, scale_b, bias, out_dtype=DTYPES[out_dtype], use_fast_accum=fast)


def scaled_mm_by_recipes(
    a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, recipes: tuple[str, str], out_dtype: str
) -> Tensor:
    """By torch.nn.functional.scaled_mm, which is told what the scales are.

    It takes B's scales of columns as 1 x N or N x 1. Scales of 1x128 blocks are M x K / 128 and N x K / 128, those of
    128x128 blocks K / 128 x M / 128 and K / 128 x N / 128, with K / 128 rounded up to a multiple of four.
    """
    if a.dtype == torch.float64:
        blocks = -(-a.shape[1] // SCALE_BLOCK)
        rows = scale_a[:blocks].T if recipes[0] == "BlockWise128x128" else scale_a
        if recipes[1] == "BlockWise128x128":
            columns = scale_b[:blocks]
        else:
            columns = scale_b.T if recipes[1] == "BlockWise1x128" else scale_b.reshape(1, -1)
        return scaled_mm(a, b, rows, columns, out_dtype=out_dtype)
    functional = torch.nn.functional
    kind_a, kind_b = (getattr(functional.ScalingType, recipe) for recipe in recipes)
    return functional.scaled_mm(a, b, scale_a, kind_a, scale_b, kind_b, output_dtype=DTYPES[out_dtype])


def spread(scale: Tensor, matrix: Tensor) -> Tensor:
    """One scale for each element of ``matrix``: ``scale`` has one element, or in each dimension one for all, for each
    or for each block of 128."""
    if scale.numel() == 1:
        return scale.reshape(())
    for dimension, extent in enumerate(matrix.shape):
        count = scale.shape[dimension]
        if count not in (1, extent):
            scale = scale.repeat_interleave(SCALE_BLOCK, dimension).narrow(dimension, 0, extent)
    return scale


def mx_scaled_mm(a: Tensor, b: Tensor, scale_a: Tensor, scale_b: Tensor, *, form: str, by_recipes: bool) -> Tensor:
    """The product of two operands of one of :data:`MX_FORMATS`, ``b`` as N x K. All four tensors are bytes."""
    values, scales, block = MX_FORMATS[form]
    a, b = a.view(getattr(torch, values)), b.view(getattr(torch, values)).t()
    scale_a, scale_b = scale_a.view(getattr(torch, scales)), scale_b.view(getattr(torch, scales))
    if not by_recipes:
        return torch._scaled_mm(a, b, scale_a, scale_b, out_dtype=torch.bfloat16)
    functional = torch.nn.functional
    kind = getattr(functional.ScalingType, f"BlockWise1x{block}")
    order = functional.SwizzleType.SWIZZLE_32_4_4
    return functional.scaled_mm(
        a, b, scale_a, kind, scale_b, kind, swizzle_a=order, swizzle_b=order, output_dtype=torch.bfloat16
    )


def mx_scales(lines: int, k: int, form: str) -> int:
    """Returns how many scales an operand of ``lines`` rows or columns and ``k`` values has: in tiles of 128 x 4."""
    block = MX_FORMATS[form][2]
    return math.ceil(lines / 128) * 128 * math.ceil(k / block / 4) * 4
