"""Device code of functions of single elements and of gates, in fp32 between load and store."""

import triton
import triton.language as tl

from conformance.kernels.device.rows import load_block, row_block, store_block


@triton.jit
def sigmoid(x):
    """1 / (1 + exp(-x))."""
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def hyperbolic_tangent(x):
    """tanh(x) by an exponential."""
    return 2.0 / (1.0 + tl.exp(-2.0 * x)) - 1.0


@triton.jit
def activated(x, SLOPE: tl.constexpr, FUNCTION: tl.constexpr):
    """The activation that FUNCTION names."""
    if FUNCTION == "relu":
        y = tl.where(x <= 0.0, 0.0, x)
    elif FUNCTION == "leaky_relu":
        y = tl.where(x > 0.0, x, x * SLOPE)
    elif FUNCTION == "elu":
        y = tl.where(x > 0.0, x, tl.exp(x) - 1.0)
    elif FUNCTION == "gelu":
        y = x * 0.5 * (1.0 + tl.erf(x * 0.7071067811865476))
    elif FUNCTION == "gelu_tanh":
        y = x * 0.5 * (1.0 + hyperbolic_tangent((x + x * x * x * 0.044715) * 0.7978845608028654))
    elif FUNCTION == "silu":
        y = x * sigmoid(x)
    elif FUNCTION == "sigmoid":
        y = sigmoid(x)
    else:
        tl.static_assert(FUNCTION == "tanh")
        y = hyperbolic_tangent(x)
    return y


@triton.jit
def map_rows(
    x_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    SLOPE: tl.constexpr, FUNCTION: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """An activation of each element."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        out = activated(x, SLOPE, FUNCTION)
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)


@triton.jit
def gate_rows(
    x_ptr, gate_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    FUNCTION: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """An activation of x times the gate."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        gate = load_block(gate_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        out = activated(x, 1.0, FUNCTION) * gate
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)
