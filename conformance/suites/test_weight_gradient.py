"""Gradients of convolutions for weights and bias: strides, padding, dilation, groups, and positions of all images."""

from conformance.cases.scenarios import scenario, where
from conformance.cases.tier_rows import CROSSED
from conformance.families.conv.examples import one_order, orders
from conformance.families.conv.problem import Conv, image_size
from conformance.families.examples import dtype_fields
from conformance.families.weight_gradient.problem import WeightGradient

LAST, FIRST = "channels-last", "contiguous"

#: Fields of the convolution, and whether sizes are compile-time constants.
STYLES = {
    "first": ({}, False),
    "last-bias": (one_order(LAST) | {"bias": True}, False),
    "last-static": (one_order(LAST), True),
    "mixed-padded-bias": (orders(LAST, FIRST, FIRST) | {"pad": 5, "bias": True}, False),
}

#: window, stride, padding, groups and dilation of the convolution. The quick tier has the first one: it differs in each
#: direction, and a program must stay in its group.
WINDOWS = {
    "two-groups": ((3, 2), (2, 1), (1, 0), 2, (1, 3)),
    # the usual layer: every tap but the middle one leaves the image somewhere
    "3x3-same": ((3, 3), (1, 1), (1, 1), 1, (1, 1)),
    # one tap: a column for each channel
    "1x1": ((1, 1), (1, 1), (0, 0), 1, (1, 1)),
    # windows that do not overlap
    "patches": ((2, 2), (2, 2), (0, 0), 1, (1, 1)),
    # taps that see padding only: their gradients are 0
    "padded-past-the-window": ((1, 4), (1, 3), (2, 3), 1, (1, 1)),
    # columns are taps alone, as in a depthwise convolution
    "one-channel-per-group": ((3, 3), (1, 2), (1, 1), 3, (1, 1)),
    # taps further apart than positions along one axis and not along the other
    "dilated": ((2, 3), (1, 3), (2, 1), 1, (3, 2)),
}


def gradient(dtype, config, geometry, *, batch=2, **fields):
    """Two ragged tiles of output channels and of taps and channels or more, one of each where there are groups; three
    blocks of positions and a rest over ``batch`` images."""
    window, stride, padding, groups, dilation = geometry
    taps = window[0] * window[1]
    channels = -(-(config.block_n + 3) // taps) + 1 if groups == 1 else 1 if groups == 3 else config.block_n // taps + 1
    rows = config.block_m + 5 if groups == 1 else config.block_m - 3
    width = 7
    positions = -(-(3 * config.block_k + 5) // (max(batch, 1) * width)), width
    size = image_size(positions, window, stride, padding, dilation)
    forward = Conv(
        "conv2d", batch, channels * groups, size, rows * groups, window, stride, padding, groups,
        dilation=dilation, **dtype_fields(dtype), **fields,
    )  # fmt: skip
    return WeightGradient(forward)


@scenario(
    where(family="conv-gradient"),
    window={"quick": ["two-groups"], **dict.fromkeys(("default", *CROSSED), tuple(WINDOWS))},
    rotate={"style": list(STYLES)[::-1]},
    dtypes=("bf16", "tf32"),
)
def test_gradient_of_windows(conform, kernel, target, dtype, config, window, style):
    """Windows of one tap, odd, even and flat; strides, padding wider than the window, dilation, groups."""
    fields, static = STYLES[style]
    problem = gradient(dtype, config, WINDOWS[window], **fields)
    conform(kernel, problem, config=config, target=target, static=static)


#: Images, and positions of each: none and one, less than a block, whole blocks, and images that end inside of blocks.
POSITIONS = {
    "no-image": lambda block: (0, (2, 3)),
    "one-position": lambda block: (1, (1, 1)),
    "less-than-a-block": lambda block: (1, (1, block - 1)),
    "one-more-than-a-block": lambda block: (1, (1, block + 1)),
    "images-of-blocks": lambda block: (2, (block // 4, 8)),
    "many-images": lambda block: (2 * block - 3, (2, 1)),
}


@scenario(
    where(family="conv-gradient"),
    positions={"quick": [], **dict.fromkeys(("default", *CROSSED), tuple(POSITIONS))},
    rotate={"bias": [True, False]},
    dtypes=("fp16", "fp32"),
    configs=1,
)
def test_positions(conform, recorder, kernel, target, dtype, config, positions, bias):
    """The sum runs over the positions of all images. Without an image the gradients are 0, and written."""
    batch, (down, across) = POSITIONS[positions](config.block_k)
    forward = Conv(
        "conv2d", batch, config.block_n // 4, (down + 1, across), config.block_m + 3, (2, 3), (1, 1), (0, 1), 1, dtype,
        bias=bias, order_x=LAST, order_out=LAST,
    )  # fmt: skip
    run = conform(kernel, WeightGradient(forward), config=config, target=target)
    if not batch:
        recorder.verdict("launch", 0 not in run.plan.grid, f"grid {run.plan.grid}")


@scenario(
    where(family="conv-gradient"),
    far={"quick": ["images"], **dict.fromkeys(("default", *CROSSED), ("images", "in", "out", "taps"))},
    dtypes=("bf16",),
    configs=1,
)
def test_far_offsets(conform, kernel, target, dtype, config, far):
    """Offsets need more than 32 bits. They are those of the last image, of the last channel of the second group, of the
    last output channel and of the last tap. The memory between is not used. Of the images the compiler knows that they
    fill whole blocks of positions."""
    batch, ins, outs, taps, width, fields = {
        "images": (3, 6, 8, 2, config.block_k + 1, {"batch_pad": 2**30, "order_x": LAST, "order_out": LAST}),
        "in": (1, config.block_n + 2, 2, 1, 5, {"order_w": LAST, "pad": 2**31 // config.block_n}),
        "out": (1, 4, config.block_m + 2, 1, 5, {"order_x": LAST, "order_w": LAST, "pad": 2**31 // config.block_m}),
        "taps": (1, 1, 1, 3, 3, one_order(LAST) | {"pad": 2**30}),
    }[far]
    forward = Conv(
        "conv2d", batch, ins, (1, width), outs, (1, taps), (1, 1), (0, 0), min(ins, outs, 2), dtype,
        bias=far in ("images", "out"), **fields,
    )  # fmt: skip
    conform(
        kernel, WeightGradient(forward), config=config, target=target, static=far == "images", fills=("transparent",)
    )
