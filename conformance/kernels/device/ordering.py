"""Device code of sorted rows: the place of an element is the number of elements that come before it."""

import triton
import triton.language as tl

from conformance.kernels.device.rows import load_block, row_block

#: Elements with which a block is compared at a time.
OTHERS = tl.constexpr(16)


@triton.jit
def is_before(a, b, DESCENDING: tl.constexpr):
    """True where a comes before b, whatever their columns. NaN is larger than every number."""
    if DESCENDING:
        before = (a > b) | ((a != a) & (b == b))
    else:
        before = (a < b) | ((b != b) & (a == a))
    return before


@triton.jit
def order_rows(
    x_ptr, out_ptr, index_ptr, rows, columns, eps, stride_xm, stride_xn, stride_om, stride_on,
    PLACES: tl.constexpr, DESCENDING: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Stores the elements and their columns in order: all of them, or the first PLACES."""
    rm, there = row_block(rows, BLOCK_M, WIDE_INDEX)
    for start in range(0, columns, BLOCK_N):
        x = load_block(x_ptr, rm, there, stride_xm, stride_xn, start, columns, 0.0, BLOCK_N, WIDE_INDEX)
        rn = start + tl.arange(0, BLOCK_N)
        place = tl.zeros([BLOCK_M, BLOCK_N], tl.int32)
        for other in range(0, columns, OTHERS):
            y = load_block(x_ptr, rm, there, stride_xm, stride_xn, other, columns, 0.0, OTHERS, WIDE_INDEX)
            column = other + tl.arange(0, OTHERS)
            left = (column[None, :] < rn[:, None])[None, :, :]
            equal = ~is_before(x[:, :, None], y[:, None, :], DESCENDING) & left
            before = (is_before(y[:, None, :], x[:, :, None], DESCENDING) | equal) & (column < columns)[None, None, :]
            place += tl.sum(before.to(tl.int32), 2)
        inside = there[:, None] & (rn < columns)[None, :]
        if PLACES > 0:
            inside = inside & (place < PLACES)
        offset = rm[:, None] * stride_om + place.to(rm.dtype) * stride_on
        tl.store(out_ptr + offset, x.to(out_ptr.dtype.element_ty), mask=inside)
        tl.store(index_ptr + offset, tl.broadcast_to(rn[None, :], [BLOCK_M, BLOCK_N]), mask=inside)
