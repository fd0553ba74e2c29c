"""Products by pointer loads and stores, any strides: plain, scaled, batched, of integers, persistent."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import accumulate, dot_pointers, epilogue, store_pointers, swizzle


@triton.jit
def gemm_pointer(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, bias_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    stride_scale_a, stride_scale_b, stride_bias_m, stride_bias_n, alpha, beta,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr, PROMOTE: tl.constexpr,
    SCALED: tl.constexpr, HAS_BIAS: tl.constexpr, ADDMM: tl.constexpr,
):  # fmt: skip
    """C[M,N] = epilogue(A[M,K] @ B[K,N]); grid (cdiv(M, BLOCK_M) * cdiv(N, BLOCK_N),). K == 0 gives zeros plus bias."""
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = dot_pointers(
        a_ptr, b_ptr, rm, rn, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
        BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION, PROMOTE,
    )  # fmt: skip
    acc = epilogue(
        acc, rm, rn, M, N, scale_a_ptr, scale_b_ptr, stride_scale_a, stride_scale_b,
        bias_ptr, stride_bias_m, stride_bias_n, alpha, beta, SCALED, HAS_BIAS, ADDMM, WIDE_INDEX,
    )  # fmt: skip
    store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


@triton.jit
def gemm_batched(
    a_ptr, b_ptr, c_ptr, bias_ptr, M, N, K,
    stride_az, stride_am, stride_ak, stride_bz, stride_bk, stride_bn, stride_cz, stride_cm, stride_cn,
    stride_bias_z, stride_bias_m, stride_bias_n, alpha, beta,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr, PROMOTE: tl.constexpr,
    HAS_BIAS: tl.constexpr, ADDMM: tl.constexpr,
):  # fmt: skip
    """C[z] = alpha * A[z] @ B[z] + beta * bias[z]; grid (tiles of all matrices,), those of one matrix together.

    The second dimension of a grid ends at 65,535, and a batch may be larger.
    """
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    z = (tl.program_id(0) // tiles).to(tl.int64)
    tile_m, tile_n = swizzle(tl.program_id(0) % tiles, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = dot_pointers(
        a_ptr + z * stride_az, b_ptr + z * stride_bz, rm, rn, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
        BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION, PROMOTE,
    )  # fmt: skip
    if HAS_BIAS:
        bias_ptr += z * stride_bias_z
    acc = epilogue(
        acc, rm, rn, M, N, None, None, 0, 0, bias_ptr, stride_bias_m, stride_bias_n, alpha, beta,
        False, HAS_BIAS, ADDMM, WIDE_INDEX,
    )  # fmt: skip
    store_pointers(acc, c_ptr + z * stride_cz, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


@triton.jit
def gemm_integer(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr, SUM: tl.constexpr,
    IMPLIED_DTYPE: tl.constexpr,
):  # fmt: skip
    """C[M,N] = A[M,K] @ B[K,N], B converted to A's dtype and products summed in dtype SUM; grid (tiles,)."""
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=SUM)
    acc = accumulate(
        acc, a_ptr, b_ptr, rm, rn, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
        BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION, IMPLIED_DTYPE,
    )  # fmt: skip
    store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


@triton.jit
def gemm_persistent_pointers(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr, FLATTEN: tl.constexpr,
):  # fmt: skip
    """C[M,N] = A[M,K] @ B[K,N]; grid (min(SMs, tiles),). Program p computes tiles p, p + programs, ... of C. K == 0
    gives zeros."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN):
        tile_m, tile_n = swizzle(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
        rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
        acc = dot_pointers(
            a_ptr, b_ptr, rm, rn, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
            BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION, None,
        )  # fmt: skip
        store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


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
