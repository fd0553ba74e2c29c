"""fused_mm: a prologue on A and an epilogue on the result, by pointer loads and stores."""

import triton
import triton.language as tl

from conformance.kernels.device.tiles import store_pointers, swizzle


@triton.jit
def gemm_fused(
    a_ptr, b_ptr, c_ptr, row_scale_ptr, k_scale_ptr, rows_ptr, bias_ptr, residual_ptr, mask_ptr, M, N, K,
    stride_am, stride_ak, stride_bk, stride_bn, stride_cm, stride_cn, stride_bias_m, stride_bias_n,
    stride_residual_m, stride_mask_m,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP_M: tl.constexpr,
    EVEN_K: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
    PROLOGUE: tl.constexpr, EPILOGUE: tl.constexpr,
):  # fmt: skip
    """C[M,N] = epilogue(prologue(A) @ B); grid (tiles,).

    PROLOGUE is None, "cast", "scale", "scale-k", "gather" or "scatter". EPILOGUE is a tuple of "bias", "relu", "gelu",
    "residual" and "dropout", applied in this order to the fp32 sum. Residual and mask have unit stride along N.
    """
    tile_m, tile_n = swizzle(tl.program_id(0), M, N, BLOCK_M, BLOCK_N, GROUP_M)
    rm = tile_m * BLOCK_M + tl.arange(0, BLOCK_M)
    rn = tile_n * BLOCK_N + tl.arange(0, BLOCK_N)
    if WIDE_INDEX:
        rm = rm.to(tl.int64)
        rn = rn.to(tl.int64)
    a_row = rm
    if PROLOGUE == "gather":
        a_row = tl.load(rows_ptr + rm, mask=rm < M)
        if WIDE_INDEX:
            a_row = a_row.to(tl.int64)
    if PROLOGUE == "scale":
        row_scale = tl.load(row_scale_ptr + rm, mask=rm < M)
    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for k in range(tl.cdiv(K, BLOCK_K)):
        rk = k * BLOCK_K + tl.arange(0, BLOCK_K)
        if WIDE_INDEX:
            rk = rk.to(tl.int64)
        a_mask = (rm < M)[:, None]
        b_mask = (rn < N)[None, :]
        if not EVEN_K:
            a_mask = a_mask & (rk < K)[None, :]
            b_mask = b_mask & (rk < K)[:, None]
        a = tl.load(a_ptr + a_row[:, None] * stride_am + rk[None, :] * stride_ak, mask=a_mask, other=0.0)
        b = tl.load(b_ptr + rk[:, None] * stride_bk + rn[None, :] * stride_bn, mask=b_mask, other=0.0)
        if PROLOGUE == "scale":
            # past K, 0 times an infinite scale would be NaN
            a = tl.where(a_mask, a * row_scale[:, None], 0.0)
        if PROLOGUE == "scale-k":
            a = (a * tl.load(k_scale_ptr + rk, mask=rk < K, other=0.0)[None, :]).to(b.dtype)
        acc = tl.dot(a.to(b.dtype), b, acc, input_precision=PRECISION)

    if PROLOGUE == "scatter":
        rm = tl.load(rows_ptr + rm, mask=rm < M, other=M).to(rm.dtype)
    inside = (rm < M)[:, None] & (rn < N)[None, :]
    for step in tl.static_range(len(EPILOGUE)):
        if EPILOGUE[step] == "bias":
            bias = bias_ptr + rm[:, None] * stride_bias_m + rn[None, :] * stride_bias_n
            acc += tl.load(bias, mask=inside)
        elif EPILOGUE[step] == "relu":
            acc = tl.where(acc < 0.0, 0.0, acc)  # keeps NaN, which a maximum may not
        elif EPILOGUE[step] == "gelu":
            acc = 0.5 * acc * (1.0 + tl.erf(acc * 0.7071067811865476))
        elif EPILOGUE[step] == "residual":
            residual = residual_ptr + rm[:, None] * stride_residual_m + rn[None, :]
            acc += tl.load(residual, mask=inside)
        else:
            tl.static_assert(EPILOGUE[step] == "dropout")
            kept = tl.load(mask_ptr + rm[:, None] * stride_mask_m + rn[None, :], mask=inside)
            acc = tl.where(kept != 0, acc * 2.0, 0.0)
    store_pointers(acc, c_ptr, rm, rn, M, N, stride_cm, stride_cn, WIDE_INDEX)
