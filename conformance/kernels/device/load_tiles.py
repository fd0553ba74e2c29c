"""One k-block of two operands by masked pointer loads, for kernels with a loop of their own."""

import triton
import triton.language as tl


@triton.jit
def load_tiles(
    a_ptr, b_ptr, rm, rn, first_k, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """The k-block that begins at ``first_k``: rows ``rm`` of A and columns ``rn`` of B, zero past the edges."""
    rk = first_k + tl.arange(0, BLOCK_K)
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rn = rn.to(tl.int64)
        rk = rk.to(tl.int64)
    a_mask = (rm < M)[:, None]
    b_mask = (rn < N)[None, :]
    if not EVEN_K:
        a_mask = a_mask & (rk < K)[None, :]
        b_mask = b_mask & (rk < K)[:, None]
    a = tl.load(a_ptr + rm[:, None] * stride_am + rk[None, :] * stride_ak, mask=a_mask, other=0.0)
    b = tl.load(b_ptr + rk[:, None] * stride_bk + rn[None, :] * stride_bn, mask=b_mask, other=0.0)
    return a, b
