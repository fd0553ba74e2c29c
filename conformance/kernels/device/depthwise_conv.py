"""Depthwise convolution in two dimensions without a matrix unit: a multiply-add per tap and output element."""

import triton
import triton.language as tl


@triton.jit
def conv_depthwise(
    x_ptr, w_ptr, out_ptr, bias_ptr, BATCH, OUT_CHANNELS, H, W, OH, OW,
    stride_xn, stride_xc, stride_xh, stride_xw, stride_wo, stride_wh, stride_ww,
    stride_on, stride_oc, stride_oh, stride_ow, MULTIPLIER: tl.constexpr,
    KERNEL_H: tl.constexpr, KERNEL_W: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PADDING_H: tl.constexpr, PADDING_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, WIDE_INDEX: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """out[n, o] = bias[o] + x[n, o // MULTIPLIER] slid over by w[o].

    Rows of a tile are output positions of all images, columns output channels; grid (cdiv(BATCH * OH * OW, BLOCK_M),
    cdiv(OUT_CHANNELS, BLOCK_N)). WIDE_INDEX computes offsets in 64 bits, for operands that span 2**31 elements or more.
    """
    row_block, column_block = tl.program_id(0), tl.program_id(1)
    ro = column_block * BLOCK_N + tl.arange(0, BLOCK_N)
    if WIDE_INDEX:
        row_block = row_block.to(tl.int64)
        ro = ro.to(tl.int64)
    rm = row_block * BLOCK_M + tl.arange(0, BLOCK_M)
    in_columns = ro < OUT_CHANNELS

    ow = rm % OW
    oh = rm // OW % OH
    n = rm // (OW * OH)
    in_batch = n < BATCH
    h0 = oh * STRIDE_H - PADDING_H
    w0 = ow * STRIDE_W - PADDING_W
    x_rows = x_ptr + n * stride_xn + h0 * stride_xh + w0 * stride_xw
    x_tile = x_rows[:, None] + (ro // MULTIPLIER)[None, :] * stride_xc
    w_row = w_ptr + ro * stride_wo

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for tap in range(KERNEL_H * KERNEL_W):
        kh = tap // KERNEL_W
        kw = tap % KERNEL_W
        if WIDE_INDEX:
            kh = tl.cast(kh, tl.int64)
            kw = tl.cast(kw, tl.int64)
        down = kh * DILATION_H
        across = kw * DILATION_W
        h = h0 + down
        w = w0 + across
        in_x = in_batch & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        a = tl.load(x_tile + down * stride_xh + across * stride_xw, mask=in_x[:, None] & in_columns[None, :], other=0.0)
        b = tl.load(w_row + kh * stride_wh + kw * stride_ww, mask=in_columns, other=0.0)
        acc += a.to(tl.float32) * b.to(tl.float32)[None, :]

    if HAS_BIAS:
        acc += tl.load(bias_ptr + ro, mask=in_columns)[None, :]
    target = (out_ptr + n * stride_on + oh * stride_oh + ow * stride_ow)[:, None] + ro[None, :] * stride_oc
    tl.store(target, acc.to(out_ptr.dtype.element_ty), mask=in_batch[:, None] & in_columns[None, :])
