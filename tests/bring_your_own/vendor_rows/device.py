"""The device code of scaled rows."""

import triton
import triton.language as tl


@triton.jit
def scale_rows(
    x_ptr, scale_ptr, out_ptr, rows, columns, stride_x, stride_out, skipped,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
):  # fmt: skip
    """Grid (blocks of rows, blocks of columns). ``skipped`` columns at the end are not stored: a fault, if any."""
    rm = tl.program_id(0) * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(1) * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rm < rows)[:, None] & (rn < columns - skipped)[None, :]
    x = tl.load(x_ptr + rm[:, None] * stride_x + rn[None, :], mask=inside, other=0.0)
    scale = tl.load(scale_ptr + rm, mask=rm < rows, other=0.0)
    tl.store(out_ptr + rm[:, None] * stride_out + rn[None, :], x * scale[:, None], mask=inside)
