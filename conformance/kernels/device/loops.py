"""The main loop over K for operands of any dtype, adding to an accumulator that the caller gives."""

import triton
import triton.language as tl


@triton.jit
def accumulate(
    acc, a_ptr, b_ptr, rm, rn, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
    IMPLIED_DTYPE: tl.constexpr = False,
):  # fmt: skip
    """``acc`` (BLOCK_M, BLOCK_N) plus rows ``rm`` of A times columns ``rn`` of B over all of K, by masked loads.

    B is converted to A's dtype before it is multiplied; the products are summed in the dtype of ``acc``. WIDE_INDEX
    computes offsets in 64 bits, for operands that span 2**31 elements or more. With IMPLIED_DTYPE ``tl.dot`` is not
    told the dtype of ``acc``.
    """
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rn = rn.to(tl.int64)
    a_mask = (rm < M)[:, None]
    b_mask = (rn < N)[None, :]
    for k in range(tl.cdiv(K, BLOCK_K)):
        rk = k * BLOCK_K + tl.arange(0, BLOCK_K)
        if WIDE_INDEX:
            rk = rk.to(tl.int64)
        a_tile = a_ptr + rm[:, None] * stride_am + rk[None, :] * stride_ak
        b_tile = b_ptr + rk[:, None] * stride_bk + rn[None, :] * stride_bn
        if EVEN_K:
            a = tl.load(a_tile, mask=a_mask)
            b = tl.load(b_tile, mask=b_mask)
        else:
            inside = rk < K
            a = tl.load(a_tile, mask=a_mask & inside[None, :], other=0.0)
            b = tl.load(b_tile, mask=b_mask & inside[:, None], other=0.0)
        converted = b.to(a.dtype)
        if IMPLIED_DTYPE:
            acc = tl.dot(a, converted, acc, input_precision=PRECISION)
        else:
            acc = tl.dot(a, converted, acc, input_precision=PRECISION, out_dtype=acc.dtype)
    return acc
