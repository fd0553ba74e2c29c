"""Faults of the depthwise convolution: masks, channels, taps and precision."""

from conformance.families.conv.problem import conv2d
from conformance.heuristics.configs import DepthwiseConfig
from tests.planted.cases import Case, Edit, Fault, grouped

TILE = DepthwiseConfig(16, 8, 2, 4)
LAST = {"order_x": "channels-last", "order_w": "channels-last", "order_out": "channels-last"}

# several ragged tiles in both directions, two output channels for each channel
PLAIN = Case("conv2d_depthwise", conv2d(2, 9, (5, 4), 18, (3, 2), padding=(1, 1), groups=9, bias=True), TILE)
STRIDED = Case("conv2d_depthwise", conv2d(2, 11, (9, 8), 11, (2, 3), stride=(2, 1), padding=(0, 1), groups=11), TILE)
DILATED = Case(
    "conv2d_depthwise",
    conv2d(2, 11, (9, 8), 11, (2, 3), "bf16", padding=(2, 1), dilation=(3, 2), groups=11, pad=3, **LAST),
    TILE,
)


def _edit(old: str, new: str, count: int = 1) -> Edit:
    return Edit("device/conv.py::conv_depthwise", old, new, count)


_STEP = "acc += a.to(tl.float32) * b.to(tl.float32)[None, :]\n"

DEPTHWISE = grouped(
    "depthwise",
    # masks
    # indices
    Fault("depthwise_mask_without_dilation", _edit("h = h0 + down", "h = h0 + kh"), DILATED),
    Fault(
        "depthwise_weights_of_other_axis",
        _edit("kh * stride_wh + kw * stride_ww", "kh * stride_ww + kw * stride_wh"),
        PLAIN,
    ),
    Fault(
        "depthwise_weights_of_first_block", _edit("w_ptr + ro * stride_wo", "w_ptr + ro % BLOCK_N * stride_wo"), STRIDED
    ),
    Fault(
        "depthwise_out_strides_exchanged",
        _edit("oh * stride_oh + ow * stride_ow", "oh * stride_ow + ow * stride_oh"),
        STRIDED,
    ),
    # precision
    Fault("depthwise_products_in_fp16", _edit(_STEP, "acc += (a * b[None, :]).to(tl.float32)\n"), STRIDED),
    Fault(
        "depthwise_bf16_acc_between",
        _edit(_STEP, _STEP + "        acc = acc.to(tl.bfloat16).to(tl.float32)\n"),
        DILATED,
    ),
)
