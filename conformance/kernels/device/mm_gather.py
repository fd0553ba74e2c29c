"""mm_gather, mm_scatter and mm_scaled_k: tensor descriptors gather rows of A, scatter rows of the result, or load a
vector in the loop."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import dot_descriptors, store_pointers, swizzle


@triton.jit
def gemm_gathered(
    a_ptr, rows_ptr, b_ptr, c_ptr, M, N, K, source_rows, lda, ldb, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    B_ROW_MAJOR: tl.constexpr, HAS_PRODUCT: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C[m] = A[rows[m]] @ B for an A of ``source_rows`` x K elements; grid (tiles of C,). K == 0 gives zeros.

    ``lda`` and ``ldb`` are the leading strides in elements of A and B as they lie in memory; A is row-major.
    """
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    first_n = tile_n * BLOCK_N
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if HAS_PRODUCT:
        a_desc = tl.make_tensor_descriptor(a_ptr, [source_rows, K], [lda, 1], [1, BLOCK_K])
        if B_ROW_MAJOR:
            b_desc = tl.make_tensor_descriptor(b_ptr, [K, N], [ldb, 1], [BLOCK_K, BLOCK_N])
        else:
            b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [ldb, 1], [BLOCK_N, BLOCK_K])
        # a row past the end of A reads as zero, like every element outside a descriptor
        rows = tl.load(rows_ptr + rm, mask=rm < M, other=source_rows)
        for k in range(0, tl.cdiv(K, BLOCK_K)):
            a = a_desc.gather(rows, k * BLOCK_K)
            if B_ROW_MAJOR:
                b = b_desc.load([k * BLOCK_K, first_n])
            else:
                b = b_desc.load([first_n, k * BLOCK_K]).T
            acc = tl.dot(a, b, acc, input_precision=PRECISION)
    store_pointers(acc, c_ptr, rm, first_n + tl.arange(0, BLOCK_N), M, N, stride_cm, stride_cn, WIDE_INDEX)


@triton.jit
def gemm_described(
    a_ptr, k_scale_ptr, b_ptr, rows_ptr, c_ptr, M, N, K, lda, ldb, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, HAS_PRODUCT: tl.constexpr, WIDE_INDEX: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """C[rows[m]] = (A * k_scale)[m] @ B for a permutation ``rows``; grid (tiles of A @ B,). K == 0 gives zeros.
    Without rows, which are None, pointers store C; without k_scale nothing is scaled.

    ``lda`` and ``ldb`` are the leading strides in elements of A and B as they lie in memory. Rows are scattered to a
    row-major C.
    """
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    first_m = tile_m * BLOCK_M
    first_n = tile_n * BLOCK_N
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    if HAS_PRODUCT:
        if A_ROW_MAJOR:
            a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [lda, 1], [BLOCK_M, BLOCK_K])
        else:
            a_desc = tl.make_tensor_descriptor(a_ptr, [K, M], [lda, 1], [BLOCK_K, BLOCK_M])
        if B_ROW_MAJOR:
            b_desc = tl.make_tensor_descriptor(b_ptr, [K, N], [ldb, 1], [BLOCK_K, BLOCK_N])
        else:
            b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [ldb, 1], [BLOCK_N, BLOCK_K])
        k_scale_desc = None
        if k_scale_ptr is not None:
            k_scale_desc = tl.make_tensor_descriptor(k_scale_ptr, [K], [1], [BLOCK_K])
        acc = dot_descriptors(
            a_desc, b_desc, first_m, first_n, K, BLOCK_M, BLOCK_N, BLOCK_K, A_ROW_MAJOR, B_ROW_MAJOR, PRECISION, None,
            k_scale_desc,
        )  # fmt: skip
    rm = first_m + tl.arange(0, BLOCK_M)
    if rows_ptr is not None:
        c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [stride_cm, 1], [1, BLOCK_N])
        # a row past the end of C is not stored, like every element outside a descriptor
        rows = tl.load(rows_ptr + rm, mask=rm < M, other=M)
        c_desc.scatter(acc.to(c_ptr.dtype.element_ty), rows, first_n)
    else:
        store_pointers(acc, c_ptr, rm, first_n + tl.arange(0, BLOCK_N), M, N, stride_cm, stride_cn, WIDE_INDEX)
