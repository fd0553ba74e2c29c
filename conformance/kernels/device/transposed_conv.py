"""Transposed convolution in two dimensions as an implicit matrix product: each output position asks every tap."""

import triton
import triton.language as tl


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
