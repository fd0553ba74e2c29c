"""Batches of products of block-scaled operands: codes by descriptors of all matrices, in persistent programs."""

import triton
import triton.language as tl

from conformance.kernels.device.descriptors import describe_batch
from conformance.kernels.device.microscaled_persistent_tma import scaled_dot_descriptors
from conformance.kernels.device.scaled_tiles import describe_batch_of_scales
from conformance.kernels.device.tiles import store_pointers, swizzle


@triton.jit
def gemm_microscaled_batch(
    a_ptr, b_ptr, c_ptr, a_desc, b_desc, c_desc, scale_a_ptr, scale_b_ptr, batch, M, N, K, lda, ldb, ldc,
    stride_az, stride_bz, stride_cz, stride_cm, stride_cn,
    stride_scale_az, stride_scale_am, stride_scale_ak, stride_scale_bz, stride_scale_bn, stride_scale_bk,
    A_CODES: tl.constexpr, B_CODES: tl.constexpr, A_ALONG_M: tl.constexpr, A_ALONG_K: tl.constexpr,
    B_ALONG_K: tl.constexpr, B_ALONG_N: tl.constexpr, SCALED_A: tl.constexpr, SCALED_B: tl.constexpr,
    SCALE_BLOCK_A: tl.constexpr, SCALE_BLOCK_B: tl.constexpr, SWIZZLED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    DESCRIPTORS: tl.constexpr, A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, HAS_PRODUCT: tl.constexpr,
    TMA_STORE: tl.constexpr, FLATTEN: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """C[z] = A[z] @ B[z] of codes times scales for each matrix z; grid (min(SMs, tiles of all matrices),).

    Descriptors have three dimensions, the first of which is the batch, and blocks of one matrix. Those of the "host"
    are ``?_desc``, None where one is not needed. Then the host describes scales, too: ``scale_?_ptr`` are such
    descriptors for SWIZZLED "described". Otherwise each program makes them. ``stride_?z`` is the step from one matrix
    to the next, ``ld?`` the leading stride of a matrix as it lies in memory. The other arguments are those of
    :func:`scaled_dot_descriptors`. HAS_PRODUCT is false for K == 0: no descriptor is built over an operand that is
    empty.
    """
    if DESCRIPTORS == "device" and HAS_PRODUCT:
        codes_a = describe_batch(
            a_ptr, batch, M // A_ALONG_M, K // A_ALONG_K, stride_az, lda,
            BLOCK_M // A_ALONG_M, BLOCK_K // A_ALONG_K, A_ROW_MAJOR,
        )  # fmt: skip
        codes_b = describe_batch(
            b_ptr, batch, K // B_ALONG_K, N // B_ALONG_N, stride_bz, ldb,
            BLOCK_K // B_ALONG_K, BLOCK_N // B_ALONG_N, B_ROW_MAJOR,
        )  # fmt: skip
    else:
        codes_a = a_desc
        codes_b = b_desc
    if DESCRIPTORS == "device" and TMA_STORE:
        result = describe_batch(c_ptr, batch, M, N, stride_cz, ldc, BLOCK_M, BLOCK_N, True)
    else:
        result = c_desc
    scales_a = scale_a_ptr
    scales_b = scale_b_ptr
    if SWIZZLED == "described" and DESCRIPTORS == "device" and HAS_PRODUCT:
        if SCALED_A:
            scales_a = describe_batch_of_scales(
                scale_a_ptr, batch, M, K, stride_scale_az, stride_scale_am, stride_scale_ak,
                BLOCK_M, BLOCK_K, SCALE_BLOCK_A,
            )  # fmt: skip
        if SCALED_B:
            scales_b = describe_batch_of_scales(
                scale_b_ptr, batch, N, K, stride_scale_bz, stride_scale_bn, stride_scale_bk,
                BLOCK_N, BLOCK_K, SCALE_BLOCK_B,
            )  # fmt: skip
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(tl.program_id(0), tiles * batch, tl.num_programs(0), flatten=FLATTEN):
        matrix = tile // tiles
        tile_m, tile_n = swizzle(tile % tiles, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        # 64 bits wide whatever WIDE_INDEX says: one address per tile costs nothing
        number = matrix.to(tl.int64)
        if HAS_PRODUCT:
            matrix_scales_a = scales_a
            matrix_scales_b = scales_b
            if SCALED_A and SWIZZLED != "described":
                matrix_scales_a = scales_a + number * stride_scale_az
            if SCALED_B and SWIZZLED != "described":
                matrix_scales_b = scales_b + number * stride_scale_bz
            acc = scaled_dot_descriptors(
                codes_a, codes_b, matrix, 0, matrix_scales_a, matrix_scales_b, tile_m, tile_n, M, N, K,
                stride_scale_am, stride_scale_ak, stride_scale_bn, stride_scale_bk,
                A_CODES, B_CODES, A_ALONG_M, A_ALONG_K, B_ALONG_K, B_ALONG_N, SCALED_A, SCALED_B,
                SCALE_BLOCK_A, SCALE_BLOCK_B, SWIZZLED, BLOCK_M, BLOCK_N, BLOCK_K, A_ROW_MAJOR, B_ROW_MAJOR,
                True, WIDE_INDEX, A_BATCH=True,
            )  # fmt: skip
        else:
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        if TMA_STORE:
            block = acc.to(c_ptr.dtype.element_ty).reshape(1, BLOCK_M, BLOCK_N)
            result.store([matrix, tile_m * BLOCK_M, tile_n * BLOCK_N], block)
        else:
            rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
            rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
            store_pointers(acc, c_ptr + number * stride_cz, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)
