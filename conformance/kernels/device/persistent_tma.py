"""Persistent mm, addmm and scaled mm that load operands through tensor descriptors (TMA where the target has it).

With WARP_SPECIALIZE the loop over tiles asks the compiler to give loads, multiplications and epilogue to warps of their
own. STORE_COUNTER makes the epilogue count its tiles itself: what it stores to then does not depend on what the loading
warps compute.
"""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import dot_descriptors, epilogue, split_columns, store_pointers, swizzle


@triton.jit
def _finish_columns(
    acc, c_desc, c_ptr, first_m, first_n, M, N, stride_cm, stride_cn,
    scale_a_ptr, scale_b_ptr, stride_scale_a, stride_scale_b, bias_ptr, stride_bias_m, stride_bias_n, alpha, beta,
    ROWS: tl.constexpr, COLUMNS: tl.constexpr, TMA_STORE: tl.constexpr, WIDE_INDEX: tl.constexpr,
    SCALED: tl.constexpr, HAS_BIAS: tl.constexpr, ADDMM: tl.constexpr,
):  # fmt: skip
    """Epilogue and store of the (ROWS, COLUMNS) block of C at (first_m, first_n)."""
    rm = first_m + tl.arange(0, ROWS)
    rn = first_n + tl.arange(0, COLUMNS)
    acc = epilogue(
        acc, rm, rn, M, N, scale_a_ptr, scale_b_ptr, stride_scale_a, stride_scale_b,
        bias_ptr, stride_bias_m, stride_bias_n, alpha, beta, SCALED, HAS_BIAS, ADDMM, WIDE_INDEX,
    )  # fmt: skip
    if TMA_STORE:
        c_desc.store([first_m, first_n], acc.to(c_ptr.dtype.element_ty))
    else:
        store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


@triton.jit
def _persistent_tiles(
    a_desc, b_desc, c_desc, c_ptr, scale_a_ptr, scale_b_ptr, bias_ptr, M, N, K, stride_cm, stride_cn,
    stride_scale_a, stride_scale_b, stride_bias_m, stride_bias_n, alpha, beta,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, HAS_PRODUCT: tl.constexpr,
    WARP_SPECIALIZE: tl.constexpr, STORE_COUNTER: tl.constexpr,
    TMA_STORE: tl.constexpr, EPILOGUE_SUBTILE: tl.constexpr, FLATTEN: tl.constexpr, WIDE_INDEX: tl.constexpr,
    PRECISION: tl.constexpr, PROMOTE: tl.constexpr, SCALED: tl.constexpr, HAS_BIAS: tl.constexpr, ADDMM: tl.constexpr,
):  # fmt: skip
    """Program p computes tiles p, p + programs, p + 2 * programs, ... of C."""
    tiles = tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N)
    COLUMNS: tl.constexpr = BLOCK_N // EPILOGUE_SUBTILE
    if STORE_COUNTER:
        programs = tl.num_programs(0)
        stored_tile = tl.program_id(0) - programs
    for tile in tl.range(
        tl.program_id(0), tiles, tl.num_programs(0), flatten=FLATTEN, warp_specialize=WARP_SPECIALIZE and HAS_PRODUCT
    ):
        tile_m, tile_n = swizzle(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        first_m = tile_m * BLOCK_M
        first_n = tile_n * BLOCK_N
        if HAS_PRODUCT:
            acc = dot_descriptors(
                a_desc, b_desc, first_m, first_n, K, BLOCK_M, BLOCK_N, BLOCK_K,
                A_ROW_MAJOR, B_ROW_MAJOR, PRECISION, PROMOTE,
            )  # fmt: skip
        else:
            acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        if STORE_COUNTER:
            stored_tile += programs
            tile_m, tile_n = swizzle(stored_tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        if EPILOGUE_SUBTILE == 1:
            parts = (acc,)
        elif EPILOGUE_SUBTILE == 2:
            parts = split_columns(acc, BLOCK_M, BLOCK_N)
        else:
            left, right = split_columns(acc, BLOCK_M, BLOCK_N)
            parts = split_columns(left, BLOCK_M, BLOCK_N // 2) + split_columns(right, BLOCK_M, BLOCK_N // 2)
        for part in tl.static_range(EPILOGUE_SUBTILE):
            _finish_columns(
                parts[part], c_desc, c_ptr, tile_m * BLOCK_M, tile_n * BLOCK_N + part * COLUMNS,
                M, N, stride_cm, stride_cn,
                scale_a_ptr, scale_b_ptr, stride_scale_a, stride_scale_b,
                bias_ptr, stride_bias_m, stride_bias_n, alpha, beta,
                BLOCK_M, COLUMNS, TMA_STORE, WIDE_INDEX, SCALED, HAS_BIAS, ADDMM,
            )  # fmt: skip


@triton.jit
def gemm_persistent_device_descriptors(
    a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, bias_ptr, M, N, K, lda, ldb, stride_cm, stride_cn,
    stride_scale_a, stride_scale_b, stride_bias_m, stride_bias_n, alpha, beta,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, HAS_PRODUCT: tl.constexpr,
    WARP_SPECIALIZE: tl.constexpr, STORE_COUNTER: tl.constexpr,
    TMA_STORE: tl.constexpr, EPILOGUE_SUBTILE: tl.constexpr, FLATTEN: tl.constexpr, WIDE_INDEX: tl.constexpr,
    PRECISION: tl.constexpr, PROMOTE: tl.constexpr, SCALED: tl.constexpr, HAS_BIAS: tl.constexpr, ADDMM: tl.constexpr,
):  # fmt: skip
    """C = epilogue(A @ B) with descriptors built by each program; grid (min(SMs, tiles),).

    ``lda`` and ``ldb`` are the leading strides in elements of A and B as they lie in memory. HAS_PRODUCT is false for
    K == 0 and alpha == 0: no descriptor is built over an operand that is empty or must not be read.
    """
    if HAS_PRODUCT:
        if A_ROW_MAJOR:
            a_desc = tl.make_tensor_descriptor(a_ptr, [M, K], [lda, 1], [BLOCK_M, BLOCK_K])
        else:
            a_desc = tl.make_tensor_descriptor(a_ptr, [K, M], [lda, 1], [BLOCK_K, BLOCK_M])
        if B_ROW_MAJOR:
            b_desc = tl.make_tensor_descriptor(b_ptr, [K, N], [ldb, 1], [BLOCK_K, BLOCK_N])
        else:
            b_desc = tl.make_tensor_descriptor(b_ptr, [N, K], [ldb, 1], [BLOCK_N, BLOCK_K])
    else:
        a_desc = None
        b_desc = None
    if TMA_STORE:
        c_desc = tl.make_tensor_descriptor(c_ptr, [M, N], [stride_cm, 1], [BLOCK_M, BLOCK_N // EPILOGUE_SUBTILE])
    else:
        c_desc = None
    _persistent_tiles(
        a_desc, b_desc, c_desc, c_ptr, scale_a_ptr, scale_b_ptr, bias_ptr, M, N, K, stride_cm, stride_cn,
        stride_scale_a, stride_scale_b, stride_bias_m, stride_bias_n, alpha, beta,
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, A_ROW_MAJOR, B_ROW_MAJOR, HAS_PRODUCT,
        WARP_SPECIALIZE, STORE_COUNTER, TMA_STORE, EPILOGUE_SUBTILE, FLATTEN, WIDE_INDEX,
        PRECISION, PROMOTE, SCALED, HAS_BIAS, ADDMM,
    )  # fmt: skip


@triton.jit
def gemm_persistent_host_descriptors(
    a_desc, b_desc, c_desc, c_ptr, scale_a_ptr, scale_b_ptr, bias_ptr, M, N, K, stride_cm, stride_cn,
    stride_scale_a, stride_scale_b, stride_bias_m, stride_bias_n, alpha, beta,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, HAS_PRODUCT: tl.constexpr,
    WARP_SPECIALIZE: tl.constexpr, STORE_COUNTER: tl.constexpr,
    TMA_STORE: tl.constexpr, EPILOGUE_SUBTILE: tl.constexpr, FLATTEN: tl.constexpr, WIDE_INDEX: tl.constexpr,
    PRECISION: tl.constexpr, PROMOTE: tl.constexpr, SCALED: tl.constexpr, HAS_BIAS: tl.constexpr, ADDMM: tl.constexpr,
):  # fmt: skip
    """The same with descriptors made by the host; one that is not needed is None (``c_desc`` without TMA_STORE)."""
    _persistent_tiles(
        a_desc, b_desc, c_desc, c_ptr, scale_a_ptr, scale_b_ptr, bias_ptr, M, N, K, stride_cm, stride_cn,
        stride_scale_a, stride_scale_b, stride_bias_m, stride_bias_n, alpha, beta,
        BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, A_ROW_MAJOR, B_ROW_MAJOR, HAS_PRODUCT,
        WARP_SPECIALIZE, STORE_COUNTER, TMA_STORE, EPILOGUE_SUBTILE, FLATTEN, WIDE_INDEX,
        PRECISION, PROMOTE, SCALED, HAS_BIAS, ADDMM,
    )  # fmt: skip
