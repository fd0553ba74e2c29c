"""mm_gather: rows of A are gathered by a tensor descriptor."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import store_pointers, swizzle


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
