"""Faults of transposed convolutions: which tap a position meets, phases of the strides, masks and groups."""

from conformance.families.conv.problem import conv_transpose2d
from tests.planted.cases import SMALL, Case, Edit, Fault, grouped

LAST = {"order_x": "channels-last", "order_w": "channels-last", "order_out": "channels-last"}

#: strides, padding, output padding and dilation that differ along the axes; ragged tiles and blocks of channels
MIXED = conv_transpose2d(
    2, 11, (4, 5), 36, (3, 2), stride=(2, 3), padding=(1, 0), output_padding=(1, 2), dilation=(1, 2), pad=3, **LAST
)
GROUPS = conv_transpose2d(2, 22, (3, 4), 40, (2, 3), "bf16", stride=2, padding=1, groups=2, bias=True)
#: two blocks of channels without a rest, and taps that no phase of odd rows meets
SHARED = conv_transpose2d(2, 32, (4, 3), 20, (2, 3), stride=(2, 3), padding=(1, 2), dilation=(4, 2))
#: positions that padding cuts off
CUT = conv_transpose2d(2, 20, (6, 5), 20, (3, 2), "fp32", padding=(3, 2), stride=(1, 2), dilation=(2, 1))

_STEP = "acc = tl.dot(a, b, acc, input_precision=PRECISION)\n"


_EXCHANGED = "* stride_wo + ro[None, :] * stride_wc"


def _both(file: str, kernel: str, short: str) -> tuple[Fault, ...]:
    """Faults that both functions can have."""
    mixed, groups, shared, cut = (Case(kernel, problem, SMALL) for problem in (MIXED, GROUPS, SHARED, CUT))

    def fault(name: str, old: str, new: str, case: Case, count: int = 1) -> Fault:
        return Fault(f"{short}_{name}", Edit(file, old, new, count), case)

    depth = "        " if short == "transposed" else "                "
    return (
        fault("padding_added_twice", "oh + PADDING_H - kh", "oh + 2 * PADDING_H - kh", cut),
        fault("weights_of_a_convolution", "* stride_wc + ro[None, :] * stride_wo", _EXCHANGED, mixed),
        fault("bias_of_first_group", "bias_ptr + channel", "bias_ptr + ro", groups),
        fault("channels_mask_short1", "rk < CHANNELS -", "rk < CHANNELS - 1 -", groups),
        fault("weights_of_other_axis", "kh * stride_wh + kw * stride_ww", "kh * stride_ww + kw * stride_wh", mixed),
        fault("bf16_acc_between", _STEP, f"{_STEP}{depth}acc = acc.to(tl.bfloat16).to(tl.float32)\n", shared),
    )  # fmt: skip


def _phased(name: str, old: str, new: str, problem) -> Fault:
    edit = Edit("device/conv.py::conv_input_gradient", old, new)
    return Fault(f"input_gradient_{name}", edit, Case("conv2d_input_gradient", problem, SMALL))


TRANSPOSED = grouped(
    "transposed convolution",
    *_both("device/conv.py::conv_transposed", "conv_transpose2d", "transposed"),
    *_both("device/conv.py::conv_input_gradient", "conv2d_input_gradient", "input_gradient"),
    _phased("step_of_the_stride", "kh = tap_h + down * step_h", "kh = tap_h + down * STRIDE_H", SHARED),
)
