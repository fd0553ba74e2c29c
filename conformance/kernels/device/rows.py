"""Device code of functions of rows: each program has a block of rows and walks over their columns in blocks.

Lanes outside the matrix are loaded as values that change nothing. All arithmetic is fp32.
"""

import triton
import triton.language as tl


@triton.jit
def row_block(rows, BLOCK_M: tl.constexpr, WIDE_INDEX: tl.constexpr):
    """Returns the rows of this program, and which of them exist."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
    return rm, rm < rows


@triton.jit
def load_block(ptr, rm, there, stride_m, stride_n, start, columns, other, BLOCK_N: tl.constexpr, WIDE: tl.constexpr):
    """Returns the block of columns that begins at ``start`` in fp32, with ``other`` outside the matrix."""
    rn = start + tl.arange(0, BLOCK_N)
    if WIDE:
        rn = rn.to(tl.int64)
    inside = there[:, None] & (rn < columns)[None, :]
    return tl.load(ptr + rm[:, None] * stride_m + rn[None, :] * stride_n, mask=inside, other=other).to(tl.float32)


@triton.jit
def store_block(ptr, values, rm, there, stride_m, stride_n, start, columns, BLOCK_N: tl.constexpr, WIDE: tl.constexpr):
    """Stores what :func:`load_block` would load, rounded to the dtype of the matrix."""
    rn = start + tl.arange(0, BLOCK_N)
    if WIDE:
        rn = rn.to(tl.int64)
    inside = there[:, None] & (rn < columns)[None, :]
    place = ptr + rm[:, None] * stride_m + rn[None, :] * stride_n
    tl.store(place, values.to(ptr.dtype.element_ty), mask=inside)


@triton.jit
def load_columns(ptr, start, columns, BLOCK_N: tl.constexpr):
    """Returns a number for each column of a block in fp32, 0 outside."""
    rn = start + tl.arange(0, BLOCK_N)
    return tl.load(ptr + rn, mask=rn < columns, other=0.0).to(tl.float32)


@triton.jit
def softmax_rows(
    x_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    LOG: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Softmax or, with LOG, its logarithm. The sum is rescaled when a block has a larger maximum."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    total = tl.zeros([BLOCK_M], tl.float32)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, float("-inf"), BLOCK_N, WIDE_INDEX)
        higher = tl.maximum(top, tl.max(x, 1))
        shift = tl.where(higher == float("-inf"), 0.0, higher)
        total = total * tl.exp(top - shift) + tl.sum(tl.exp(x - shift[:, None]), 1)
        top = higher
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, float("-inf"), BLOCK_N, WIDE_INDEX)
        out = x - top[:, None]
        if LOG:
            out = out - tl.log(total)[:, None]
        else:
            out = tl.exp(out) / total[:, None]
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)


@triton.jit
def rms_norm_rows(
    x_ptr, weight_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """RMS norm."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    total = tl.zeros([BLOCK_M], tl.float32)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        total += tl.sum(x * x, 1)
    scale = tl.rsqrt(total / columns + eps)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        weight = load_columns(weight_ptr, start, columns, BLOCK_N)
        out = x * scale[:, None] * weight[None, :]
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)


@triton.jit
def add_rms_norm_rows(
    x_ptr, residual_ptr, weight_ptr, out_ptr, added_ptr, rows, columns, eps,
    stride_xm, stride_xn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """RMS norm of the sum of x and a residual, which is stored, too."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    total = tl.zeros([BLOCK_M], tl.float32)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        x += load_block(residual_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        store_block(added_ptr, x, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)
        total += tl.sum(x * x, 1)
    scale = tl.rsqrt(total / columns + eps)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        x += load_block(residual_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        weight = load_columns(weight_ptr, start, columns, BLOCK_N)
        out = x * scale[:, None] * weight[None, :]
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)


@triton.jit
def layer_norm_rows(
    x_ptr, weight_ptr, bias_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Layer norm: the mean, then the mean of the squares of what differs from it, then the result."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    total = tl.zeros([BLOCK_M], tl.float32)
    for start in range(0, columns, BLOCK_N):
        total += tl.sum(load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX), 1)
    mean = total / columns
    squares = tl.zeros([BLOCK_M], tl.float32)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        centred = tl.where((start + tl.arange(0, BLOCK_N) < columns)[None, :], x - mean[:, None], 0.0)
        squares += tl.sum(centred * centred, 1)
    scale = tl.rsqrt(squares / columns + eps)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        weight = load_columns(weight_ptr, start, columns, BLOCK_N)
        bias = load_columns(bias_ptr, start, columns, BLOCK_N)
        out = (x - mean[:, None]) * scale[:, None] * weight[None, :] + bias[None, :]
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)


@triton.jit
def l2_norm_rows(
    x_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Rows divided by the root of the sum of their squares."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    total = tl.zeros([BLOCK_M], tl.float32)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        total += tl.sum(x * x, 1)
    scale = tl.rsqrt(total + eps)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        store_block(out_ptr, x * scale[:, None], rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)
