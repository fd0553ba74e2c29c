"""decompose_k_mm: programs multiply parts of K, a second launch sums the parts."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import dot_pointers, store_pointers, swizzle


@triton.jit
def gemm_split_k(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cs, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C[s] = A[:, s * K : (s + 1) * K] @ B[s * K : (s + 1) * K] in fp32, where K is that of one part; grid (tiles of C,
    parts)."""
    part = tl.program_id(1).to(tl.int64)
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    first_k = part * K
    acc = dot_pointers(
        a_ptr + first_k * stride_ak, b_ptr + first_k * stride_bk, rm, rn, M, N, K,
        stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION, None,
    )  # fmt: skip
    store_pointers(acc, c_ptr + part * stride_cs, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


@triton.jit
def sum_parts(
    parts_ptr, c_ptr, splits, M, N, stride_parts_s, stride_parts_m, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """C[M,N] = parts[0] + parts[1] + ... in this order, summed in fp32; grid (tiles,)."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    rm = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rn = rn.to(tl.int64)
    inside = (rm < M)[:, None] & (rn < N)[None, :]
    tile = parts_ptr + rm[:, None] * stride_parts_m + rn[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for _part in range(splits):
        acc += tl.load(tile, mask=inside)
        tile += stride_parts_s
    target = c_ptr + rm[:, None] * stride_cm + rn[None, :] * stride_cn
    tl.store(target, acc.to(c_ptr.dtype.element_ty), mask=inside)
