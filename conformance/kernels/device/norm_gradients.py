"""Device code of the gradients of norms: of x by blocks of rows, of weight and bias by blocks of columns."""

import triton
import triton.language as tl

from conformance.kernels.device.rows import load_block, load_columns, row_block, store_block


@triton.jit
def load_rows(ptr, rm, there):
    """Returns a number for each row of a block in fp32, 0 outside."""
    return tl.load(ptr + rm, mask=there, other=0.0).to(tl.float32)


@triton.jit
def layer_norm_gradient_rows(
    x_ptr, grad_ptr, weight_ptr, mean_ptr, rstd_ptr, out_ptr, rows, columns, stride_xm, stride_xn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """The gradient of x of a layer norm: both means, then the result."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    mean = load_rows(mean_ptr, rm, there)
    rstd = load_rows(rstd_ptr, rm, there)
    along = tl.zeros([BLOCK_M], tl.float32)
    even = tl.zeros([BLOCK_M], tl.float32)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        g = load_block(grad_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        g = g * load_columns(weight_ptr, start, columns, BLOCK_N)[None, :]
        along += tl.sum((x - mean[:, None]) * rstd[:, None] * g, 1)
        even += tl.sum(g, 1)
    along = along / columns
    even = even / columns
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        g = load_block(grad_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        g = g * load_columns(weight_ptr, start, columns, BLOCK_N)[None, :]
        y = (x - mean[:, None]) * rstd[:, None]
        out = (g - y * along[:, None] - even[:, None]) * rstd[:, None]
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)


@triton.jit
def layer_norm_gradient_columns(
    x_ptr, grad_ptr, mean_ptr, rstd_ptr, grad_weight_ptr, grad_bias_ptr, rows, columns, stride_xm, stride_xn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """The gradients of weight and bias of a layer norm."""
    first = tl.program_id(0) * BLOCK_N
    weight = tl.zeros([BLOCK_N], tl.float32)
    bias = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, rows, BLOCK_M):
        rm = start + tl.arange(0, BLOCK_M)
        if WIDE_INDEX:
            rm = rm.to(tl.int64)
        there = rm < rows
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, first, columns, 0.0, BLOCK_N, WIDE_INDEX)
        grad = load_block(grad_ptr, rm, there, stride_xm, stride_xn, first, columns, 0.0, BLOCK_N, WIDE_INDEX)
        y = (x - load_rows(mean_ptr, rm, there)[:, None]) * load_rows(rstd_ptr, rm, there)[:, None]
        weight += tl.sum(grad * y, 0)
        bias += tl.sum(grad, 0)
    rn = first + tl.arange(0, BLOCK_N)
    tl.store(grad_weight_ptr + rn, weight, mask=rn < columns)
    tl.store(grad_bias_ptr + rn, bias, mask=rn < columns)


@triton.jit
def rms_norm_gradient_rows(
    x_ptr, grad_ptr, weight_ptr, rstd_ptr, out_ptr, rows, columns, stride_xm, stride_xn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """The gradient of x of an RMS norm: the mean, then the result."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    rstd = load_rows(rstd_ptr, rm, there)
    along = tl.zeros([BLOCK_M], tl.float32)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        g = load_block(grad_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        g = g * load_columns(weight_ptr, start, columns, BLOCK_N)[None, :]
        along += tl.sum(x * rstd[:, None] * g, 1)
    along = along / columns
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        g = load_block(grad_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        g = g * load_columns(weight_ptr, start, columns, BLOCK_N)[None, :]
        out = (g - x * rstd[:, None] * along[:, None]) * rstd[:, None]
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)


@triton.jit
def rms_norm_gradient_columns(
    x_ptr, grad_ptr, rstd_ptr, grad_weight_ptr, rows, columns, stride_xm, stride_xn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """The gradient of the weight of an RMS norm."""
    first = tl.program_id(0) * BLOCK_N
    weight = tl.zeros([BLOCK_N], tl.float32)
    for start in range(0, rows, BLOCK_M):
        rm = start + tl.arange(0, BLOCK_M)
        if WIDE_INDEX:
            rm = rm.to(tl.int64)
        there = rm < rows
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, first, columns, 0.0, BLOCK_N, WIDE_INDEX)
        grad = load_block(grad_ptr, rm, there, stride_xm, stride_xn, first, columns, 0.0, BLOCK_N, WIDE_INDEX)
        weight += tl.sum(grad * (x * load_rows(rstd_ptr, rm, there)[:, None]), 0)
    rn = first + tl.arange(0, BLOCK_N)
    tl.store(grad_weight_ptr + rn, weight, mask=rn < columns)
