"""Grouped products of block-scaled operands: a persistent loop over the tiles of all groups, codes by pointers or by
descriptors."""

import triton
import triton.language as tl

from conformance.kernels.device.descriptors import describe
from conformance.kernels.device.microscaled_persistent_tma import scaled_dot_descriptors
from conformance.kernels.device.scaled_tiles import scaled_dot_pointers
from conformance.kernels.device.tiles import store_pointers, swizzle


@triton.jit
def gemm_microscaled_grouped(
    a_ptr, b_ptr, c_ptr, a_desc, b_desc, scale_a_ptr, scale_b_ptr, offsets_ptr, groups, M, N, K, lda, ldb,
    stride_am, stride_ak, stride_bz, stride_bk, stride_bn, stride_cm, stride_cn,
    stride_scale_am, stride_scale_ak, stride_scale_bz, stride_scale_bn, stride_scale_bk,
    A_CODES: tl.constexpr, B_CODES: tl.constexpr, A_ALONG_M: tl.constexpr, A_ALONG_K: tl.constexpr,
    B_ALONG_K: tl.constexpr, B_ALONG_N: tl.constexpr, SCALED_A: tl.constexpr, SCALED_B: tl.constexpr,
    SCALE_BLOCK_A: tl.constexpr, SCALE_BLOCK_B: tl.constexpr, SWIZZLED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    DESCRIPTORS: tl.constexpr, A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, HAS_PRODUCT: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """C_g = A_g @ B_g for each group g of rows; grid (min(SMs, tiles),), and any other of one dimension is right too.

    The offsets hold where each group ends in the rows of A and C. ``stride_?z`` is the step from one group's B, or its
    scales, to the next. The tiles of all groups are numbered one after the other; program p computes those with number
    p, p + programs, ... The other arguments are those of :func:`scaled_dot_pointers`; EVEN_K is for codes by pointers.

    With DESCRIPTORS codes are loaded by them. The "host" makes descriptors of all rows of A and of all matrices B. The
    "device" makes one of all rows of A, and one of each B. A descriptor of A goes on where a group ends: what a tile
    has of the next one's rows is not stored. ``M`` is the rows of all groups, ``lda`` and ``ldb`` are the leading
    strides of A and B as they lie in memory.
    """
    programs = tl.num_programs(0)
    begin = tl.full((), 0, tl.int32)
    earlier_tiles = tl.full((), 0, tl.int32)
    if DESCRIPTORS == "device" and HAS_PRODUCT:
        a_tiles = describe(
            a_ptr, M // A_ALONG_M, K // A_ALONG_K, lda, BLOCK_M // A_ALONG_M, BLOCK_K // A_ALONG_K, A_ROW_MAJOR
        )
    else:
        a_tiles = a_desc
    for group in range(groups):
        end = tl.load(offsets_ptr + group)
        rows = end - begin
        tiles = tl.cdiv(rows, BLOCK_M) * tl.cdiv(N, BLOCK_N)
        mine = (tl.program_id(0) + programs - earlier_tiles % programs) % programs
        first_row = begin.to(tl.int64)
        if DESCRIPTORS == "device" and HAS_PRODUCT:
            b_tiles = describe(
                b_ptr, K // B_ALONG_K, N // B_ALONG_N, ldb, BLOCK_K // B_ALONG_K, BLOCK_N // B_ALONG_N, B_ROW_MAJOR
            )
        else:
            b_tiles = b_desc
        for tile in range(mine, tiles, programs):
            tile_m, tile_n = swizzle(tile, rows, N, BLOCK_M, BLOCK_N, GROUP_M)
            group_scale_a = scale_a_ptr
            if SCALED_A:
                group_scale_a = scale_a_ptr + first_row * stride_scale_am
            if DESCRIPTORS == "":
                acc = scaled_dot_pointers(
                    a_ptr + first_row * stride_am, b_ptr, group_scale_a, scale_b_ptr, tile_m, tile_n, rows, N, K,
                    stride_am, stride_ak, stride_bk, stride_bn,
                    stride_scale_am, stride_scale_ak, stride_scale_bn, stride_scale_bk,
                    A_CODES, B_CODES, A_ALONG_M, A_ALONG_K, B_ALONG_K, B_ALONG_N, SCALED_A, SCALED_B,
                    SCALE_BLOCK_A, SCALE_BLOCK_B, SWIZZLED, BLOCK_M, BLOCK_N, BLOCK_K, WIDE_INDEX, EVEN_K,
                )  # fmt: skip
            elif HAS_PRODUCT:
                acc = scaled_dot_descriptors(
                    a_tiles, b_tiles, group, begin, group_scale_a, scale_b_ptr, tile_m, tile_n, rows, N, K,
                    stride_scale_am, stride_scale_ak, stride_scale_bn, stride_scale_bk,
                    A_CODES, B_CODES, A_ALONG_M, A_ALONG_K, B_ALONG_K, B_ALONG_N, SCALED_A, SCALED_B,
                    SCALE_BLOCK_A, SCALE_BLOCK_B, SWIZZLED, BLOCK_M, BLOCK_N, BLOCK_K,
                    A_ROW_MAJOR, B_ROW_MAJOR, DESCRIPTORS == "host", WIDE_INDEX,
                )  # fmt: skip
            else:
                acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
            rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
            store_pointers(
                acc, c_ptr + first_row * stride_cm, rm, rn, rows, N, stride_cm, stride_cn, WIDE_INDEX
            )  # fmt: skip
        earlier_tiles += tiles
        begin = end
        # 64 bits wide whatever WIDE_INDEX says: one address per group costs nothing
        b_ptr += tl.full((), stride_bz, tl.int64)
        if SCALED_B:
            scale_b_ptr += tl.full((), stride_scale_bz, tl.int64)
