"""int_mm and mixed_mm: integer operands by pointer loads and stores, B converted to A's dtype."""

import triton
import triton.language as tl

from conformance.kernels.device.loops import accumulate
from conformance.kernels.device.tiles import store_pointers, swizzle


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
