"""One k-block of the operands by masked pointer loads, for kernels with a loop of their own."""

import triton
import triton.language as tl


@triton.jit
def load_rows(
    a_ptr, rm, first_k, M, K, stride_am, stride_ak,
    BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Rows ``rm`` of A in the k-block that begins at ``first_k``, zero past the edges: (BLOCK_M, BLOCK_K)."""
    rk = first_k + tl.arange(0, BLOCK_K)
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rk = rk.to(tl.int64)
    mask = (rm < M)[:, None]
    if not EVEN_K:
        mask = mask & (rk < K)[None, :]
    return tl.load(a_ptr + rm[:, None] * stride_am + rk[None, :] * stride_ak, mask=mask, other=0.0)


@triton.jit
def load_columns(
    b_ptr, rn, first_k, N, K, stride_bk, stride_bn,
    BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Columns ``rn`` of B in the k-block that begins at ``first_k``, zero past the edges: (BLOCK_K, BLOCK_N)."""
    rk = first_k + tl.arange(0, BLOCK_K)
    if WIDE_INDEX:
        rn = rn.to(tl.int64)
        rk = rk.to(tl.int64)
    mask = (rn < N)[None, :]
    if not EVEN_K:
        mask = mask & (rk < K)[:, None]
    return tl.load(b_ptr + rk[:, None] * stride_bk + rn[None, :] * stride_bn, mask=mask, other=0.0)
