"""Common device functions of block-scaled products: scales of a tile from either layout, and the product of a tile by
pointer loads."""

import triton
import triton.language as tl


@triton.jit
def load_scales(
    scale_ptr, first_line, first_k, lines, K, stride_line, stride_block,
    LINES: tl.constexpr, BLOCK_K: tl.constexpr, SCALE_BLOCK: tl.constexpr,
    SWIZZLED: tl.constexpr, WIDE_INDEX: tl.constexpr, EVEN_K: tl.constexpr = False,
    matrix=0, BATCH: tl.constexpr = False,
):  # fmt: skip
    """Scales of LINES rows of A, or columns of B, in the k-block that begins at ``first_k``:
    (LINES, BLOCK_K // SCALE_BLOCK). Those past the last line, and of blocks that begin at or past K, are finite.

    A line and a block of k lie ``stride_line`` and ``stride_block`` elements from the next one. SWIZZLED scales lie in
    tiles of 128 lines by 4 blocks, and these are the strides from tile to tile. Line l and block b of a tile have place
    ``l % 32 * 16 + l // 32 * 4 + b`` in it. They are loaded in that order, as (32, LINES // 32, blocks). With SWIZZLED
    "described" ``scale_ptr`` is a descriptor of such tiles, as :func:`describe_scales` makes it, and the padding of the
    last tiles is loaded, too; with BATCH it is one of all matrices, of which ``matrix`` is a number. EVEN_K: no block
    begins past K.
    """
    blocks = first_k // SCALE_BLOCK + tl.arange(0, BLOCK_K // SCALE_BLOCK)
    in_k = blocks * SCALE_BLOCK < K
    if SWIZZLED == "described":
        if BATCH:
            tiles = scale_ptr.load([matrix, first_line // 128, first_k // (4 * SCALE_BLOCK), 0, 0])
        else:
            tiles = scale_ptr.load([first_line // 128, first_k // (4 * SCALE_BLOCK), 0, 0])
        tiles = tl.reshape(tiles, (LINES // 128, BLOCK_K // SCALE_BLOCK // 4, 32, 4, 4))
        result = tl.reshape(tl.permute(tiles, (0, 3, 2, 1, 4)), (LINES, BLOCK_K // SCALE_BLOCK))
    elif SWIZZLED:
        inner = tl.arange(0, 32)
        outer = first_line // 32 + tl.arange(0, LINES // 32)
        inside = (outer[None, :] * 32 + inner[:, None] < lines)[:, :, None]
        inside = inside if EVEN_K else inside & in_k[None, None, :]
        if WIDE_INDEX:
            outer = outer.to(tl.int64)
            blocks = blocks.to(tl.int64)
        of_lines = inner[:, None] * 16 + (outer // 4 * stride_line + outer % 4 * 4)[None, :]
        of_blocks = blocks // 4 * stride_block + blocks % 4
        place = scale_ptr + of_lines[:, :, None] + of_blocks[None, None, :]
        scales = tl.trans(tl.load(place, mask=inside, other=0.0), 1, 0, 2)
        result = tl.reshape(scales, (LINES, BLOCK_K // SCALE_BLOCK))
    else:
        line = first_line + tl.arange(0, LINES)
        inside = (line < lines)[:, None] if EVEN_K else (line < lines)[:, None] & in_k[None, :]
        if WIDE_INDEX:
            line = line.to(tl.int64)
            blocks = blocks.to(tl.int64)
        place = scale_ptr + line[:, None] * stride_line + blocks[None, :] * stride_block
        result = tl.load(place, mask=inside, other=0.0)
    return result


@triton.jit
def describe_scales(
    scale_ptr, lines, K, stride_line, stride_block,
    LINES: tl.constexpr, BLOCK_K: tl.constexpr, SCALE_BLOCK: tl.constexpr,
):  # fmt: skip
    """A descriptor of swizzled scales: of tiles of 512 elements, in two halves, because a block of a descriptor is 256
    elements wide at most."""
    blocks = tl.cdiv(K, SCALE_BLOCK)
    return tl.make_tensor_descriptor(
        scale_ptr,
        [tl.cdiv(lines, 128), tl.cdiv(blocks, 4), 2, 256],
        [stride_line, stride_block, 256, 1],
        [LINES // 128, BLOCK_K // SCALE_BLOCK // 4, 2, 256],
    )


@triton.jit
def describe_batch_of_scales(
    scale_ptr, batch, lines, K, stride_matrix, stride_line, stride_block,
    LINES: tl.constexpr, BLOCK_K: tl.constexpr, SCALE_BLOCK: tl.constexpr,
):  # fmt: skip
    """The same of the scales of all matrices of a batch: a block has those of one."""
    blocks = tl.cdiv(K, SCALE_BLOCK)
    return tl.make_tensor_descriptor(
        scale_ptr,
        [batch, tl.cdiv(lines, 128), tl.cdiv(blocks, 4), 2, 256],
        [stride_matrix, stride_line, stride_block, 256, 1],
        [1, LINES // 128, BLOCK_K // SCALE_BLOCK // 4, 2, 256],
    )


@triton.jit
def scaled_dot_pointers(
    a_ptr, b_ptr, scale_a_ptr, scale_b_ptr, tile_m, tile_n, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn,
    stride_scale_am, stride_scale_ak, stride_scale_bn, stride_scale_bk,
    A_CODES: tl.constexpr, B_CODES: tl.constexpr, A_ALONG_M: tl.constexpr, A_ALONG_K: tl.constexpr,
    B_ALONG_K: tl.constexpr, B_ALONG_N: tl.constexpr, SCALED_A: tl.constexpr, SCALED_B: tl.constexpr,
    SCALE_BLOCK_A: tl.constexpr, SCALE_BLOCK_B: tl.constexpr, SWIZZLED: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, WIDE_INDEX: tl.constexpr,
    EVEN_K: tl.constexpr = False,
):  # fmt: skip
    """The tile (tile_m, tile_n) of A @ B over all of K, by masked pointer loads: (BLOCK_M, BLOCK_N) fp32.

    ``?_ALONG_?``: codes in one element of the tensor along a dimension, 1 or 2. A scale holds for SCALE_BLOCK_? k of a
    row of A or a column of B. Codes past K are 0, and so is their product with scales, which are finite there. EVEN_K:
    K is a number of whole blocks, and no load has a mask of k.
    """
    ra = tile_m * (BLOCK_M // A_ALONG_M) + tl.arange(0, BLOCK_M // A_ALONG_M)
    rb = tile_n * (BLOCK_N // B_ALONG_N) + tl.arange(0, BLOCK_N // B_ALONG_N)
    if WIDE_INDEX:
        ra = ra.to(tl.int64)
        rb = rb.to(tl.int64)
    a_rows = a_ptr + ra[:, None] * stride_am
    b_columns = b_ptr + rb[None, :] * stride_bn
    in_a = ra[:, None] < M // A_ALONG_M
    in_b = rb[None, :] < N // B_ALONG_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        ka = k * (BLOCK_K // A_ALONG_K) + tl.arange(0, BLOCK_K // A_ALONG_K)
        kb = k * (BLOCK_K // B_ALONG_K) + tl.arange(0, BLOCK_K // B_ALONG_K)
        if WIDE_INDEX:
            ka = ka.to(tl.int64)
            kb = kb.to(tl.int64)
        a = tl.load(
            a_rows + ka[None, :] * stride_ak,
            mask=in_a if EVEN_K else in_a & (ka[None, :] < K // A_ALONG_K),
            other=0.0,
        )
        b = tl.load(
            b_columns + kb[:, None] * stride_bk,
            mask=in_b if EVEN_K else in_b & (kb[:, None] < K // B_ALONG_K),
            other=0.0,
        )
        scale_a = None
        if SCALED_A:
            scale_a = load_scales(
                scale_a_ptr, tile_m * BLOCK_M, k * BLOCK_K, M, K, stride_scale_am, stride_scale_ak,
                BLOCK_M, BLOCK_K, SCALE_BLOCK_A, SWIZZLED, WIDE_INDEX, EVEN_K,
            )  # fmt: skip
        scale_b = None
        if SCALED_B:
            scale_b = load_scales(
                scale_b_ptr, tile_n * BLOCK_N, k * BLOCK_K, N, K, stride_scale_bn, stride_scale_bk,
                BLOCK_N, BLOCK_K, SCALE_BLOCK_B, SWIZZLED, WIDE_INDEX, EVEN_K,
            )  # fmt: skip
        acc = tl.dot_scaled(
            a, scale_a, A_CODES, b, scale_b, B_CODES, acc, lhs_k_pack=A_ALONG_M == 1, rhs_k_pack=B_ALONG_N == 1
        )
    return acc
