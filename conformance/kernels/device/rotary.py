"""Device code of rotary embedding: each program has a block of rows and walks over their pairs of columns."""

import triton
import triton.language as tl

from conformance.kernels.device.rows import load_block, row_block, store_block


@triton.jit
def pair_columns(start, half, NEIGHBOURS: tl.constexpr, BLOCK_N: tl.constexpr, WIDE: tl.constexpr):
    """Returns the first and the second column of each pair of a block, and which pairs exist."""
    pair = start + tl.arange(0, BLOCK_N)
    there = pair < half
    if WIDE:
        pair = pair.to(tl.int64)
    if NEIGHBOURS:
        first = 2 * pair
        second = first + 1
    else:
        first = pair
        second = pair + half
    return first, second, there


@triton.jit
def rotary_rows(
    x_ptr, cos_ptr, sin_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    NEIGHBOURS: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Turns pairs: two neighbours each or, without NEIGHBOURS, a column of each half."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    half = columns // 2
    row_x = x_ptr + rm[:, None] * stride_xm
    row_out = out_ptr + rm[:, None] * stride_om
    for start in range(0, half, BLOCK_N):
        first, second, pairs = pair_columns(start, half, NEIGHBOURS, BLOCK_N, WIDE_INDEX)
        inside = there[:, None] & pairs[None, :]
        cos = load_block(cos_ptr, rm, there, half, 1, start, half, 0.0, BLOCK_N, WIDE_INDEX)
        sin = load_block(sin_ptr, rm, there, half, 1, start, half, 0.0, BLOCK_N, WIDE_INDEX)
        a = tl.load(row_x + first[None, :] * stride_xn, mask=inside, other=0.0).to(tl.float32)
        b = tl.load(row_x + second[None, :] * stride_xn, mask=inside, other=0.0).to(tl.float32)
        left = a * cos - b * sin
        right = b * cos + a * sin
        tl.store(row_out + first[None, :] * stride_on, left.to(out_ptr.dtype.element_ty), mask=inside)
        tl.store(row_out + second[None, :] * stride_on, right.to(out_ptr.dtype.element_ty), mask=inside)
    rest = 2 * half
    x = load_block(x_ptr, rm, there, stride_xm, stride_xn, rest, columns, 0.0, 1, WIDE_INDEX)
    store_block(out_ptr, x, rm, there, stride_om, stride_on, rest, columns, 1, WIDE_INDEX)
