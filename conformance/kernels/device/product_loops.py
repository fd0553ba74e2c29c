"""Products by pointers whose loops differ: two products, several a turn, two accumulators, sums of rows, fp16 sums."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import accumulate, load_columns, load_rows, store_pointers, swizzle


@triton.jit
def gemm_plus_gemm(
    a_ptr, b_ptr, c_ptr, d_ptr, o_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_ck, stride_dk, stride_dn, stride_om, stride_on,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """O[M,N] = A[M,K] @ B[K,N] + C[M,K] @ D[K,N]; grid (tiles,)."""
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    acc = accumulate(
        acc, a_ptr, b_ptr, rm, rn, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
        BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION,
    )  # fmt: skip
    acc = accumulate(
        acc, c_ptr, d_ptr, rm, rn, M, N, K, stride_cm, stride_ck, stride_dk, stride_dn,
        BLOCK_K, EVEN_K, WIDE_INDEX, PRECISION,
    )  # fmt: skip
    store_pointers(acc, o_ptr, rm, rn, M, N, stride_om, stride_on, WIDE_INDEX)


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


@triton.jit
def gemm_fp16_acc(
    a_ptr, b_ptr, c_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """C[M,N] = A[M,K] @ B[K,N], all in fp16, the running sum too; grid (tiles,)."""
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float16)
    for k in range(tl.cdiv(K, BLOCK_K)):
        first_k = k * BLOCK_K
        a = load_rows(a_ptr, rm, first_k, M, K, stride_am, stride_ak, BLOCK_K, EVEN_K, WIDE_INDEX)
        b = load_columns(b_ptr, rn, first_k, N, K, stride_bk, stride_bn, BLOCK_K, EVEN_K, WIDE_INDEX)
        acc = tl.dot(a, b, acc, out_dtype=tl.float16)
    store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


@triton.jit
def gemm_dual(
    a_ptr, b_ptr, d_ptr, c_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_dk, stride_dn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C[M,N] = silu(A[M,K] @ B[K,N]) * (A[M,K] @ D[K,N]); grid (tiles,). A's tile is loaded once for both products."""
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    gate = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    factor = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        first_k = k * BLOCK_K
        a = load_rows(a_ptr, rm, first_k, M, K, stride_am, stride_ak, BLOCK_K, EVEN_K, WIDE_INDEX)
        b = load_columns(b_ptr, rn, first_k, N, K, stride_bk, stride_bn, BLOCK_K, EVEN_K, WIDE_INDEX)
        d = load_columns(d_ptr, rn, first_k, N, K, stride_dk, stride_dn, BLOCK_K, EVEN_K, WIDE_INDEX)
        gate = tl.dot(a, b, gate, input_precision=PRECISION)
        factor = tl.dot(a, d, factor, input_precision=PRECISION)
    gated = gate / (1.0 + tl.exp(-gate)) * factor
    store_pointers(gated, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


@triton.jit
def gemm_with_sums(
    a_ptr, b_ptr, c_ptr, sums_ptr, M, N, K, stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C[M,N] = A[M,K] @ B[K,N] and sums[M] = the sum of A's rows; grid (tiles,), one per tile row at least.

    Each tile of A is loaded once for both. The sums are stored by the programs of the first tile column, which exist
    even if N is 0.
    """
    tile_m, tile_n = swizzle(tl.program_id(0), M, max(N, 1), BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    sums = tl.zeros((BLOCK_M,), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        first_k = k * BLOCK_K
        a = load_rows(a_ptr, rm, first_k, M, K, stride_am, stride_ak, BLOCK_K, EVEN_K, WIDE_INDEX)
        b = load_columns(b_ptr, rn, first_k, N, K, stride_bk, stride_bn, BLOCK_K, EVEN_K, WIDE_INDEX)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)
        sums += tl.sum(a.to(tl.float32), 1)
    store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)
    tl.store(sums_ptr + rm, sums, mask=(rm < M) & (tile_n == 0))
