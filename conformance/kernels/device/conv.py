"""Convolution as an implicit matrix product: pointer loads and stores, any strides, two or three dimensions."""

import triton
import triton.language as tl


@triton.jit
def conv_pointer(
    x_ptr, w_ptr, out_ptr, bias_ptr, BATCH, CHANNELS, OUT_CHANNELS, D, H, W, OD, OH, OW,
    stride_xn, stride_xc, stride_xd, stride_xh, stride_xw,
    stride_wo, stride_wc, stride_wd, stride_wh, stride_ww,
    stride_on, stride_oc, stride_od, stride_oh, stride_ow,
    KERNEL_D: tl.constexpr, KERNEL_H: tl.constexpr, KERNEL_W: tl.constexpr,
    STRIDE_D: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PADDING_D: tl.constexpr, PADDING_H: tl.constexpr, PADDING_W: tl.constexpr,
    DILATION_D: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, DEPTH: tl.constexpr,
    EVEN_CHANNELS: tl.constexpr, WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """out[n, o] = bias[o] + sum over channels c of o's group of x[n, c] slid over by w[o, c].

    Rows of the product are output positions of all images, columns output channels of a group (CHANNELS and
    OUT_CHANNELS are those of one); grid (cdiv(BATCH * OD * OH * OW, BLOCK_M), cdiv(OUT_CHANNELS, BLOCK_N), groups).
    Taps and blocks of channels are one loop, channels fastest, so that loads run ahead from one tap into the next.
    Without DEPTH there are two dimensions. WIDE_INDEX computes offsets in 64 bits, for operands that span 2**31
    elements or more.
    """
    row_block, column_block, group = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    rk = tl.arange(0, BLOCK_K)
    ro = column_block * BLOCK_N + tl.arange(0, BLOCK_N)
    if WIDE_INDEX:
        row_block = row_block.to(tl.int64)
        group = group.to(tl.int64)
        rk = rk.to(tl.int64)
        ro = ro.to(tl.int64)
    rm = row_block * BLOCK_M + tl.arange(0, BLOCK_M)
    in_columns = ro < OUT_CHANNELS
    channel = group * OUT_CHANNELS + ro

    # an output position, and where the first tap meets x for it: outside of x, where there is padding
    ow = rm % OW
    oh = rm // OW % OH
    n = rm // (OW * OH)
    h0 = oh * STRIDE_H - PADDING_H
    w0 = ow * STRIDE_W - PADDING_W
    x_rows = x_ptr + group * CHANNELS * stride_xc + h0 * stride_xh + w0 * stride_xw
    out_rows = out_ptr + oh * stride_oh + ow * stride_ow
    if DEPTH:
        od = n % OD
        n = n // OD
        d0 = od * STRIDE_D - PADDING_D
        x_rows += d0 * stride_xd
        out_rows += od * stride_od
    in_batch = n < BATCH
    x_tile = (x_rows + n * stride_xn)[:, None] + rk[None, :] * stride_xc
    w_tile = (w_ptr + channel * stride_wo)[None, :] + rk[:, None] * stride_wc

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    blocks = tl.cdiv(CHANNELS, BLOCK_K)
    for step in range(KERNEL_D * KERNEL_H * KERNEL_W * blocks):
        if KERNEL_D * KERNEL_H * KERNEL_W == 1:
            tap = 0
            first_channel = step * BLOCK_K
        else:
            tap = step // blocks
            first_channel = step % blocks * BLOCK_K
        if WIDE_INDEX:
            tap = tl.cast(tap, tl.int64)
            first_channel = tl.cast(first_channel, tl.int64)
        kw = tap % KERNEL_W
        kh = tap // KERNEL_W % KERNEL_H
        down = kh * DILATION_H
        across = kw * DILATION_W
        h = h0 + down
        w = w0 + across
        x_step = down * stride_xh + across * stride_xw + first_channel * stride_xc
        w_step = kh * stride_wh + kw * stride_ww + first_channel * stride_wc
        in_x = in_batch & (h >= 0) & (h < H) & (w >= 0) & (w < W)
        if DEPTH:
            kd = tap // (KERNEL_W * KERNEL_H)
            deep = kd * DILATION_D
            d = d0 + deep
            x_step += deep * stride_xd
            w_step += kd * stride_wd
            in_x = in_x & (d >= 0) & (d < D)
        if EVEN_CHANNELS:
            a = tl.load(x_tile + x_step, mask=in_x[:, None], other=0.0)
            b = tl.load(w_tile + w_step, mask=in_columns[None, :])
        else:
            in_channels = rk < CHANNELS - first_channel
            a = tl.load(x_tile + x_step, mask=in_x[:, None] & in_channels[None, :], other=0.0)
            b = tl.load(w_tile + w_step, mask=in_columns[None, :] & in_channels[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)

    if HAS_BIAS:
        acc += tl.load(bias_ptr + channel, mask=in_columns)[None, :]
    target = (out_rows + n * stride_on)[:, None] + channel[None, :] * stride_oc
    tl.store(target, acc.to(out_ptr.dtype.element_ty), mask=in_batch[:, None] & in_columns[None, :])
