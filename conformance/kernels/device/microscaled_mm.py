"""microscaled_mm: products of block-scaled operands by ``tl.dot_scaled``, by pointer loads and stores, any strides."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import store_pointers, swizzle


@triton.jit
def gemm_microscaled(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K,
    stride_az, stride_am, stride_ak, stride_bz, stride_bk, stride_bn, stride_cz, stride_cm, stride_cn,
    stride_scale_az, stride_scale_am, stride_scale_ak, stride_scale_bz, stride_scale_bn, stride_scale_bk,
    A_CODES: tl.constexpr, B_CODES: tl.constexpr, A_ALONG_M: tl.constexpr, A_ALONG_K: tl.constexpr,
    B_ALONG_K: tl.constexpr, B_ALONG_N: tl.constexpr, SCALED_A: tl.constexpr, SCALED_B: tl.constexpr,
    SCALE_BLOCK_A: tl.constexpr, SCALE_BLOCK_B: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """C[M,N] = A[M,K] @ B[K,N] of codes times scales; grid (tiles, batch).

    ``?_ALONG_?``: codes in one element of the tensor along a dimension, 1 or 2. A scale holds for SCALE_BLOCK_? k of a
    row of A or a column of B. Codes past K are 0, and so are the scales of blocks that begin there, which are finite.
    """
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    matrix = tl.program_id(1).to(tl.int64)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    ra = tile_m * (BLOCK_M // A_ALONG_M) + tl.arange(0, BLOCK_M // A_ALONG_M)
    rb = tile_n * (BLOCK_N // B_ALONG_N) + tl.arange(0, BLOCK_N // B_ALONG_N)
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rn = rn.to(tl.int64)
        ra = ra.to(tl.int64)
        rb = rb.to(tl.int64)
    a_rows = a_ptr + matrix * stride_az + ra[:, None] * stride_am
    b_columns = b_ptr + matrix * stride_bz + rb[None, :] * stride_bn
    in_a = ra[:, None] < M // A_ALONG_M
    in_b = rb[None, :] < N // B_ALONG_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        ka = k * (BLOCK_K // A_ALONG_K) + tl.arange(0, BLOCK_K // A_ALONG_K)
        kb = k * (BLOCK_K // B_ALONG_K) + tl.arange(0, BLOCK_K // B_ALONG_K)
        if WIDE_INDEX:
            ka = ka.to(tl.int64)
            kb = kb.to(tl.int64)
        a = tl.load(a_rows + ka[None, :] * stride_ak, mask=in_a & (ka[None, :] < K // A_ALONG_K), other=0.0)
        b = tl.load(b_columns + kb[:, None] * stride_bk, mask=in_b & (kb[:, None] < K // B_ALONG_K), other=0.0)
        scale_a = None
        if SCALED_A:
            blocks = k * (BLOCK_K // SCALE_BLOCK_A) + tl.arange(0, BLOCK_K // SCALE_BLOCK_A)
            if WIDE_INDEX:
                blocks = blocks.to(tl.int64)
            place = scale_a_ptr + matrix * stride_scale_az + rm[:, None] * stride_scale_am
            inside = (rm < M)[:, None] & (blocks * SCALE_BLOCK_A < K)[None, :]
            scale_a = tl.load(place + blocks[None, :] * stride_scale_ak, mask=inside, other=0.0)
        scale_b = None
        if SCALED_B:
            blocks = k * (BLOCK_K // SCALE_BLOCK_B) + tl.arange(0, BLOCK_K // SCALE_BLOCK_B)
            if WIDE_INDEX:
                blocks = blocks.to(tl.int64)
            place = scale_b_ptr + matrix * stride_scale_bz + rn[:, None] * stride_scale_bn
            inside = (rn < N)[:, None] & (blocks * SCALE_BLOCK_B < K)[None, :]
            scale_b = tl.load(place + blocks[None, :] * stride_scale_bk, mask=inside, other=0.0)
        acc = tl.dot_scaled(
            a, scale_a, A_CODES, b, scale_b, B_CODES, acc, lhs_k_pack=A_ALONG_M == 1, rhs_k_pack=B_ALONG_N == 1
        )
    store_pointers(acc, c_ptr + matrix * stride_cz, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)
