"""Device code of dropout: each program has a block of rows and walks over their columns."""

import triton
import triton.language as tl

from conformance.kernels.device.rows import load_block, row_block, store_block


@triton.jit
def dropout_rows(
    x_ptr, seed_ptr, p_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Keeps the elements whose random number is p at least, divided by 1 - p; all others become 0."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    seed = tl.load(seed_ptr)
    p = tl.load(p_ptr)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        number = rm[:, None] * columns + (start + tl.arange(0, BLOCK_N))[None, :]
        keep = tl.rand(seed, number) >= p
        out = tl.where(keep, x / (1.0 - p), 0.0)
        store_block(out_ptr, out, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)
