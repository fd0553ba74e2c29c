"""scaled_mm_blockwise: each step's partial sum is scaled before it is added to the fp32 sum."""

import triton
import triton.language as tl

from conformance.kernels.device.descriptors import describe
from conformance.kernels.device.tiles import epilogue, store_pointers, swizzle


@triton.jit
def scaled_tile(
    a_ptr, b_ptr, a_desc, b_desc, scale_a_ptr, scale_b_ptr, bias_ptr, first_m, first_n, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn,
    stride_scale_am, stride_scale_ak, stride_scale_bk, stride_scale_bn, stride_bias_m, stride_bias_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, SCALE_K: tl.constexpr,
    SCALE_M: tl.constexpr, SCALE_N: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """The (BLOCK_M, BLOCK_N) tile of the result at (first_m, first_n) in fp32.

    Operands by descriptors, that of B of its transpose, or by pointers if these are None. A scale of A belongs to
    SCALE_M rows and SCALE_K k, one of B to SCALE_K k and SCALE_N columns. BLOCK_K must divide SCALE_K, so that a step
    has one scale per row and column. Its partial sum starts at 0 and is promoted to the fp32 sum, scaled.
    """
    rm = first_m + tl.arange(0, BLOCK_M)
    rn = first_n + tl.arange(0, BLOCK_N)
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rn = rn.to(tl.int64)
    scale_a_row = scale_a_ptr + (rm // SCALE_M) * stride_scale_am
    scale_b_column = scale_b_ptr + (rn // SCALE_N) * stride_scale_bn
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        if a_desc is not None:
            a = a_desc.load([first_m, k * BLOCK_K])
            b = b_desc.load([first_n, k * BLOCK_K]).T
        else:
            rk = k * BLOCK_K + tl.arange(0, BLOCK_K)
            a_tile = a_ptr + rm[:, None] * stride_am + rk[None, :] * stride_ak
            b_tile = b_ptr + rk[:, None] * stride_bk + rn[None, :] * stride_bn
            if EVEN_K:
                a = tl.load(a_tile, mask=(rm < M)[:, None])
                b = tl.load(b_tile, mask=(rn < N)[None, :])
            else:
                a = tl.load(a_tile, mask=(rm < M)[:, None] & (rk < K)[None, :], other=0.0)
                b = tl.load(b_tile, mask=(rn < N)[None, :] & (rk < K)[:, None], other=0.0)
        block = k * BLOCK_K // SCALE_K
        scale_a = tl.load(scale_a_row + block * stride_scale_ak, mask=rm < M)
        scale_b = tl.load(scale_b_column + block * stride_scale_bk, mask=rn < N)
        acc += tl.dot(a, b) * scale_a[:, None] * scale_b[None, :]
    return epilogue(
        acc, rm, rn, M, N, None, None, 0, 0, bias_ptr, stride_bias_m, stride_bias_n, 1.0, 1.0,
        False, HAS_BIAS, False, WIDE_INDEX,
    )  # fmt: skip


@triton.jit
def gemm_blockwise(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    stride_scale_am, stride_scale_ak, stride_scale_bk, stride_scale_bn, stride_bias_m, stride_bias_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, SCALE_K: tl.constexpr,
    SCALE_M: tl.constexpr, SCALE_N: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """C[M,N] = sum over blocks of (A @ B) * scale_a * scale_b (+ bias); grid (tiles,)."""
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    acc = scaled_tile(
        a_ptr, b_ptr, None, None, scale_a_ptr, scale_b_ptr, bias_ptr, tile_m * BLOCK_M, tile_n * BLOCK_N, M, N, K,
        stride_am, stride_ak, stride_bk, stride_bn,
        stride_scale_am, stride_scale_ak, stride_scale_bk, stride_scale_bn, stride_bias_m, stride_bias_n,
        BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, WIDE_INDEX, SCALE_K, SCALE_M, SCALE_N, HAS_BIAS,
    )  # fmt: skip
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


@triton.jit
def gemm_blockwise_descriptors(
    a_ptr, b_ptr, c_ptr, a_desc, b_desc, c_desc, scale_a_ptr, scale_b_ptr, bias_ptr, M, N, K,
    lda, ldb, stride_cm, stride_cn,
    stride_scale_am, stride_scale_ak, stride_scale_bk, stride_scale_bn, stride_bias_m, stride_bias_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    HAS_PRODUCT: tl.constexpr, ON_DEVICE: tl.constexpr, TMA_STORE: tl.constexpr, WIDE_INDEX: tl.constexpr,
    SCALE_K: tl.constexpr, SCALE_M: tl.constexpr, SCALE_N: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """The same by descriptors, in programs that loop over tiles; grid (min(SMs, tiles),).

    Those that are not made ON_DEVICE are given. ``lda`` is the pitch of A's rows, ``ldb`` that of B's columns. Without
    HAS_PRODUCT, for K == 0, none is made of an operand that is empty.
    """
    if ON_DEVICE and HAS_PRODUCT:
        a_tiles = describe(a_ptr, M, K, lda, BLOCK_M, BLOCK_K, True)
        b_tiles = describe(b_ptr, K, N, ldb, BLOCK_K, BLOCK_N, False)
    else:
        a_tiles = a_desc
        b_tiles = b_desc
    if ON_DEVICE and TMA_STORE:
        c_tiles = describe(c_ptr, M, N, stride_cm, BLOCK_M, BLOCK_N, True)
    else:
        c_tiles = c_desc
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in range(tl.program_id(0), tiles, tl.num_programs(0)):
        tile_m, tile_n = swizzle(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        acc = scaled_tile(
            a_ptr, b_ptr, a_tiles, b_tiles, scale_a_ptr, scale_b_ptr, bias_ptr, tile_m * BLOCK_M, tile_n * BLOCK_N,
            M, N, K, 0, 0, 0, 0,
            stride_scale_am, stride_scale_ak, stride_scale_bk, stride_scale_bn, stride_bias_m, stride_bias_n,
            BLOCK_M, BLOCK_N, BLOCK_K, False, WIDE_INDEX, SCALE_K, SCALE_M, SCALE_N, HAS_BIAS,
        )  # fmt: skip
        if TMA_STORE:
            c_tiles.store([tile_m * BLOCK_M, tile_n * BLOCK_N], acc.to(c_ptr.dtype.element_ty))
        else:
            rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
            rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
            store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)
