"""mm, addmm and scaled mm by pointer loads and stores: one tile per program, any strides."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import dot_pointers, epilogue, store_pointers, swizzle


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
