"""mm_chained and mm_plus_mm_one_loop: several products through one accumulator in each turn of the loop."""

import triton
import triton.language as tl

from conformance.kernels.device.load_tiles import load_columns, load_rows
from conformance.kernels.device.tiles import store_pointers, swizzle


@triton.jit
def gemm_chained(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr, CHAIN: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C[M,N] = A[M,K] @ B[K,N]; grid (tiles,).

    Each turn of the loop multiplies CHAIN k-blocks that follow each other. Blocks past K are masked to zero. EVEN_K: K
    is a multiple of CHAIN * BLOCK_K.
    """
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for turn in range(tl.cdiv(K, CHAIN * BLOCK_K)):
        for link in tl.static_range(CHAIN):
            first_k = (turn * CHAIN + link) * BLOCK_K
            a = load_rows(a_ptr, rm, first_k, M, K, stride_am, stride_ak, BLOCK_K, EVEN_K, WIDE_INDEX)
            b = load_columns(b_ptr, rn, first_k, N, K, stride_bk, stride_bn, BLOCK_K, EVEN_K, WIDE_INDEX)
            acc = tl.dot(a, b, acc, input_precision=PRECISION)
    store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


@triton.jit
def gemm_plus_gemm_one_loop(
    a_ptr, b_ptr, c_ptr, d_ptr, o_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_ck, stride_dk, stride_dn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """O[M,N] = A[M,K] @ B[K,N] + C[M,K] @ D[K,N]; grid (tiles,). Each turn multiplies one k-block of both products."""
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        first_k = k * BLOCK_K
        a = load_rows(a_ptr, rm, first_k, M, K, stride_am, stride_ak, BLOCK_K, EVEN_K, WIDE_INDEX)
        b = load_columns(b_ptr, rn, first_k, N, K, stride_bk, stride_bn, BLOCK_K, EVEN_K, WIDE_INDEX)
        c = load_rows(c_ptr, rm, first_k, M, K, stride_cm, stride_ck, BLOCK_K, EVEN_K, WIDE_INDEX)
        d = load_columns(d_ptr, rn, first_k, N, K, stride_dk, stride_dn, BLOCK_K, EVEN_K, WIDE_INDEX)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        acc = tl.dot(c, d, acc, input_precision=PRECISION)
    store_pointers(acc, o_ptr, rm, rn, M, N, stride_om, stride_on, WIDE_INDEX)
