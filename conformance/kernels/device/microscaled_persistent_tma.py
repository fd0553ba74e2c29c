"""Products of block-scaled operands by tensor descriptors: persistent programs that loop over tiles."""

import triton
import triton.language as tl

from conformance.kernels.device.descriptors import describe, load_block
from conformance.kernels.device.scaled_tiles import describe_scales, load_scales
from conformance.kernels.device.tiles import store_pointers, swizzle


@triton.jit
def scaled_dot_descriptors(
    a_desc, b_desc, matrix, first_row, scale_a_ptr, scale_b_ptr, tile_m, tile_n, M, N, K,
    stride_scale_am, stride_scale_ak, stride_scale_bn, stride_scale_bk,
    A_CODES: tl.constexpr, B_CODES: tl.constexpr, A_ALONG_M: tl.constexpr, A_ALONG_K: tl.constexpr,
    B_ALONG_K: tl.constexpr, B_ALONG_N: tl.constexpr, SCALED_A: tl.constexpr, SCALED_B: tl.constexpr,
    SCALE_BLOCK_A: tl.constexpr, SCALE_BLOCK_B: tl.constexpr, SWIZZLED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, B_BATCH: tl.constexpr, WIDE_INDEX: tl.constexpr,
    A_BATCH: tl.constexpr = False,
):  # fmt: skip
    """The tile (tile_m, tile_n) of A @ B over all of K: (BLOCK_M, BLOCK_N) fp32.

    Codes by descriptors, of a column-major operand by one of its transpose; outside the described shape they are zero.
    A begins in row ``first_row`` of what its descriptor describes. B is number ``matrix`` of a batch with B_BATCH. With
    A_BATCH so is A, and so are scales by descriptors. Scales by masked pointer loads are those of one matrix. The other
    arguments are those of :func:`.scaled_tiles.scaled_dot_pointers`.
    """
    first_a = tile_m * (BLOCK_M // A_ALONG_M)
    first_b = tile_n * (BLOCK_N // B_ALONG_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        ka = k * (BLOCK_K // A_ALONG_K)
        kb = k * (BLOCK_K // B_ALONG_K)
        a = load_block(
            a_desc, matrix, first_row + first_a, ka, BLOCK_M // A_ALONG_M, BLOCK_K // A_ALONG_K, A_ROW_MAJOR, A_BATCH
        )
        b = load_block(b_desc, matrix, kb, first_b, BLOCK_K // B_ALONG_K, BLOCK_N // B_ALONG_N, B_ROW_MAJOR, B_BATCH)
        scale_a = None
        if SCALED_A:
            scale_a = load_scales(
                scale_a_ptr, tile_m * BLOCK_M, k * BLOCK_K, M, K, stride_scale_am, stride_scale_ak,
                BLOCK_M, BLOCK_K, SCALE_BLOCK_A, SWIZZLED, WIDE_INDEX, matrix=matrix, BATCH=A_BATCH,
            )  # fmt: skip
        scale_b = None
        if SCALED_B:
            scale_b = load_scales(
                scale_b_ptr, tile_n * BLOCK_N, k * BLOCK_K, N, K, stride_scale_bn, stride_scale_bk,
                BLOCK_N, BLOCK_K, SCALE_BLOCK_B, SWIZZLED, WIDE_INDEX, matrix=matrix, BATCH=A_BATCH,
            )  # fmt: skip
        acc = tl.dot_scaled(
            a, scale_a, A_CODES, b, scale_b, B_CODES, acc, lhs_k_pack=A_ALONG_M == 1, rhs_k_pack=B_ALONG_N == 1
        )
    return acc


@triton.jit
def _persistent_scaled_tiles(
    a_desc, b_desc, c_desc, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K, stride_cm, stride_cn,
    stride_scale_am, stride_scale_ak, stride_scale_bn, stride_scale_bk,
    A_CODES: tl.constexpr, B_CODES: tl.constexpr, A_ALONG_M: tl.constexpr, A_ALONG_K: tl.constexpr,
    B_ALONG_K: tl.constexpr, B_ALONG_N: tl.constexpr, SCALED_A: tl.constexpr, SCALED_B: tl.constexpr,
    SCALE_BLOCK_A: tl.constexpr, SCALE_BLOCK_B: tl.constexpr, SWIZZLED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, HAS_PRODUCT: tl.constexpr, TMA_STORE: tl.constexpr,
    FLATTEN: tl.constexpr, WARP_SPECIALIZE: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Program p computes tiles p, p + programs, p + 2 * programs, ... of C."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(
        tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN, warp_specialize=WARP_SPECIALIZE and HAS_PRODUCT
    ):
        tile_m, tile_n = swizzle(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        if HAS_PRODUCT:
            acc = scaled_dot_descriptors(
                a_desc, b_desc, 0, 0, scale_a_ptr, scale_b_ptr, tile_m, tile_n, M, N, K,
                stride_scale_am, stride_scale_ak, stride_scale_bn, stride_scale_bk,
                A_CODES, B_CODES, A_ALONG_M, A_ALONG_K, B_ALONG_K, B_ALONG_N, SCALED_A, SCALED_B,
                SCALE_BLOCK_A, SCALE_BLOCK_B, SWIZZLED, BLOCK_M, BLOCK_N, BLOCK_K, A_ROW_MAJOR, B_ROW_MAJOR,
                False, WIDE_INDEX,
            )  # fmt: skip
        else:
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        if TMA_STORE:
            c_desc.store([tile_m * BLOCK_M, tile_n * BLOCK_N], acc.to(c_ptr.dtype.element_ty))
        else:
            rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
            rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
            store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


@triton.jit
def gemm_microscaled_device_descriptors(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K, lda, ldb, stride_cm, stride_cn,
    stride_scale_am, stride_scale_ak, stride_scale_bn, stride_scale_bk,
    A_CODES: tl.constexpr, B_CODES: tl.constexpr, A_ALONG_M: tl.constexpr, A_ALONG_K: tl.constexpr,
    B_ALONG_K: tl.constexpr, B_ALONG_N: tl.constexpr, SCALED_A: tl.constexpr, SCALED_B: tl.constexpr,
    SCALE_BLOCK_A: tl.constexpr, SCALE_BLOCK_B: tl.constexpr, SWIZZLED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, HAS_PRODUCT: tl.constexpr, TMA_STORE: tl.constexpr,
    FLATTEN: tl.constexpr, WARP_SPECIALIZE: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """C[M,N] = A[M,K] @ B[K,N] of codes times scales, with descriptors built by each program; grid
    (min(SMs, tiles),).

    ``lda`` and ``ldb`` are the leading strides in elements of A and B as they lie in memory. HAS_PRODUCT is false for
    K == 0: no descriptor is built over an operand that is empty.
    """
    if HAS_PRODUCT:
        a_desc = describe(
            a_ptr, M // A_ALONG_M, K // A_ALONG_K, lda, BLOCK_M // A_ALONG_M, BLOCK_K // A_ALONG_K, A_ROW_MAJOR
        )
        b_desc = describe(
            b_ptr, K // B_ALONG_K, N // B_ALONG_N, ldb, BLOCK_K // B_ALONG_K, BLOCK_N // B_ALONG_N, B_ROW_MAJOR
        )
    else:
        a_desc = None
        b_desc = None
    if TMA_STORE:
        c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [stride_cm, 1], [BLOCK_M, BLOCK_N])
    else:
        c_desc = None
    scales_a = scale_a_ptr
    scales_b = scale_b_ptr
    if SWIZZLED == "described" and HAS_PRODUCT:
        if SCALED_A:
            scales_a = describe_scales(
                scale_a_ptr, M, K, stride_scale_am, stride_scale_ak, BLOCK_M, BLOCK_K, SCALE_BLOCK_A
            )
        if SCALED_B:
            scales_b = describe_scales(
                scale_b_ptr, N, K, stride_scale_bn, stride_scale_bk, BLOCK_N, BLOCK_K, SCALE_BLOCK_B
            )
    _persistent_scaled_tiles(
        a_desc, b_desc, c_desc, c_ptr, scales_a, scales_b, M, N, K, stride_cm, stride_cn,
        stride_scale_am, stride_scale_ak, stride_scale_bn, stride_scale_bk,
        A_CODES, B_CODES, A_ALONG_M, A_ALONG_K, B_ALONG_K, B_ALONG_N, SCALED_A, SCALED_B, SCALE_BLOCK_A, SCALE_BLOCK_B,
        SWIZZLED, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, A_ROW_MAJOR, B_ROW_MAJOR, HAS_PRODUCT, TMA_STORE,
        FLATTEN, WARP_SPECIALIZE, WIDE_INDEX,
    )  # fmt: skip


@triton.jit
def gemm_microscaled_host_descriptors(
    a_desc, b_desc, c_desc, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K, stride_cm, stride_cn,
    stride_scale_am, stride_scale_ak, stride_scale_bn, stride_scale_bk,
    A_CODES: tl.constexpr, B_CODES: tl.constexpr, A_ALONG_M: tl.constexpr, A_ALONG_K: tl.constexpr,
    B_ALONG_K: tl.constexpr, B_ALONG_N: tl.constexpr, SCALED_A: tl.constexpr, SCALED_B: tl.constexpr,
    SCALE_BLOCK_A: tl.constexpr, SCALE_BLOCK_B: tl.constexpr, SWIZZLED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, HAS_PRODUCT: tl.constexpr, TMA_STORE: tl.constexpr,
    FLATTEN: tl.constexpr, WARP_SPECIALIZE: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """The same with descriptors made by the host, which are in place of ``scale_?_ptr`` for SWIZZLED "described"; one
    that is not needed is None."""
    _persistent_scaled_tiles(
        a_desc, b_desc, c_desc, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K, stride_cm, stride_cn,
        stride_scale_am, stride_scale_ak, stride_scale_bn, stride_scale_bk,
        A_CODES, B_CODES, A_ALONG_M, A_ALONG_K, B_ALONG_K, B_ALONG_N, SCALED_A, SCALED_B, SCALE_BLOCK_A, SCALE_BLOCK_B,
        SWIZZLED, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, A_ROW_MAJOR, B_ROW_MAJOR, HAS_PRODUCT, TMA_STORE,
        FLATTEN, WARP_SPECIALIZE, WIDE_INDEX,
    )  # fmt: skip
