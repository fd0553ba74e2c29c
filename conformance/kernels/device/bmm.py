"""bmm and baddbmm: pointer loads and stores, one tile of one matrix per program, any strides."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import dot_pointers, epilogue, store_pointers, swizzle


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
