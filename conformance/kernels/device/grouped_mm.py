"""grouped_mm: a persistent loop over the tiles of all groups, by pointer loads and stores, any strides."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import dot_pointers, store_pointers, swizzle


@triton.jit
def gemm_grouped(
    a_ptr, b_ptr, c_ptr, offsets_ptr, groups, M, N, K,
    stride_ag, stride_as, stride_am, stride_ak, stride_bg, stride_bs, stride_bk, stride_bn,
    stride_cg, stride_cs, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SPLIT: tl.constexpr, EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C_g = A_g @ B_g for each group g; grid (min(SMs, tiles),), and any other of one dimension is right too.

    SPLIT names the dimension whose extent differs by group, "M", "N", "K" or "" for none: the offsets hold where each
    group ends in it. From one group to the next an operand moves on by ``stride_?g`` elements and by ``stride_?s`` for
    each row, column or k of the group. The tiles of all groups are numbered one after the other; program p computes
    those with number p, p + programs, ... A group of no k is stored as zeros.
    """
    programs = tl.num_programs(0)
    begin = tl.full((), 0, tl.int32)
    earlier_tiles = tl.full((), 0, tl.int32)
    m, n, k = M, N, K
    for group in range(groups):
        size = tl.full((), 0, tl.int32)
        if SPLIT != "":
            end = tl.load(offsets_ptr + group)
            size = end - begin
            begin = end
        if SPLIT == "M":
            m = size
        if SPLIT == "N":
            n = size
        if SPLIT == "K":
            k = size
        tiles = tl.cdiv(m, BLOCK_M) * tl.cdiv(n, BLOCK_N)
        mine = (tl.program_id(0) + programs - earlier_tiles % programs) % programs
        for tile in range(mine, tiles, programs):
            tile_m, tile_n = swizzle(tile, m, n, BLOCK_M, BLOCK_N, GROUP_M)
            rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
            rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
            acc = dot_pointers(
                a_ptr, b_ptr, rm, rn, m, n, k, stride_am, stride_ak, stride_bk, stride_bn,
                BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION, None,
            )  # fmt: skip
            store_pointers(acc, c_ptr, rm, rn, m, n, stride_cm, stride_cn, WIDE_INDEX)
        earlier_tiles += tiles
        # 64 bits wide whatever WIDE_INDEX says: one address per group costs nothing
        steps = size.to(tl.int64)
        a_ptr += stride_ag + steps * stride_as
        b_ptr += stride_bg + steps * stride_bs
        c_ptr += stride_cg + steps * stride_cs
