"""Convolutions, transposed and depthwise ones, and their gradients, by pointer loads and stores."""

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


@triton.jit
def conv_transposed(
    x_ptr, w_ptr, out_ptr, bias_ptr, BATCH, CHANNELS, OUT_CHANNELS, H, W, OH, OW,
    stride_xn, stride_xc, stride_xh, stride_xw, stride_wc, stride_wo, stride_wh, stride_ww,
    stride_on, stride_oc, stride_oh, stride_ow,
    KERNEL_H: tl.constexpr, KERNEL_W: tl.constexpr, STRIDE_H: tl.constexpr, STRIDE_W: tl.constexpr,
    PADDING_H: tl.constexpr, PADDING_W: tl.constexpr, DILATION_H: tl.constexpr, DILATION_W: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, EVEN_CHANNELS: tl.constexpr,
    WIDE_INDEX: tl.constexpr, PRECISION: tl.constexpr, HAS_BIAS: tl.constexpr,
):  # fmt: skip
    """out[n, o, p] = bias[o] + sum of x[n, c, q] * w[c, o, t] over channels c of o's group and taps t. There q * stride
    = p + padding - t * dilation.

    Rows of the product are output positions of all images, columns output channels of a group (CHANNELS and
    OUT_CHANNELS are those of one); grid (cdiv(BATCH * OH * OW, BLOCK_M), cdiv(OUT_CHANNELS, BLOCK_N), groups). A row
    for which a tap falls between two elements of x multiplies zeros there. WIDE_INDEX computes offsets in 64 bits, for
    operands that span 2**31 elements or more.
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

    ow = rm % OW
    oh = rm // OW % OH
    n = rm // (OW * OH)
    in_batch = n < BATCH
    x_tile = (x_ptr + n * stride_xn)[:, None] + (group * CHANNELS + rk)[None, :] * stride_xc
    w_tile = w_ptr + (group * CHANNELS + rk)[:, None] * stride_wc + ro[None, :] * stride_wo

    acc = tl.zeros((BLOCK_M, BLOCK_N), dtype=tl.float32)
    blocks = tl.cdiv(CHANNELS, BLOCK_K)
    for step in range(KERNEL_H * KERNEL_W * blocks):
        tap = step // blocks
        first_channel = step % blocks * BLOCK_K
        if WIDE_INDEX:
            tap = tl.cast(tap, tl.int64)
            first_channel = tl.cast(first_channel, tl.int64)
        kw = tap % KERNEL_W
        kh = tap // KERNEL_W
        down = oh + PADDING_H - kh * DILATION_H
        across = ow + PADDING_W - kw * DILATION_W
        h = down // STRIDE_H
        w = across // STRIDE_W
        met = (down >= 0) & (down % STRIDE_H == 0) & (across >= 0) & (across % STRIDE_W == 0)
        in_x = in_batch & met & (h < H) & (w < W)
        x_rows = x_tile + (h * stride_xh + w * stride_xw)[:, None]
        w_step = kh * stride_wh + kw * stride_ww + first_channel * stride_wc
        if EVEN_CHANNELS:
            a = tl.load(x_rows + first_channel * stride_xc, mask=in_x[:, None], other=0.0)
            b = tl.load(w_tile + w_step, mask=in_columns[None, :])
        else:
            in_channels = rk < CHANNELS - first_channel
            a = tl.load(x_rows + first_channel * stride_xc, mask=in_x[:, None] & in_channels[None, :], other=0.0)
            b = tl.load(w_tile + w_step, mask=in_columns[None, :] & in_channels[:, None], other=0.0)
        acc = tl.dot(a, b, acc, input_precision=PRECISION)

    channel = group * OUT_CHANNELS + ro
    if HAS_BIAS:
        acc += tl.load(bias_ptr + channel, mask=in_columns)[None, :]
    target = (out_ptr + n * stride_on + oh * stride_oh + ow * stride_ow)[:, None] + channel[None, :] * stride_oc
    tl.store(target, acc.to(out_ptr.dtype.element_ty), mask=in_batch[:, None] & in_columns[None, :])


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
