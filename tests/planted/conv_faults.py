"""Faults of the convolution kernels: masks, indices and precision."""

from conformance.families.conv.problem import conv2d, conv3d
from tests.planted.cases import SMALL, TILES, Case, Edit, Fault, grouped

CONV, HOST_CONV = "device/conv.py::conv_pointer", "conv.py"
LAST = {"order_x": "channels-last", "order_w": "channels-last", "order_out": "channels-last"}

# two ragged row blocks, two ragged column blocks where there is one group, and a ragged block of channels
FLAT = Case("conv2d", conv2d(2, 11, (5, 4), 40, (2, 1), padding=(1, 1), pad=3, **LAST), SMALL)
STRIDED = Case("conv2d", conv2d(2, 20, (9, 8), 20, (1, 2), stride=(2, 1), padding=(0, 1)), SMALL)
GROUPED = Case("conv2d", conv2d(2, 22, (4, 5), 40, (1, 2), "bf16", groups=2, bias=True, padding=(0, 1)), SMALL)
DEEP = Case("conv3d", conv3d(2, 11, (3, 3, 3), 20, (2, 1, 2), padding=(1, 0, 1)), SMALL)
DILATED = Case("conv2d", conv2d(2, 20, (9, 8), 20, (2, 3), padding=(2, 1), dilation=(3, 2)), SMALL)
DEEP_DILATED = Case("conv3d", conv3d(2, 11, (5, 3, 4), 20, (2, 1, 2), padding=(1, 0, 1), dilation=(3, 1, 2)), SMALL)
SINGLE = Case("conv1x1_as_mm", conv2d(2, 40, (5, 5), 40, 1, "bf16", bias=True, pad=8, **LAST), SMALL)

_STORE = "mask=in_batch[:, None] & in_columns[None, :]"
_ADDED = "    if HAS_BIAS:\n        acc +="


def _conv(old: str, new: str, count: int = 1) -> tuple[Edit, ...]:
    return (Edit(CONV, old, new, count),)


_DOT = "acc = tl.dot(a, b, acc, input_precision=PRECISION)"
_CONV_STEP = _DOT + "\n"
_POINTER_STEP = "max_num_imprecise_acc=PROMOTE)\n        a_tile += step * stride_ak"

_PITCH = """launch = kernel.launch(product, views)
        return dataclasses.replace(launch, arguments={**launch.arguments, "stride_am": problem.channels})"""

CONVOLUTION = grouped(
    "convolution",
    # masks
    Fault("conv_channels_mask_short1", _conv("rk < CHANNELS -", "rk < CHANNELS - 1 -"), GROUPED),
    Fault("conv_columns_not_all_stored", _conv(_STORE, _STORE + " & (ro > 0)[None, :]"), FLAT),
    # indices
    Fault("conv_no_stride", _conv("oh * STRIDE_H - PADDING_H", "oh - PADDING_H"), STRIDED),
    Fault("conv_no_padding", _conv("ow * STRIDE_W - PADDING_W", "ow * STRIDE_W"), STRIDED),
    Fault("conv_taps_of_other_axis", _conv("kw = tap % KERNEL_W", "kw = tap % KERNEL_H"), FLAT),
    Fault("conv_first_channels_again", _conv("step % blocks * BLOCK_K", "0"), STRIDED),
    Fault("conv_last_tap_skipped", _conv("KERNEL_W * blocks)", "KERNEL_W * blocks - 1)"), STRIDED),
    Fault("conv_x_of_first_group", _conv("x_ptr + group * CHANNELS * stride_xc", "x_ptr"), GROUPED),
    Fault("conv_bias_of_first_group", _conv("bias_ptr + channel", "bias_ptr + ro"), GROUPED),
    Fault("conv_depth_not_counted", _conv("od = n % OD", "od = n % (OD - 1)"), DEEP),
    Fault("conv_weights_of_first_depth", _conv("w_step += kd * stride_wd", "w_step += 0"), DEEP),
    # dilation
    Fault("conv_mask_without_dilation", _conv("h = h0 + down", "h = h0 + kh"), DILATED),
    Fault("conv_depth_mask_without_dilation", _conv("d = d0 + deep", "d = d0 + kd"), DEEP_DILATED),
    Fault(
        "conv_columns_read_undilated",
        _conv("down * stride_xh + across * stride_xw", "down * stride_xh + kw * stride_xw"),
        DILATED,
    ),
    # precision
    Fault(
        "conv_fp16_acc_between",
        _conv(_CONV_STEP, f"{_CONV_STEP}        acc = acc.to(tl.float16).to(tl.float32)\n"),
        STRIDED,
    ),
    Fault(
        "conv_bf16_acc_between",
        _conv(_CONV_STEP, f"{_CONV_STEP}        acc = acc.to(tl.bfloat16).to(tl.float32)\n"),
        GROUPED,
    ),
    Fault("conv_rounded_twice", _conv(_ADDED, "    acc = acc.to(tl.bfloat16).to(tl.float32)\n" + _ADDED), FLAT),
    Fault(
        "conv3d_fp16_acc_between",
        _conv(_CONV_STEP, f"{_CONV_STEP}        acc = acc.to(tl.float16).to(tl.float32)\n"),
        DEEP,
    ),
    # a single tap as a product
    Fault(
        "conv1x1_bias_reversed",
        Edit(HOST_CONV, 'views["bias"] = tensors["bias"]', 'views["bias"] = tensors["bias"].flip(0)'),
        SINGLE,
    ),
    Fault("conv1x1_pitch_without_padding", Edit(HOST_CONV, "return kernel.launch(product, views)", _PITCH), SINGLE),
    Fault(
        "conv1x1_bf16_acc_between",
        Edit(
            TILES,
            _POINTER_STEP,
            _POINTER_STEP.replace("a_tile", "acc = acc.to(tl.bfloat16).to(tl.float32)\n        a_tile"),
        ),
        SINGLE,
    ),
)
