"""Products of block-scaled operands by ``tl.dot_scaled``, of two and three dimensions, by pointer loads and stores."""

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


@triton.jit
def load_batch_of_scales(
    first, in_batch, first_line, first_k, lines, K, stride_line, stride_block,
    LINES: tl.constexpr, BLOCK_K: tl.constexpr, SCALE_BLOCK: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Returns the scales of LINES rows of A, or columns of B, of each matrix of a tile, in the k-block that begins at
    ``first_k``. Their shape is (matrices, LINES, BLOCK_K // SCALE_BLOCK). Those of no matrix, past the last line, and
    of blocks that begin at or past K, are finite.

    ``first``: pointers to the first scale of each matrix, ``in_batch``: whether it is one; both (matrices, 1, 1).
    """
    line = first_line + tl.arange(0, LINES)
    blocks = first_k // SCALE_BLOCK + tl.arange(0, BLOCK_K // SCALE_BLOCK)
    inside = (line < lines)[None, :, None] & (blocks * SCALE_BLOCK < K)[None, None, :]
    if WIDE_INDEX:
        line = line.to(tl.int64)
        blocks = blocks.to(tl.int64)
    places = first + line[None, :, None] * stride_line + blocks[None, None, :] * stride_block
    return tl.load(places, mask=in_batch & inside, other=0.0)


@triton.jit
def gemm_microscaled_batch_tiles(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, batch, M, N, K,
    stride_az, stride_am, stride_ak, stride_bz, stride_bk, stride_bn, stride_cz, stride_cm, stride_cn,
    stride_scale_az, stride_scale_am, stride_scale_ak, stride_scale_bz, stride_scale_bn, stride_scale_bk,
    A_CODES: tl.constexpr, B_CODES: tl.constexpr, A_ALONG_M: tl.constexpr, A_ALONG_K: tl.constexpr,
    B_ALONG_K: tl.constexpr, B_ALONG_N: tl.constexpr, SCALED_A: tl.constexpr, SCALED_B: tl.constexpr,
    SCALE_BLOCK_A: tl.constexpr, SCALE_BLOCK_B: tl.constexpr, MATRICES: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """C[z] = A[z] @ B[z] of codes times scales; a program computes one tile of MATRICES matrices by one product of
    three dimensions for each block of k. Grid (tiles of one matrix * ceil(batch / MATRICES),).

    Matrices past the last are neither read nor written. ``stride_?z`` is the step from one matrix of the batch to the
    next. ``?_ALONG_?``: codes in one element of the tensor along a dimension, 1 or 2. A scale holds for SCALE_BLOCK_? k
    of a row of A or a column of B. Codes past K are 0, and so is their product with scales, which are finite there.
    """
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    tile_m, tile_n = swizzle(tl.program_id(0) % tiles, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    matrix = (tl.program_id(0) // tiles * MATRICES + tl.arange(0, MATRICES))[:, None, None]
    in_batch = matrix < batch
    # 64 bits wide whatever WIDE_INDEX says: one address per matrix costs little
    matrix = matrix.to(tl.int64)
    ra = tile_m * (BLOCK_M // A_ALONG_M) + tl.arange(0, BLOCK_M // A_ALONG_M)
    rb = tile_n * (BLOCK_N // B_ALONG_N) + tl.arange(0, BLOCK_N // B_ALONG_N)
    in_a = in_batch & (ra < M // A_ALONG_M)[None, :, None]
    in_b = in_batch & (rb < N // B_ALONG_N)[None, None, :]
    if WIDE_INDEX:
        ra = ra.to(tl.int64)
        rb = rb.to(tl.int64)
    a_rows = a_ptr + matrix * stride_az + ra[None, :, None] * stride_am
    b_columns = b_ptr + matrix * stride_bz + rb[None, None, :] * stride_bn
    acc = tl.zeros((MATRICES, BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        ka = k * (BLOCK_K // A_ALONG_K) + tl.arange(0, BLOCK_K // A_ALONG_K)
        kb = k * (BLOCK_K // B_ALONG_K) + tl.arange(0, BLOCK_K // B_ALONG_K)
        a_mask = in_a & (ka < K // A_ALONG_K)[None, None, :]
        b_mask = in_b & (kb < K // B_ALONG_K)[None, :, None]
        if WIDE_INDEX:
            ka = ka.to(tl.int64)
            kb = kb.to(tl.int64)
        a = tl.load(a_rows + ka[None, None, :] * stride_ak, mask=a_mask, other=0.0)
        b = tl.load(b_columns + kb[None, :, None] * stride_bk, mask=b_mask, other=0.0)
        scale_a = None
        if SCALED_A:
            scale_a = load_batch_of_scales(
                scale_a_ptr + matrix * stride_scale_az, in_batch, tile_m * BLOCK_M, k * BLOCK_K, M, K,
                stride_scale_am, stride_scale_ak, BLOCK_M, BLOCK_K, SCALE_BLOCK_A, WIDE_INDEX,
            )  # fmt: skip
        scale_b = None
        if SCALED_B:
            scale_b = load_batch_of_scales(
                scale_b_ptr + matrix * stride_scale_bz, in_batch, tile_n * BLOCK_N, k * BLOCK_K, N, K,
                stride_scale_bn, stride_scale_bk, BLOCK_N, BLOCK_K, SCALE_BLOCK_B, WIDE_INDEX,
            )  # fmt: skip
        acc = tl.dot_scaled(
            a, scale_a, A_CODES, b, scale_b, B_CODES, acc, lhs_k_pack=A_ALONG_M == 1, rhs_k_pack=B_ALONG_N == 1
        )
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = in_batch & (rm < M)[None, :, None] & (rn < N)[None, None, :]
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rn = rn.to(tl.int64)
    places = c_ptr + matrix * stride_cz + rm[None, :, None] * stride_cm + rn[None, None, :] * stride_cn
    tl.store(places, acc.to(c_ptr.dtype.element_ty), mask=inside)
