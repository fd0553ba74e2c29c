"""mm_persistent: programs that loop over tiles, with pointer loads and stores."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import dot_pointers, store_pointers, swizzle


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
