"""Device code of quantised rows and back: each program has a block of rows and walks over their columns in blocks.

Quotients are rounded to nearest, as IEEE 754 says: with a scale that is a power of two they are exact.
"""

import triton
import triton.language as tl

from conformance.kernels.device.rows import load_block, row_block, store_block


@triton.jit
def nearest(v, FP8: tl.constexpr):
    """Returns v within the limits of int8, rounded to an integer, or within those of e4m3. NaN stays NaN."""
    if FP8:
        v = tl.where(v > 448.0, 448.0, tl.where(v < -448.0, -448.0, v))
    else:
        v = tl.where(v > 127.0, 127.0, tl.where(v < -128.0, -128.0, v))
        # The unit of these sums is 1, so that they are rounded to an integer, ties to even.
        v = (v + 12582912.0) - 12582912.0
    return v


@triton.jit
def quantize_rows(
    x_ptr, out_ptr, scale_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    FP8: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Codes with a scale for each row."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    amax = tl.zeros([BLOCK_M], tl.float32)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        amax = tl.maximum(amax, tl.max(tl.abs(x), 1))
    LIMIT: tl.constexpr = 448.0 if FP8 else 127.0
    scale = tl.maximum(amax / LIMIT, eps)
    tl.store(scale_ptr + rm, scale, mask=there)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        out = nearest(tl.div_rn(x, tl.broadcast_to(scale[:, None], [BLOCK_M, BLOCK_N])), FP8)
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)


@triton.jit
def quantize_blocks(
    x_ptr, out_ptr, scale_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    FP8: tl.constexpr, GROUP: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Codes with a scale for each GROUP columns of a row."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    blocks = tl.cdiv(columns, GROUP)
    GROUPS: tl.constexpr = BLOCK_N // GROUP
    LIMIT: tl.constexpr = 448.0 if FP8 else 127.0
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        x = tl.reshape(x, [BLOCK_M, GROUPS, GROUP])
        scale = tl.maximum(tl.max(tl.abs(x), 2) / LIMIT, eps)
        store_block(scale_ptr, scale, rm, there, blocks, 1, start // GROUP, blocks, GROUPS, WIDE_INDEX)
        out = nearest(tl.div_rn(x, tl.broadcast_to(scale[:, :, None], [BLOCK_M, GROUPS, GROUP])), FP8)
        out = tl.reshape(out, [BLOCK_M, BLOCK_N])
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)


@triton.jit
def quantize_static_rows(
    x_ptr, scale_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    FP8: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Codes with a scale for each row that is an operand."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    scale = tl.load(scale_ptr + rm, mask=there, other=1.0)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        out = nearest(tl.div_rn(x, tl.broadcast_to(scale[:, None], [BLOCK_M, BLOCK_N])), FP8)
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)


@triton.jit
def load_scales(scale_ptr, rm, there, start, columns, GROUP: tl.constexpr, BLOCK_N: tl.constexpr, WIDE: tl.constexpr):
    """Returns the scale of each element of a block of columns, as it is stored: one for a row, or for GROUP columns."""
    rn = start + tl.arange(0, BLOCK_N)
    inside = there[:, None] & (rn < columns)[None, :]
    blocks = 1
    block = rn * 0
    if GROUP > 0:
        blocks = tl.cdiv(columns, GROUP)
        block = rn // GROUP
    return tl.load(scale_ptr + rm[:, None] * blocks + block[None, :], mask=inside, other=0)


@triton.jit
def dequantize_rows(
    codes_ptr, scale_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    GROUP: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Codes times their scales: one for a row, or for GROUP columns."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    for start in range(0, columns, BLOCK_N):
        codes = load_block(codes_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        scale = load_scales(scale_ptr, rm, there, start, columns, GROUP, BLOCK_N, WIDE_INDEX)
        store_block(out_ptr, codes * scale, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)
