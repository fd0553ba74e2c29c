"""Device code of reductions of rows: each program has a block of rows and walks over their columns."""

import triton
import triton.language as tl

from conformance.kernels.device.rows import load_block, row_block


@triton.jit
def sum_rows(
    x_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """The sum of each row."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    total = tl.zeros([BLOCK_M], tl.float32)
    for start in range(0, columns, BLOCK_N):
        total += tl.sum(load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX), 1)
    tl.store(out_ptr + rm, total, mask=there)


@triton.jit
def max_rows(
    x_ptr, out_ptr, index_ptr, rows, columns, eps, stride_xm, stride_xn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """The maximum of each row and the first column that has it; the first NaN wins over all numbers."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    top = tl.full([BLOCK_M], float("-inf"), tl.float32)
    index = tl.zeros([BLOCK_M], tl.int32)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, float("-inf"), BLOCK_N, WIDE_INDEX)
        rn = (start + tl.arange(0, BLOCK_N))[None, :]
        is_nan = x != x
        any_nan = tl.max(is_nan.to(tl.int32), 1) > 0
        highest = tl.max(tl.where(is_nan, float("-inf"), x), 1)
        here = tl.where(any_nan[:, None], is_nan, (x == highest[:, None]) & (rn < columns))
        column = tl.min(tl.where(here, rn, 2147483647), 1)
        better = (top == top) & (any_nan | (highest > top))
        index = tl.where(better, column, index)
        top = tl.where(better, tl.where(any_nan, float("nan"), highest), top)
    tl.store(out_ptr + rm, top.to(out_ptr.dtype.element_ty), mask=there)
    tl.store(index_ptr + rm, index, mask=there)
