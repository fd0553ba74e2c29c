"""int4_mm: products with four-bit weights, which the kernel unpacks, by pointer loads and stores, any strides."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import store_pointers, swizzle


@triton.jit
def gemm_int4(
    a_ptr, b_ptr, c_ptr, scale_ptr, zero_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    stride_scale_g, stride_scale_n, stride_zero_g, stride_zero_n,
    SIGNED: tl.constexpr, ALONG_K: tl.constexpr, GROUP: tl.constexpr, ZERO: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """C[M,N] = A[M,K] @ W[K,N] with W = (code - zero) * scale in A's dtype; grid (tiles,).

    Codes are packed in pairs along k (ALONG_K) or n. One scale serves GROUP k of a column, or all for 0. ZERO is
    "none", "packed" (pairs of codes along n) or "float". Where GROUP is no multiple of BLOCK_K each k loads its own
    scale, otherwise each block one row of them. EVEN_K: K is a number of whole blocks, and no load has a mask of k.
    """
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    half_n = tile_n * (BLOCK_N // 2) + tl.arange(0, BLOCK_N // 2)
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rn = rn.to(tl.int64)
        half_n = half_n.to(tl.int64)
    in_m = (rm < M)[:, None]
    in_n, in_half = (rn < N)[None, :], (half_n < N // 2)[None, :]
    scale_k = tl.arange(0, 1 if GROUP % BLOCK_K == 0 else BLOCK_K)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        rk = k * BLOCK_K + tl.arange(0, BLOCK_K)
        if WIDE_INDEX:
            rk = rk.to(tl.int64)
        in_k = rk < K
        a = tl.load(
            a_ptr + rm[:, None] * stride_am + rk[None, :] * stride_ak,
            mask=in_m if EVEN_K else in_m & in_k[None, :],
            other=0.0,
        )
        if ALONG_K:  # both k of a byte load it
            place = b_ptr + (rk // 2)[:, None] * stride_bk + rn[None, :] * stride_bn
            byte = tl.load(place, mask=in_n if EVEN_K else in_k[:, None] & in_n, other=0).to(tl.int32)
            shift = ((rk % 2) * 4).to(tl.int32)[:, None]
            if SIGNED:
                codes = (byte << (28 - shift)) >> 28
            else:
                codes = (byte >> shift) & 15
        else:  # each byte is loaded once
            place = b_ptr + rk[:, None] * stride_bk + half_n[None, :] * stride_bn
            byte = tl.load(place, mask=in_half if EVEN_K else in_k[:, None] & in_half, other=0).to(tl.int32)
            if SIGNED:
                codes = tl.interleave((byte << 28) >> 28, byte >> 4)
            else:
                codes = tl.interleave(byte & 15, byte >> 4)
        ks = k * BLOCK_K + scale_k
        if WIDE_INDEX:
            ks = ks.to(tl.int64)
        group = ks // GROUP if GROUP else ks * 0
        with_scale = in_n if EVEN_K else (ks < K)[:, None] & in_n
        scale = tl.load(
            scale_ptr + group[:, None] * stride_scale_g + rn[None, :] * stride_scale_n, mask=with_scale, other=0.0
        ).to(tl.float32)
        weights = codes.to(tl.float32)
        if ZERO == "packed":
            place = zero_ptr + group[:, None] * stride_zero_g + (rn // 2)[None, :] * stride_zero_n
            pair = tl.load(place, mask=with_scale, other=0).to(tl.int32)
            shift_n = ((rn % 2) * 4).to(tl.int32)[None, :]
            if SIGNED:
                weights -= ((pair << (28 - shift_n)) >> 28).to(tl.float32)
            else:
                weights -= ((pair >> shift_n) & 15).to(tl.float32)
        elif ZERO == "float":
            place = zero_ptr + group[:, None] * stride_zero_g + rn[None, :] * stride_zero_n
            weights -= tl.load(place, mask=with_scale, other=0.0).to(tl.float32)
        # Past K a code of 0 under an infinite scale is no number, also times a zero of A.
        weights = weights * scale if EVEN_K else tl.where(in_k[:, None], weights * scale, 0.0)
        acc = tl.dot(a, weights.to(a.dtype), acc)
    store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)
