"""Tile helpers shared by every GEMM kernel: tile order, loads of one k-block, inner products, epilogue, stores.

The inner products here take two floating-point operands of one dtype and sum in fp32, starting from zero. The one in
:func:`accumulate` takes operands of different dtypes, and adds to a sum of any dtype that the caller gives.

Shapes in the comments are per program: acc is (BLOCK_M, BLOCK_N) fp32.
"""

import triton
import triton.language as tl


@triton.jit
def swizzle(tile, M, N, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, GROUP_M: tl.constexpr):
    """Tile number -> (tile row, tile column), in column order inside bands of GROUP_M tile rows.

    A bijection for every grid: the last band is narrower when GROUP_M does not divide the number of tile rows.
    """
    tiles_m = tl.cdiv(M, BLOCK_M)
    tiles_n = tl.cdiv(N, BLOCK_N)
    band_tiles = GROUP_M * tiles_n
    first_m = (tile // band_tiles) * GROUP_M
    rows = min(tiles_m - first_m, GROUP_M)
    inside = tile % band_tiles
    return first_m + inside % rows, inside // rows


@triton.jit
def dot_pointers(
    a_ptr, b_ptr, rm, rn, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr, PROMOTE: tl.constexpr,
):  # fmt: skip
    """Rows ``rm`` of A times columns ``rn`` of B over all of K, by masked pointer loads.

    Rows and columns past the edge are masked instead of wrapped around, so no contiguity hint is ever untrue.
    WIDE_INDEX computes offsets in 64 bits, for operands that span 2**31 elements or more.
    """
    rk = tl.arange(0, BLOCK_K)
    step = tl.full((), BLOCK_K, tl.int64 if WIDE_INDEX else tl.int32)
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rn = rn.to(tl.int64)
        rk = rk.to(tl.int64)
    a_tile = a_ptr + rm[:, None] * stride_am + rk[None, :] * stride_ak
    b_tile = b_ptr + rk[:, None] * stride_bk + rn[None, :] * stride_bn
    a_mask = (rm < M)[:, None]
    b_mask = (rn < N)[None, :]
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(0, tl.cdiv(K, BLOCK_K)):
        if EVEN_K:
            a = tl.load(a_tile, mask=a_mask)
            b = tl.load(b_tile, mask=b_mask)
        else:
            inside = rk < K - k * BLOCK_K
            a = tl.load(a_tile, mask=a_mask & inside[None, :], other=0.0)
            b = tl.load(b_tile, mask=b_mask & inside[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=PROMOTE)
        a_tile += step * stride_ak
        b_tile += step * stride_bk
    return acc


@triton.jit
def dot_descriptors(
    a_desc, b_desc, first_m, first_n, K,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    A_ROW_MAJOR: tl.constexpr, B_ROW_MAJOR: tl.constexpr, PRECISION: tl.constexpr, PROMOTE: tl.constexpr,
    k_scale_desc=None,
):  # fmt: skip
    """The tile at (first_m, first_n) of A @ B over all of K, by descriptor loads.

    A column-major operand is described, and loaded, as its row-major transpose. Elements outside the described
    shape read as zero, so no tail needs a mask. ``k_scale_desc``: a vector of factors of the columns of A, if any.
    """
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
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
        if k_scale_desc is not None:
            a = (a * k_scale_desc.load([first_k])[None, :]).to(b.dtype)
        acc = tl.dot(a, b, acc, input_precision=PRECISION, max_num_imprecise_acc=PROMOTE)
    return acc


@triton.jit
def epilogue(
    acc, rm, rn, M, N, scale_a_ptr, scale_b_ptr, stride_scale_a, stride_scale_b,
    bias_ptr, stride_bias_m, stride_bias_n, alpha, beta,
    SCALED: tl.constexpr, HAS_BIAS: tl.constexpr, ADDMM: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """``acc * scale_a * scale_b + bias`` (SCALED) or ``alpha * acc + beta * bias`` (ADDMM), in fp32.

    Stride 0 broadcasts: one scale per tensor, a bias vector along rows or columns.
    """
    if SCALED:
        scale_a = tl.load(scale_a_ptr + rm * stride_scale_a, mask=rm < M)
        scale_b = tl.load(scale_b_ptr + rn * stride_scale_b, mask=rn < N)
        acc = acc * scale_a[:, None] * scale_b[None, :]
    if ADDMM:
        acc = acc * alpha
    if HAS_BIAS:
        if WIDE_INDEX:
            rm = rm.to(tl.int64)
            rn = rn.to(tl.int64)
        inside = (rm < M)[:, None] & (rn < N)[None, :]
        bias = bias_ptr + rm[:, None] * stride_bias_m + rn[None, :] * stride_bias_n
        addend = tl.load(bias, mask=inside).to(tl.float32)
        if ADDMM:
            addend = addend * beta
        acc = acc + addend
    return acc


@triton.jit
def store_pointers(values, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX: tl.constexpr):
    """Writes ``values`` to rows ``rm`` and columns ``rn`` of C, masked to the M x N that exist."""
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rn = rn.to(tl.int64)
    inside = (rm < M)[:, None] & (rn < N)[None, :]
    target = c_ptr + rm[:, None] * stride_cm + rn[None, :] * stride_cn
    tl.store(target, values.to(c_ptr.dtype.element_ty), mask=inside)


@triton.jit
def split_columns(acc, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    """(ROWS, COLUMNS) -> its left and right half, each (ROWS, COLUMNS // 2)."""
    halves = tl.permute(tl.reshape(acc, (ROWS, 2, COLUMNS // 2)), (0, 2, 1))
    return tl.split(halves)


@triton.jit
def accumulate(
    acc, a_ptr, b_ptr, rm, rn, M, N, K, stride_am, stride_ak, stride_bk, stride_bn,
    BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
    IMPLIED_DTYPE: tl.constexpr = False,
):  # fmt: skip
    """``acc`` (BLOCK_M, BLOCK_N) plus rows ``rm`` of A times columns ``rn`` of B over all of K, by masked loads.

    B is converted to A's dtype before it is multiplied; the products are summed in the dtype of ``acc``. WIDE_INDEX
    computes offsets in 64 bits, for operands that span 2**31 elements or more. With IMPLIED_DTYPE ``tl.dot`` is not
    told the dtype of ``acc``.
    """
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rn = rn.to(tl.int64)
    a_mask = (rm < M)[:, None]
    b_mask = (rn < N)[None, :]
    for k in range(tl.cdiv(K, BLOCK_K)):
        rk = k * BLOCK_K + tl.arange(0, BLOCK_K)
        if WIDE_INDEX:
            rk = rk.to(tl.int64)
        a_tile = a_ptr + rm[:, None] * stride_am + rk[None, :] * stride_ak
        b_tile = b_ptr + rk[:, None] * stride_bk + rn[None, :] * stride_bn
        if EVEN_K:
            a = tl.load(a_tile, mask=a_mask)
            b = tl.load(b_tile, mask=b_mask)
        else:
            inside = rk < K
            a = tl.load(a_tile, mask=a_mask & inside[None, :], other=0.0)
            b = tl.load(b_tile, mask=b_mask & inside[:, None], other=0.0)
        converted = b.to(a.dtype)
        if IMPLIED_DTYPE:
            acc = tl.dot(a, converted, acc, input_precision=PRECISION)
        else:
            acc = tl.dot(a, converted, acc, input_precision=PRECISION, out_dtype=acc.dtype)
    return acc


@triton.jit
def load_rows(
    a_ptr, rm, first_k, M, K, stride_am, stride_ak,
    BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Rows ``rm`` of A in the k-block that begins at ``first_k``, zero past the edges: (BLOCK_M, BLOCK_K)."""
    rk = first_k + tl.arange(0, BLOCK_K)
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rk = rk.to(tl.int64)
    mask = (rm < M)[:, None]
    if not EVEN_K:
        mask = mask & (rk < K)[None, :]
    return tl.load(a_ptr + rm[:, None] * stride_am + rk[None, :] * stride_ak, mask=mask, other=0.0)


@triton.jit
def load_columns(
    b_ptr, rn, first_k, N, K, stride_bk, stride_bn,
    BLOCK_K: tl.constexpr, EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """Columns ``rn`` of B in the k-block that begins at ``first_k``, zero past the edges: (BLOCK_K, BLOCK_N)."""
    rk = first_k + tl.arange(0, BLOCK_K)
    if WIDE_INDEX:
        rn = rn.to(tl.int64)
        rk = rk.to(tl.int64)
    mask = (rn < N)[None, :]
    if not EVEN_K:
        mask = mask & (rk < K)[:, None]
    return tl.load(b_ptr + rk[:, None] * stride_bk + rn[None, :] * stride_bn, mask=mask, other=0.0)
