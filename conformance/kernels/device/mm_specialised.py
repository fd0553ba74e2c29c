"""mm, scaled mm and int8 mm by persistent programs whose warps have different work: each form of loop and of load."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import epilogue, load_columns, load_rows, store_pointers, swizzle


@triton.jit
def _k_block(
    a_desc, b_desc, a_ptr, b_ptr, first_m, first_n, first_k, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    A_DESCRIBED: tl.constexpr, B_DESCRIBED: tl.constexpr, A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """The tiles of A, (BLOCK_M, BLOCK_K), and of B, (BLOCK_K, BLOCK_N), at ``first_k``; zero past the edges."""
    if A_DESCRIBED:
        if A_ROW_MAJOR:
            a = a_desc.load([first_m, first_k])
        else:
            a = a_desc.load([first_k, first_m]).T
    else:
        rm = first_m + tl.arange(0, BLOCK_M)
        a = load_rows(a_ptr, rm, first_k, M, K, stride_am, stride_ak, BLOCK_K, EVEN_K, WIDE_INDEX)
    if B_DESCRIBED:
        if B_ROW_MAJOR:
            b = b_desc.load([first_k, first_n])
        else:
            b = b_desc.load([first_n, first_k]).T
    else:
        rn = first_n + tl.arange(0, BLOCK_N)
        b = load_columns(b_ptr, rn, first_k, N, K, stride_bk, stride_bn, BLOCK_K, EVEN_K, WIDE_INDEX)
    return a, b


@triton.jit
def gemm_specialised(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, bias_ptr, M, N, K, lda, ldb,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, stride_scale_a, stride_scale_b,
    stride_bias_m, stride_bias_n,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_DESCRIBED: tl.constexpr, B_DESCRIBED: tl.constexpr, A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr,
    HAS_PRODUCT: tl.constexpr, INNER: tl.constexpr, FLATTEN: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr, PROMOTE: tl.constexpr,
    SCALED: tl.constexpr, HAS_BIAS: tl.constexpr, SUM: tl.constexpr,
):  # fmt: skip
    """C[M,N] = A[M,K] @ B[K,N] summed in dtype SUM, scaled, plus a bias; grid (min(SMs, tiles),).

    Program p computes tiles p, p + programs, ... of C.
    INNER: warps have different work in the loop over k, else in the loop over tiles, which FLATTEN makes one with the
    other. ``lda`` and ``ldb`` are the leading strides in elements of A and B as they lie in memory; a descriptor takes
    them, and pointers the other strides. Without HAS_PRODUCT no descriptor is made over an operand that is empty.
    """
    a_desc = None
    b_desc = None
    if HAS_PRODUCT:
        if A_DESCRIBED:
            if A_ROW_MAJOR:
                a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [lda, 1], [BLOCK_M, BLOCK_K])
            else:
                a_desc = tl.make_tensor_descriptor(a_ptr, [K, M], [lda, 1], [BLOCK_K, BLOCK_M])
        if B_DESCRIBED:
            if B_ROW_MAJOR:
                b_desc = tl.make_tensor_descriptor(b_ptr, [K, N], [ldb, 1], [BLOCK_K, BLOCK_N])
            else:
                b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [ldb, 1], [BLOCK_N, BLOCK_K])
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    for tile in tl.range(
        tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN, warp_specialize=HAS_PRODUCT and not INNER
    ):
        tile_m, tile_n = swizzle(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        first_m = tile_m * BLOCK_M
        first_n = tile_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=SUM)
        if HAS_PRODUCT:
            for k in tl.range(0, tl.cdiv(K, BLOCK_K), warp_specialize=INNER):
                a, b = _k_block(
                    a_desc, b_desc, a_ptr, b_ptr, first_m, first_n, k * BLOCK_K, M, N, K,
                    stride_am, stride_ak, stride_bk, stride_bn, BLOCK_M, BLOCK_N, BLOCK_K,
                    A_DESCRIBED, B_DESCRIBED, A_ROW_MAJOR, B_ROW_MAJOR, EVEN_K, WIDE_INDEX,
                )  # fmt: skip
                acc = tl.dot(a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=PROMOTE, out_dtype=SUM)
        rm = first_m + tl.arange(0, BLOCK_M)
        rn = first_n + tl.arange(0, BLOCK_N)
        acc = epilogue(
            acc, rm, rn, M, N, scale_a_ptr, scale_b_ptr, stride_scale_a, stride_scale_b,
            bias_ptr, stride_bias_m, stride_bias_n, 1.0, 0.0, SCALED, HAS_BIAS, False, WIDE_INDEX,
        )  # fmt: skip
        store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)
