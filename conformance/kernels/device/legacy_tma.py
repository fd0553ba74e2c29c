"""mm and scaled mm through the descriptors of Triton 3.2 and 3.3, which later releases do not have.

A descriptor is the address of a CUtensorMap, of which the compiler knows nothing: each load names the shape and the
dtype of its block. The host makes it, or each program in a workspace of its own. Triton 3.3 also has objects that know
their block.
"""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import epilogue, store_pointers, swizzle

#: Bytes of a CUtensorMap.
TENSORMAP_BYTES = tl.constexpr(128)


@triton.jit
def _dot_tensormaps(
    a_desc, b_desc, a_ptr, b_ptr, first_m, first_n, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, PRECISION: tl.constexpr, PROMOTE: tl.constexpr,
):  # fmt: skip
    """``dot_descriptors`` of tiles.py by addresses of tensor maps. The pointers say of which dtype a block is."""
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        first_k = k * BLOCK_K
        if A_ROW_MAJOR:
            a = tl._experimental_descriptor_load(a_desc, [first_m, first_k], [BLOCK_M, BLOCK_K], a_ptr.dtype.element_ty)
        else:
            a = tl._experimental_descriptor_load(
                a_desc, [first_k, first_m], [BLOCK_K, BLOCK_M], a_ptr.dtype.element_ty
            ).T
        if B_ROW_MAJOR:
            b = tl._experimental_descriptor_load(b_desc, [first_k, first_n], [BLOCK_K, BLOCK_N], b_ptr.dtype.element_ty)
        else:
            b = tl._experimental_descriptor_load(
                b_desc, [first_n, first_k], [BLOCK_N, BLOCK_K], b_ptr.dtype.element_ty
            ).T
        acc = tl.dot(a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=PROMOTE, out_dtype=tl.float32)
    return acc


@triton.jit
def _tile(
    tile, a_desc, b_desc, c_desc, a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K, stride_cm, stride_cn,
    stride_scale_a, stride_scale_b,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, HAS_PRODUCT: tl.constexpr,
    TMA_STORE: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr, PROMOTE: tl.constexpr,
    SCALED: tl.constexpr,
):  # fmt: skip
    """Tile number ``tile`` of C."""
    tile_m, tile_n = swizzle(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
    first_m = tile_m * BLOCK_M
    first_n = tile_n * BLOCK_N
    if HAS_PRODUCT:
        acc = _dot_tensormaps(
            a_desc, b_desc, a_ptr, b_ptr, first_m, first_n, K, BLOCK_M, BLOCK_N, BLOCK_K,
            A_ROW_MAJOR, B_ROW_MAJOR, PRECISION, PROMOTE,
        )  # fmt: skip
    else:
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    rm = first_m + tl.arange(0, BLOCK_M)
    rn = first_n + tl.arange(0, BLOCK_N)
    acc = epilogue(
        acc, rm, rn, M, N, scale_a_ptr, scale_b_ptr, stride_scale_a, stride_scale_b, None, 0, 0, 1.0, 0.0,
        SCALED, False, False, WIDE_INDEX,
    )  # fmt: skip
    if TMA_STORE:
        tl._experimental_descriptor_store(c_desc, acc.to(c_ptr.dtype.element_ty), [first_m, first_n])
    else:
        store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)


@triton.jit
def _tiles(
    a_desc, b_desc, c_desc, a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K, stride_cm, stride_cn,
    stride_scale_a, stride_scale_b,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, HAS_PRODUCT: tl.constexpr,
    TMA_STORE: tl.constexpr, PERSISTENT: tl.constexpr, WIDE_INDEX: tl.constexpr,
    PRECISION: tl.constexpr, PROMOTE: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """PERSISTENT: program p computes tiles p, p + programs, ... of C; otherwise tile p alone, without a loop."""
    if PERSISTENT:
        for tile in range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N), tl.num_programs(0)):
            _tile(
                tile, a_desc, b_desc, c_desc, a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K,
                stride_cm, stride_cn, stride_scale_a, stride_scale_b, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
                A_ROW_MAJOR, B_ROW_MAJOR, HAS_PRODUCT, TMA_STORE, WIDE_INDEX, PRECISION, PROMOTE, SCALED,
            )  # fmt: skip
    else:
        _tile(
            tl.program_id(0), a_desc, b_desc, c_desc, a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K,
            stride_cm, stride_cn, stride_scale_a, stride_scale_b, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M,
            A_ROW_MAJOR, B_ROW_MAJOR, HAS_PRODUCT, TMA_STORE, WIDE_INDEX, PRECISION, PROMOTE, SCALED,
        )  # fmt: skip


@triton.jit
def gemm_legacy_host_tensormaps(
    a_desc, b_desc, c_desc, a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K, stride_cm, stride_cn,
    stride_scale_a, stride_scale_b,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, HAS_PRODUCT: tl.constexpr,
    TMA_STORE: tl.constexpr, PERSISTENT: tl.constexpr, WIDE_INDEX: tl.constexpr,
    PRECISION: tl.constexpr, PROMOTE: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """C = A @ B, scaled, with tensor maps made by the host; one that is not needed is None."""
    _tiles(
        a_desc, b_desc, c_desc, a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K, stride_cm, stride_cn,
        stride_scale_a, stride_scale_b, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, A_ROW_MAJOR, B_ROW_MAJOR, HAS_PRODUCT,
        TMA_STORE, PERSISTENT, WIDE_INDEX, PRECISION, PROMOTE, SCALED,
    )  # fmt: skip


@triton.jit
def _tensormap(desc, base_ptr, rows, columns, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """Describes a contiguous (rows, columns) matrix in blocks of (ROWS, COLUMNS) at ``desc``. Only after the fence may
    the copy unit read what this program has written there."""
    tl.extra.cuda.experimental_device_tensormap_create2d(
        desc_ptr=desc,
        global_address=base_ptr,
        load_size=[ROWS, COLUMNS],
        global_size=[rows, columns],
        element_ty=base_ptr.dtype.element_ty,
    )
    tl.extra.cuda.experimental_tensormap_fenceproxy_acquire(desc)


@triton.jit
def gemm_legacy_device_tensormaps(
    workspace_ptr, a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K, stride_cm, stride_cn,
    stride_scale_a, stride_scale_b,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, HAS_PRODUCT: tl.constexpr,
    TMA_STORE: tl.constexpr, PERSISTENT: tl.constexpr, WIDE_INDEX: tl.constexpr,
    PRECISION: tl.constexpr, PROMOTE: tl.constexpr, SCALED: tl.constexpr,
):  # fmt: skip
    """The same with tensor maps that each program makes, three side by side in its part of the workspace."""
    a_desc = workspace_ptr + tl.program_id(0) * (3 * TENSORMAP_BYTES)
    b_desc = a_desc + TENSORMAP_BYTES
    c_desc = b_desc + TENSORMAP_BYTES
    if HAS_PRODUCT:
        if A_ROW_MAJOR:
            _tensormap(a_desc, a_ptr, M, K, BLOCK_M, BLOCK_K)
        else:
            _tensormap(a_desc, a_ptr, K, M, BLOCK_K, BLOCK_M)
        if B_ROW_MAJOR:
            _tensormap(b_desc, b_ptr, K, N, BLOCK_K, BLOCK_N)
        else:
            _tensormap(b_desc, b_ptr, N, K, BLOCK_N, BLOCK_K)
    if TMA_STORE:
        _tensormap(c_desc, c_ptr, M, N, BLOCK_M, BLOCK_N)
    _tiles(
        a_desc, b_desc, c_desc, a_ptr, b_ptr, c_ptr, scale_a_ptr, scale_b_ptr, M, N, K, stride_cm, stride_cn,
        stride_scale_a, stride_scale_b, BLOCK_M, BLOCK_N, BLOCK_K, GROUP_M, A_ROW_MAJOR, B_ROW_MAJOR, HAS_PRODUCT,
        TMA_STORE, PERSISTENT, WIDE_INDEX, PRECISION, PROMOTE, SCALED,
    )  # fmt: skip


@triton.jit
def gemm_legacy_descriptors(
    a_ptr, b_ptr, c_ptr, M, N, K, lda, ldb, stride_cm, stride_cn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, HAS_PRODUCT: tl.constexpr,
    TMA_STORE: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """C = A @ B by persistent programs with Triton 3.3's objects, which have a pitch: ``lda`` and ``ldb`` in elements.

    All in one function, because that Triton passes none of these objects to another.
    """
    if HAS_PRODUCT:
        if A_ROW_MAJOR:
            a_desc = tl._experimental_make_tensor_descriptor(a_ptr, [M, K], [lda, 1], [BLOCK_M, BLOCK_K])
        else:
            a_desc = tl._experimental_make_tensor_descriptor(a_ptr, [K, M], [lda, 1], [BLOCK_K, BLOCK_M])
        if B_ROW_MAJOR:
            b_desc = tl._experimental_make_tensor_descriptor(b_ptr, [K, N], [ldb, 1], [BLOCK_K, BLOCK_N])
        else:
            b_desc = tl._experimental_make_tensor_descriptor(b_ptr, [N, K], [ldb, 1], [BLOCK_N, BLOCK_K])
    if TMA_STORE:
        c_desc = tl._experimental_make_tensor_descriptor(c_ptr, [M, N], [stride_cm, 1], [BLOCK_M, BLOCK_N])
    for tile in range(tl.program_id(0), tl.cdiv(M, BLOCK_M) * tl.cdiv(N, BLOCK_N), tl.num_programs(0)):
        tile_m, tile_n = swizzle(tile, M, N, BLOCK_M, BLOCK_N, GROUP_M)
        first_m = tile_m * BLOCK_M
        first_n = tile_n * BLOCK_N
        acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
        if HAS_PRODUCT:
            for k in range(0, tl.cdiv(K, BLOCK_K)):
                first_k = k * BLOCK_K
                if A_ROW_MAJOR:
                    a = a_desc.load([first_m, first_k])
                else:
                    a = a_desc.load([first_k, first_m]).T
                if B_ROW_MAJOR:
                    b = b_desc.load([first_k, first_n])
                else:
                    b = b_desc.load([first_n, first_k]).T
                acc = tl.dot(a, b, acc, input_precision=PRECISION, out_dtype=tl.float32)
        if TMA_STORE:
            c_desc.store([first_m, first_n], acc.to(c_ptr.dtype.element_ty))
        else:
            rm = first_m + tl.arange(0, BLOCK_M)
            rn = first_n + tl.arange(0, BLOCK_N)
            store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)
