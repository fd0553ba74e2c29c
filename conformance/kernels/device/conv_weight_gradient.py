"""Gradients of a convolution in two dimensions for its weights, as an implicit matrix product, and for its bias."""

import triton
import triton.language as tl


@triton.jit
def conv_weight_gradient(
    x_ptr, grad_out_ptr, grad_w_ptr, POSITIONS, CHANNELS, OUT_CHANNELS, H, W, OH, OW,
    stride_xn, stride_xc, stride_xh, stride_xw, stride_gn, stride_go, stride_gh, stride_gw,
    stride_wo, stride_wc, stride_wh, stride_ww,
    KERNEL_H: tl.constexpr, KERNEL_W: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PADDING_H: tl.constexpr, PADDING_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_POSITIONS: tl.constexpr,
    WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """grad_w[o, c, t] = sum over images n, positions p of grad_out[n, o, p] * x[n, c of o's group, p * stride - padding
    + t * dilation].

    Rows of the product are output channels, columns taps and channels, channels fastest, k the POSITIONS of all images.
    CHANNELS and OUT_CHANNELS are those of a group; grid (cdiv(OUT_CHANNELS, BLOCK_M), cdiv(KERNEL_H * KERNEL_W *
    CHANNELS, BLOCK_N), groups). EVEN_POSITIONS: BLOCK_K divides POSITIONS. WIDE_INDEX computes offsets in 64 bits, for
    operands that span 2**31 elements or more.
    """
    row_block, column_block, group = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rk = tl.arange(0, BLOCK_K)
    if WIDE_INDEX:
        row_block = row_block.to(tl.int64)
        column_block = column_block.to(tl.int64)
        group = group.to(tl.int64)
        rk = rk.to(tl.int64)
    ro = row_block * BLOCK_M + tl.arange(0, BLOCK_M)
    column = column_block * BLOCK_N + tl.arange(0, BLOCK_N)
    in_rows = ro < OUT_CHANNELS
    in_columns = column < KERNEL_H * KERNEL_W * CHANNELS
    out_channel = group * OUT_CHANNELS + ro

    # a tap and a channel, and where the tap meets x for the first position: outside of x, where there is padding
    channel = column % CHANNELS
    kw = column // CHANNELS % KERNEL_W
    kh = column // CHANNELS // KERNEL_W
    h0 = kh * DILATION_H - PADDING_H
    w0 = kw * DILATION_W - PADDING_W
    x_columns = x_ptr + (group * CHANNELS + channel) * stride_xc + h0 * stride_xh + w0 * stride_xw
    grad_rows = grad_out_ptr + out_channel * stride_go

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for block in range(tl.cdiv(POSITIONS, BLOCK_K)):
        position = block * BLOCK_K + rk
        ow = position % OW
        oh = position // OW % OH
        n = position // OW // OH
        h = (oh * STRIDE_H)[:, None] + h0[None, :]
        w = (ow * STRIDE_W)[:, None] + w0[None, :]
        in_x = in_columns[None, :] & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        grad_step = n * stride_gn + oh * stride_gh + ow * stride_gw
        x_step = n * stride_xn + oh * STRIDE_H * stride_xh + ow * STRIDE_W * stride_xw
        if EVEN_POSITIONS:
            a = tl.load(grad_rows[:, None] + grad_step[None, :], mask=in_rows[:, None], other=0.0)
            b = tl.load(x_columns[None, :] + x_step[:, None], mask=in_x, other=0.0)
        else:
            in_positions = position < POSITIONS
            a = tl.load(
                grad_rows[:, None] + grad_step[None, :], mask=in_rows[:, None] & in_positions[None, :], other=0.0
            )
            b = tl.load(x_columns[None, :] + x_step[:, None], mask=in_x & in_positions[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)

    target = grad_w_ptr + (out_channel * stride_wo)[:, None]
    target += (channel * stride_wc + kh * stride_wh + kw * stride_ww)[None, :]
    tl.store(target, acc.to(grad_w_ptr.dtype.element_ty), mask=in_rows[:, None] & in_columns[None, :])


@triton.jit
def conv_bias_gradient(
    grad_out_ptr, grad_bias_ptr, POSITIONS, OUT_CHANNELS, OH, OW, stride_gn, stride_go, stride_gh, stride_gw,
    BLOCK_M: tl.constexpr, BLOCK_K: tl.constexpr, WIDE_INDEX: tl.constexpr,
):  # fmt: skip
    """grad_bias[o] = sum over images n, positions p of grad_out[n, o, p], in fp32; grid (cdiv(OUT_CHANNELS, BLOCK_M),).
    OUT_CHANNELS are those of all groups, POSITIONS those of all images."""
    row_block = tl.program_id(0)
    rk = tl.arange(0, BLOCK_K)
    if WIDE_INDEX:
        row_block = row_block.to(tl.int64)
        rk = rk.to(tl.int64)
    out_channel = row_block * BLOCK_M + tl.arange(0, BLOCK_M)
    in_rows = out_channel < OUT_CHANNELS
    grad_rows = grad_out_ptr + out_channel * stride_go

    acc = tl.zeros((BLOCK_M, BLOCK_K), dtype=tl.float32)
    for block in range(tl.cdiv(POSITIONS, BLOCK_K)):
        position = block * BLOCK_K + rk
        grad_step = position // OW // OH * stride_gn + position // OW % OH * stride_gh + position % OW * stride_gw
        in_grad = in_rows[:, None] & (position < POSITIONS)[None, :]
        acc += tl.load(grad_rows[:, None] + grad_step[None, :], mask=in_grad, other=0.0).to(tl.float32)
    tl.store(grad_bias_ptr + out_channel, tl.sum(acc, 1).to(grad_bias_ptr.dtype.element_ty), mask=in_rows)
