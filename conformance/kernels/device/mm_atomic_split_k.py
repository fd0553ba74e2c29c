"""mm_atomic_split_k and mm_reduce_split_k: programs multiply parts of K and add their sums to an output that was zeroed
before."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import dot_pointers, swizzle


@triton.jit
def zero_matrix(
    c_ptr, M, N, stride_cm, stride_cn, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr
):
    """C[M,N] = +0; grid (tiles,)."""
    tiles_n = tl.cdiv(N, BLOCK_N)
    rm = tl.program_id(0) // tiles_n * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tl.program_id(0) % tiles_n * BLOCK_N + tl.arange(0, BLOCK_N)
    inside = (rm < M)[:, None] & (rn < N)[None, :]
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rn = rn.to(tl.int64)
    zeros = tl.zeros((BLOCK_M, BLOCK_N), dtype=c_ptr.dtype.element_ty)
    tl.store(c_ptr + rm[:, None] * stride_cm + rn[None, :] * stride_cn, zeros, mask=inside)


@triton.jit
def gemm_atomic_split_k(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr, BY_DESCRIPTOR: tl.constexpr,
):  # fmt: skip
    """C += A[:, s * K : (s + 1) * K] @ B[s * K : (s + 1) * K] for part s of K, in fp32 and in any order. K is that of
    one part; grid (tiles of C, parts). BY_DESCRIPTOR adds whole tiles to a row-major C."""
    part = tl.program_id(1).to(tl.int64)
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    first_k = part * K
    acc = dot_pointers(
        a_ptr + first_k * stride_ak, b_ptr + first_k * stride_bk, rm, rn, M, N, K,
        stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION, None,
    )  # fmt: skip
    # No program reads the output before the launch has ended, so that no program has to see another's sum.
    if BY_DESCRIPTOR:  # by its whole name: Triton 3.3 looks for each name of tl, also in code that it leaves out
        c_desc = triton.language.make_tensor_descriptor(c_ptr, [M, N], [stride_cm, 1], [BLOCK_M, BLOCK_N])
        c_desc.atomic_add([tile_m * BLOCK_M, tile_n * BLOCK_N], acc)
    else:
        if WIDE_INDEX:
            rm = rm.to(tl.int64)
            rn = rn.to(tl.int64)
        inside = (rm < M)[:, None] & (rn < N)[None, :]
        tl.atomic_add(c_ptr + rm[:, None] * stride_cm + rn[None, :] * stride_cn, acc, mask=inside, sem="relaxed")
