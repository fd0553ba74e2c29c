"""Faults of gradients for the weights of a convolution and for its bias: geometry, masks, groups and sums."""

from conformance.families.conv.problem import conv2d
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.kernels.kernel import Variant
from tests.planted.cases import SMALL, Case, Fault, fault, grouped

LAST = {"order_x": "channels-last", "order_w": "channels-last", "order_out": "channels-last"}
SOURCE, HOST = "device/conv.py::conv_weight_gradient,conv_bias_gradient", "weight_gradient.py"


def _case(*sizes, variant=None, **fields) -> Case:
    problem = WeightGradient(conv2d(*sizes, **fields))
    return Case("conv2d_weight_gradient", problem, SMALL, variant or Variant())


#: strides, padding and dilation that differ along the axes; ragged tiles, and blocks that reach over images
MIXED = _case(3, 7, (9, 8), 40, (3, 2), stride=(2, 1), padding=(1, 0), dilation=(1, 2), bias=True, pad=3, **LAST)
GROUPS = _case(2, 18, (5, 6), 40, (2, 3), "bf16", stride=2, padding=(2, 1), groups=2, bias=True)
#: whole blocks of positions, which the compiler knows
WHOLE = _case(2, 9, (5, 8), 36, (2, 3), padding=(0, 1), variant=Variant(static=True), bias=True)
EMPTY = _case(0, 9, (4, 5), 36, 2, bias=True)
#: the third image lies 2**31 elements or more behind the first
FAR = _case(3, 6, (1, 5), 8, (1, 2), "bf16", batch_pad=2**30, bias=True, **LAST)

_STEP = "acc = tl.dot(a, b, acc, input_precision=PRECISION)\n"
_TURN = ":\n        position = block * BLOCK_K + rk\n        "
_ROWS = "stride_go\n\n    acc = tl.zeros((BLOCK_M, BLOCK_N)"
_GRID = 'tiles of taps and channels, groups)."""\n'


def _weights(name: str, case: Case, old: str, new: str) -> Fault:
    return fault(f"weight_gradient_{name}", case, SOURCE, old, new)


WEIGHT_GRADIENT = grouped(
    "weight gradient",
    _weights("no_padding", GROUPS, "kh * DILATION_H - PADDING_H", "kh * DILATION_H"),
    _weights("paddings_exchanged", GROUPS, "DILATION_W - PADDING_W", "DILATION_W - PADDING_H"),
    _weights("no_dilation", MIXED, "kw * DILATION_W", "kw"),
    _weights("channel_of_other_size", GROUPS, "column % CHANNELS", "column % (CHANNELS - 1)"),
    _weights(
        "rows_of_first_group",
        GROUPS,
        f"grad_out_ptr + out_channel * {_ROWS}",
        f"grad_out_ptr + ro * {_ROWS}",
    ),
    _weights("first_image_again", MIXED, "x_step = n * stride_xn", "x_step = 0 * n"),
    _weights("even_rows_read_past_the_last", WHOLE, "mask=in_rows[:, None], other", "mask=(ro >= 0)[:, None], other"),
    _weights(
        "last_block_dropped", WHOLE, f"tl.cdiv(POSITIONS, BLOCK_K)){_TURN}ow", f"POSITIONS // BLOCK_K - 1){_TURN}ow"
    ),
    _weights("rest_dropped", MIXED, f"tl.cdiv(POSITIONS, BLOCK_K)){_TURN}ow", f"POSITIONS // BLOCK_K){_TURN}ow"),
    _weights("bf16_acc_between", WHOLE, _STEP, f"{_STEP}        acc = acc.to(tl.bfloat16).to(tl.float32)\n"),
    fault(
        "weight_gradient_without_an_image_not_written",
        EMPTY,
        HOST,
        _GRID,
        f"{_GRID}        if not plan.problem.positions:\n            return (0, 1, 1)\n",
    ),
    fault("weight_gradient_narrow_index", FAR, HOST, '"WIDE_INDEX": spans_wide(problem)', '"WIDE_INDEX": False'),
    fault("bias_gradient_absent", MIXED, HOST, "if problem.bias:", "if False:"),
    fault(
        "bias_gradient_of_a_group",
        GROUPS,
        HOST,
        '{"OUT_CHANNELS": forward.out_channels}',
        '{"OUT_CHANNELS": forward.out_channels // 2}',
    ),
)
