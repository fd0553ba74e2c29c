"""microscaled_mm: products of block-scaled operands by ``tl.dot_scaled``, by pointer loads and stores, any strides."""

import triton
import triton.language as tl

from conformance.kernels.device.scaled_tiles import scaled_dot_pointers
from conformance.kernels.device.tiles import store_pointers, swizzle


@triton.jit
def gemm_microscaled(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K,
    stride_az, stride_am, stride_ak, stride_bz, stride_bk, stride_bn, stride_cz, stride_cm, stride_cn,
    stride_scale_az, stride_scale_am, stride_scale_ak, stride_scale_bz, stride_scale_bn, stride_scale_bk,
    A_CODES: tl.constexpr, B_CODES: tl.constexpr, A_ALONG_M: tl.constexpr, A_ALONG_K: tl.constexpr,
    B_ALONG_K: tl.constexpr, B_ALONG_N: tl.constexpr, SCALED_A: tl.constexpr, SCALED_B: tl.constexpr,
    SCALE_BLOCK_A: tl.constexpr, SCALE_BLOCK_B: tl.constexpr, SWIZZLED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """C[M,N] = A[M,K] @ B[K,N] of codes times scales; grid (tiles, batch). The other arguments are those of
    :func:`scaled_dot_pointers`; ``stride_?z`` is the step from one matrix of the batch to the next."""
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    matrix = tl.program_id(1).to(tl.int64)
    if SCALED_A:
        scale_a_ptr += matrix * stride_scale_az
    if SCALED_B:
        scale_b_ptr += matrix * stride_scale_bz
    acc = scaled_dot_pointers(
        a_ptr + matrix * stride_az, b_ptr + matrix * stride_bz, scale_a_ptr, scale_b_ptr, tile_m, tile_n, M, N, K,
        stride_am, stride_ak, stride_bk, stride_bn,
        stride_scale_am, stride_scale_ak, stride_scale_bn, stride_scale_bk,
        A_CODES, B_CODES, A_ALONG_M, A_ALONG_K, B_ALONG_K, B_ALONG_N, SCALED_A, SCALED_B, SCALE_BLOCK_A, SCALE_BLOCK_B,
        SWIZZLED, BLOCK_M, BLOCK_N, BLOCK_K, WIDE_INDEX, EVEN_K,
    )  # fmt: skip
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    store_pointers(acc, c_ptr + matrix * stride_cz, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)
