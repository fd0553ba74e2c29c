"""mm_plus_mm: two products in one accumulator, by pointer loads and stores."""

import triton
import triton.language as tl

from conformance.kernels.device.loops import accumulate
from conformance.kernels.device.tiles import store_pointers, swizzle


@triton.jit
def gemm_plus_gemm(
    a_ptr, b_ptr, c_ptr, d_ptr, o_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_ck, stride_dk, stride_dn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """O[M,N] = A[M,K] @ B[K,N] + C[M,K] @ D[K,N]; grid (tiles,)."""
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc = accumulate(
        acc, a_ptr, b_ptr, rm, rn, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
        BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION,
    )  # fmt: skip
    acc = accumulate(
        acc, c_ptr, d_ptr, rm, rn, M, N, K, stride_cm, stride_ck, stride_dk, stride_dn,
        BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION,
    )  # fmt: skip
    store_pointers(acc, o_ptr, rm, rn, M, N, stride_om, stride_on, WIDE_INDEX)
