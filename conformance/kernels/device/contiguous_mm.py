"""The copy of B that contiguous_mm and contiguous_addmm make before they multiply."""

import triton
import triton.language as tl


@triton.jit
def copy_matrix(
    source_ptr, copy_ptr, rows, columns, stride_m, stride_n, stride_copy,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Copies ``rows`` x ``columns`` elements to a row-major matrix with leading dimension ``stride_copy``; grid
    (tiles,)."""
    tiles_n = tl.cdiv(columns, BLOCK_N)
    rm = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rm < rows)[:, None] & (rn < columns)[None, :]
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rn = rn.to(tl.int64)
    values = tl.load(source_ptr + rm[:, None] * stride_m + rn[None, :] * stride_n, mask=inside)
    tl.store(copy_ptr + rm[:, None] * stride_copy + rn[None, :], values, mask=inside)
