"""dual_mm: two products of one A, the first of which gates the second."""

import triton
import triton.language as tl

from conformance.kernels.device.load_tiles import load_columns, load_rows
from conformance.kernels.device.tiles import store_pointers, swizzle


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
