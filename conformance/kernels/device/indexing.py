"""Device code of rows by their numbers: each program has a block of rows and walks over their columns."""

import triton
import triton.language as tl

from conformance.kernels.device.rows import load_block, row_block, store_block


@triton.jit
def gather_rows(
    table_ptr, index_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Copies the entry of each row."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    entry = tl.load(index_ptr + rm, mask=there, other=0).to(rm.dtype)
    for start in range(0, columns, BLOCK_N):
        x = load_block(table_ptr, entry, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        store_block(out_ptr, x, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)


@triton.jit
def zero_rows(
    out_ptr, entries, columns, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Stores zeros in all entries."""
    rm, there = row_block(entries, BLOCK_M, WIDE_INDEX)
    zeros = tl.zeros([BLOCK_M, BLOCK_N], tl.float32)
    for start in range(0, columns, BLOCK_N):
        store_block(out_ptr, zeros, rm, there, stride_om, stride_on, start, columns, BLOCK_N, WIDE_INDEX)


@triton.jit
def scatter_add_rows(
    x_ptr, index_ptr, out_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Adds each row to its entry, by atomic additions."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    entry = tl.load(index_ptr + rm, mask=there, other=0).to(rm.dtype)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        rn = start + tl.arange(0, BLOCK_N)
        inside = there[:, None] & (rn < columns)[None, :]
        place = out_ptr + entry[:, None] * stride_om + rn.to(rm.dtype)[None, :] * stride_on
        tl.atomic_add(place, x, mask=inside, sem="relaxed")
