"""grouped_mm, and the same with row-wise scales: a persistent loop over the tiles of all groups.

Operands of any strides by pointer loads; or by tensor descriptors, which each program makes again for each group, or
the host once for all of them.
"""

import triton
import triton.language as tl

from conformance.kernels.device.descriptors import describe, load_block
from conformance.kernels.device.tiles import dot_pointers, epilogue, store_pointers, swizzle


@triton.jit
def dot_group(
    a_desc, b_desc, group, first_m, first_n, first_k, k,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, A_BATCH: tl.constexpr, B_BATCH: tl.constexpr,
    MASK_K: tl.constexpr, PRECISION: tl.constexpr, PROMOTE: tl.constexpr,
):  # fmt: skip
    """The (BLOCK_M, BLOCK_N) tile of a group's product over its ``k``, by descriptor loads, in fp32.

    The tile begins in row ``first_m`` of what A's descriptor describes and column ``first_n`` of what B's does, and k
    with ``first_k`` in both. With MASK_K the descriptors go on where the group ends: what follows is left out.
    """
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for step in range(0, tl.cdiv(k, BLOCK_K)):
        at = first_k + step * BLOCK_K
        a = load_block(a_desc, group, first_m, at, BLOCK_M, BLOCK_K, A_ROW_MAJOR, A_BATCH)
        b = load_block(b_desc, group, at, first_n, BLOCK_K, BLOCK_N, B_ROW_MAJOR, B_BATCH)
        if MASK_K:
            inside = tl.arange(0, BLOCK_K) < k - step * BLOCK_K
            a = tl.where(inside[None, :], a, tl.zeros_like(a))
            b = tl.where(inside[:, None], b, tl.zeros_like(b))
        acc = tl.dot(a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=PROMOTE)
    return acc


@triton.jit
def gemm_grouped(
    a_ptr, b_ptr, c_ptr, a_desc, b_desc, c_desc, offsets_ptr, scale_a_ptr, scale_b_ptr, groups, M, N, K, lda, ldb,
    stride_ag, stride_as, stride_am, stride_ak, stride_bg, stride_bs, stride_bk, stride_bn,
    stride_cg, stride_cs, stride_cm, stride_cn,
    stride_scale_ag, stride_scale_as, stride_scale_a, stride_scale_bg, stride_scale_bs, stride_scale_b,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    SPLIT: tl.constexpr, DESCRIPTORS: tl.constexpr, A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr,
    HAS_PRODUCT: tl.constexpr, TMA_STORE: tl.constexpr, SCALED: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr, PROMOTE: tl.constexpr,
):  # fmt: skip
    """C_g = A_g @ B_g for each group g; grid (min(SMs, tiles),), and any other of one dimension is right too.

    SPLIT names the dimension whose extent differs by group, "M", "N", "K" or "" for none: the offsets hold where each
    group ends in it. From one group to the next an operand moves on by ``stride_?g`` elements and by ``stride_?s`` for
    each row, column or k of the group. The tiles of all groups are numbered one after the other; program p computes
    those with number p, p + programs, ... A group of no k is stored as zeros.

    With DESCRIPTORS "device" those of a group end where the group does. They begin with the tensor if that is split,
    because a group may begin anywhere. Those of the "host" are of whole tensors. ``lda`` and ``ldb`` are the leading
    strides in elements of A and B as they lie in memory; ``stride_as`` and ``stride_bs`` are 0, and so are they without
    scales.
    """
    programs = tl.num_programs(0)
    begin = tl.full((), 0, tl.int32)
    earlier_tiles = tl.full((), 0, tl.int32)
    m, n, k = M, N, K
    for group in range(groups):
        size = tl.full((), 0, tl.int32)
        first = begin
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
        # where the group begins in tensors that are split
        in_m = first if SPLIT == "M" else 0
        in_n = first if SPLIT == "N" else 0
        in_k = first if SPLIT == "K" else 0
        if DESCRIPTORS == "device" and HAS_PRODUCT:
            group_a = describe(a_ptr, in_m + m, in_k + k, lda, BLOCK_M, BLOCK_K, A_ROW_MAJOR)
            group_b = describe(b_ptr, in_k + k, in_n + n, ldb, BLOCK_K, BLOCK_N, B_ROW_MAJOR)
        else:
            group_a = a_desc
            group_b = b_desc
        if DESCRIPTORS == "device" and TMA_STORE:
            group_c = describe(c_ptr, m, n, stride_cm, BLOCK_M, BLOCK_N, True)
        else:
            group_c = c_desc
        for tile in range(mine, tiles, programs):
            tile_m, tile_n = swizzle(tile, m, n, BLOCK_M, BLOCK_N, GROUP_M)
            rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
            rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
            if DESCRIPTORS == "":
                acc = dot_pointers(
                    a_ptr, b_ptr, rm, rn, m, n, k, stride_am, stride_ak, stride_bk, stride_bn,
                    BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION, PROMOTE,
                )  # fmt: skip
            elif HAS_PRODUCT:
                acc = dot_group(
                    group_a, group_b, group, in_m + tile_m * BLOCK_M, in_n + tile_n * BLOCK_N, in_k, k,
                    BLOCK_M, BLOCK_N, BLOCK_K, A_ROW_MAJOR, B_ROW_MAJOR,
                    DESCRIPTORS == "host" and (SPLIT == "N" or SPLIT == ""),
                    DESCRIPTORS == "host" and (SPLIT == "M" or SPLIT == ""),
                    DESCRIPTORS == "host" and SPLIT == "K", PRECISION, PROMOTE,
                )  # fmt: skip
            else:
                acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
            acc = epilogue(
                acc, rm, rn, m, n, scale_a_ptr, scale_b_ptr, stride_scale_a, stride_scale_b, None, 0, 0, 1.0, 1.0,
                SCALED, False, False, WIDE_INDEX,
            )  # fmt: skip
            if TMA_STORE and DESCRIPTORS == "host":
                block = acc.to(c_ptr.dtype.element_ty).reshape(1, BLOCK_M, BLOCK_N)
                group_c.store([group, tile_m * BLOCK_M, tile_n * BLOCK_N], block)
            elif TMA_STORE:
                group_c.store([tile_m * BLOCK_M, tile_n * BLOCK_N], acc.to(c_ptr.dtype.element_ty))
            else:
                store_pointers(acc, c_ptr, rm, rn, m, n, stride_cm, stride_cn, WIDE_INDEX)
        earlier_tiles += tiles
        # 64 bits wide whatever WIDE_INDEX says: one address per group costs nothing
        steps = size.to(tl.int64)
        a_ptr += stride_ag + steps * stride_as
        b_ptr += stride_bg + steps * stride_bs
        c_ptr += stride_cg + steps * stride_cs
        if SCALED:
            scale_a_ptr += stride_scale_ag + steps * stride_scale_as
            scale_b_ptr += stride_scale_bg + steps * stride_scale_bs
