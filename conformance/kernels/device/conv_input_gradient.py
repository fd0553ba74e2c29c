"""Gradient of a convolution for its image in two dimensions: each program asks only the taps that its rows meet."""

import triton
import triton.language as tl


@triton.jit
def conv_input_gradient(
    x_ptr, w_ptr, out_ptr, bias_ptr, BATCH, CHANNELS, OUT_CHANNELS, H, W, OH, OW,
    stride_xn, stride_xc, stride_xh, stride_xw, stride_wc, stride_wo, stride_wh, stride_ww,
    stride_on, stride_oc, stride_oh, stride_ow,
    KERNEL_H: tl.constexpr, KERNEL_W: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PADDING_H: tl.constexpr, PADDING_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    COMMON_H: tl.constexpr, COMMON_W: tl.constexpr, INVERSE_H: tl.constexpr, INVERSE_W: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr,
    WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """out[n, o, p] = bias[o] + sum of x[n, c, q] * w[c, o, t] over channels c of o's group and taps t. There q * stride
    = p + padding - t * dilation.

    Positions that agree modulo the strides meet the same taps, so that a program has rows of one such phase. The grid
    is (STRIDE_H * STRIDE_W * cdiv(BATCH * cdiv(OH, STRIDE_H) * cdiv(OW, STRIDE_W), BLOCK_M), cdiv(OUT_CHANNELS,
    BLOCK_N), groups). COMMON is the greatest common divisor of stride and dilation, INVERSE inverts dilation / COMMON
    modulo stride / COMMON. CHANNELS and OUT_CHANNELS are those of a group. WIDE_INDEX computes offsets in 64 bits, for
    operands that span 2**31 elements or more.
    """
    row_block, column_block, group = tl.program_id(0), tl.program_id(1), tl.program_id(2)
    phase = row_block % (STRIDE_H * STRIDE_W)
    row_block = row_block // (STRIDE_H * STRIDE_W)
    rk = tl.arange(0, BLOCK_K)
    ro = column_block * BLOCK_N + tl.arange(0, BLOCK_N)
    if WIDE_INDEX:
        row_block = row_block.to(tl.int64)
        group = group.to(tl.int64)
        rk = rk.to(tl.int64)
        ro = ro.to(tl.int64)
    rm = row_block * BLOCK_M + tl.arange(0, BLOCK_M)
    in_columns = ro < OUT_CHANNELS

    columns = tl.cdiv(OW, STRIDE_W)
    rows = tl.cdiv(OH, STRIDE_H)
    first_h = phase // STRIDE_W
    first_w = phase % STRIDE_W
    ow = rm % columns * STRIDE_W + first_w
    oh = rm // columns % rows * STRIDE_H + first_h
    n = rm // (columns * rows)
    in_out = (n < BATCH) & (oh < OH) & (ow < OW)

    # the taps t with (first + padding - t * dilation) % stride == 0: one in each stride / COMMON of them, or none
    step_h: tl.constexpr = STRIDE_H // COMMON_H
    step_w: tl.constexpr = STRIDE_W // COMMON_W
    tap_h = (first_h + PADDING_H) // COMMON_H * INVERSE_H % step_h
    tap_w = (first_w + PADDING_W) // COMMON_W * INVERSE_W % step_w
    taps_h = tl.where((first_h + PADDING_H) % COMMON_H == 0, (KERNEL_H - tap_h + step_h - 1) // step_h, 0)
    taps_w = tl.where((first_w + PADDING_W) % COMMON_W == 0, (KERNEL_W - tap_w + step_w - 1) // step_w, 0)
    blocks = tl.cdiv(CHANNELS, BLOCK_K)
    x_tile = (x_ptr + n * stride_xn)[:, None] + (group * CHANNELS + rk)[None, :] * stride_xc
    w_tile = w_ptr + (group * CHANNELS + rk)[:, None] * stride_wc + ro[None, :] * stride_wo

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    for down in range(taps_h):
        kh = tap_h + down * step_h
        if WIDE_INDEX:
            kh = tl.cast(kh, tl.int64)
        for across in range(taps_w):
            kw = tap_w + across * step_w
            if WIDE_INDEX:
                kw = tl.cast(kw, tl.int64)
            h = (oh + PADDING_H - kh * DILATION_H) // STRIDE_H
            w = (ow + PADDING_W - kw * DILATION_W) // STRIDE_W
            in_x = in_out & (h >= 0) & (h < H) & (w >= 0) & (w < W)
            x_rows = x_tile + (h * stride_xh + w * stride_xw)[:, None]
            w_rows = w_tile + kh * stride_wh + kw * stride_ww
            for block in range(blocks):
                first_channel = block * BLOCK_K
                if WIDE_INDEX:
                    first_channel = tl.cast(first_channel, tl.int64)
                in_channels = rk < CHANNELS - first_channel
                a = tl.load(x_rows + first_channel * stride_xc, mask=in_x[:, None] & in_channels[None, :], other=0.0)
                b = tl.load(
                    w_rows + first_channel * stride_wc, mask=in_columns[None, :] & in_channels[:, None], other=0.0
                )
                acc = tl.dot(a, b, acc, input_precision=PRECISION)

    channel = group * OUT_CHANNELS + ro
    if HAS_BIAS:
        acc += tl.load(bias_ptr + channel, mask=in_columns)[None, :]
    target = (out_ptr + n * stride_on + oh * stride_oh + ow * stride_ow)[:, None] + channel[None, :] * stride_oc
    tl.store(target, acc.to(out_ptr.dtype.element_ty), mask=in_out[:, None] & in_columns[None, :])
