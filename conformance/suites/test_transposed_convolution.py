"""Transposed convolutions, and gradients of convolutions for their images: strides, padding, dilation and groups."""

from conformance.cases.scenarios import scenario, where
from conformance.families.conv.examples import one_order, orders
from conformance.families.conv.problem import Conv, TransposedConv, conv_transpose2d, input_gradient
from conformance.families.examples import dtype_fields

LAST, FIRST = "channels-last", "contiguous"

#: Fields of the problem, and whether sizes are compile-time constants.
STYLES = {
    "first": ({}, False),
    "last-bias": (one_order(LAST) | {"bias": True}, False),
    "last-static-bias": (one_order(LAST) | {"bias": True}, True),
    "mixed-padded-bias": (orders(LAST, FIRST, FIRST) | {"pad": 5, "bias": True}, False),
}

#: window, stride, padding, output padding, groups, dilation. The quick tier has the first two. Everything differs in
#: each direction, a program must stay in its group, and phases of the strides meet other taps.
WINDOWS = {
    "two-groups": ((3, 2), (2, 3), (1, 0), (1, 2), 2, (1, 2)),
    # stride and dilation share a divisor: some phases meet no tap in one direction, and some in both
    "dilated-with-the-stride": ((2, 3), (2, 3), (1, 2), (1, 1), 1, (4, 3)),
    # an image that becomes twice as large
    "doubled": ((4, 4), (2, 2), (1, 1), (0, 0), 1, (1, 1)),
    # the gradient of the usual layer
    "3x3-same": ((3, 3), (1, 1), (1, 1), (0, 0), 1, (1, 1)),
    # positions between the windows, which no tap reaches: they are zero, or the bias
    "gaps": ((1, 1), (2, 3), (0, 0), (1, 0), 1, (1, 1)),
    # more is cut off the output than one window is wide
    "padded-past-the-window": ((2, 3), (1, 2), (3, 2), (0, 1), 1, (1, 1)),
    # K is shorter than any block
    "one-channel-per-group": ((2, 2), (2, 1), (0, 1), (0, 0), 3, (1, 1)),
}


def transposed(dtype, config, geometry, *, batch=2, **fields):
    """Returns two ragged row blocks of positions or more over ``batch`` images, and two of columns where there is one
    group. Each tap has one and a half k-blocks of channels, a single tap three."""
    window, stride, padding, output_padding, groups, dilation = geometry
    channels = config.block_k // 2 + 3 if groups != 1 else config.block_k + 3
    if groups == 3:
        channels = 1  # one channel a group
    columns = config.block_n + 5 if groups == 1 else config.block_n - 3
    width = 7
    out_size = -(-(config.block_m + 9) // (max(batch, 1) * width)), width
    axes = zip(out_size, window, stride, padding, output_padding, dilation, strict=True)
    size = tuple(
        max(-(-(count + 2 * pad - (extent - 1) * apart - 1 - more) // step) + 1, 1)
        for count, extent, step, pad, more, apart in axes
    )
    return conv_transpose2d(
        batch, channels * groups, size, columns * groups, window, groups=groups, stride=stride, padding=padding,
        output_padding=output_padding, dilation=dilation, **dtype_fields(dtype), **fields,
    )  # fmt: skip


@scenario(
    where(family="conv", transposed=True),
    window=list(WINDOWS),
    rotate={"style": list(STYLES)[::-1]},
    dtypes=("bf16", "tf32"),
)
def test_transposed_windows(conform, kernel, target, dtype, config, window, style):
    """Strides with and without positions that no tap reaches, output padding, dilation, groups."""
    fields, static = STYLES[style]
    problem = transposed(dtype, config, WINDOWS[window], **fields)
    conform(kernel, problem, config=config, target=target, static=static)


#: The convolution whose gradient is asked for: size, window, stride, padding, dilation.
GRADIENTS = {
    # stride leaves a row of the image that no window reaches
    "rest": ((11, 9), (3, 2), (3, 2), (1, 0), (1, 1)),
    # the window is larger than the image: padding has room for it
    "larger-than-the-image": ((3, 2), (5, 4), (1, 2), (2, 3), (1, 1)),
    "1x1": ((7, 6), (1, 1), (1, 1), (0, 0), (1, 1)),
    "empty-batch": ((7, 6), (3, 3), (2, 1), (1, 1), (1, 1)),
}


@scenario(where(family="conv", transposed=True), forward=list(GRADIENTS), dtypes=("bf16", "fp32"), configs=1)
def test_gradient_for_the_image(conform, recorder, kernel, target, dtype, config, forward):
    """The gradient of a convolution has the size of its image, whatever its stride leaves over."""
    size, window, stride, padding, dilation = GRADIENTS[forward]
    batch = 0 if forward == "empty-batch" else 3
    sizes = (batch, config.block_n + 3, size, config.block_k + 5, window, stride, padding)
    problem = input_gradient(Conv("conv2d", *sizes, 1, dtype, dilation=dilation), order_x=LAST, order_out=LAST)
    recorder.verdict("size of the image", problem.out_size == size, str(problem.out_size))
    run = conform(kernel, problem, config=config, target=target)
    if not batch:
        recorder.verdict("launch", 0 in run.plan.grid, f"grid {run.plan.grid}")


@scenario(where(family="conv", transposed=True), far=["images", "in", "taps", "out"], dtypes=("bf16",), configs=1)
def test_far_offsets(conform, kernel, target, dtype, config, far):
    """Offsets need more than 32 bits. They are those of the last image, of a block of channels in the second group, and
    of the last output channel and tap. The memory between is not used."""
    batch, ins, outs, taps, width, fields = {
        "images": (3, 6, 8, 2, 5, {"batch_pad": 2**30, "order_x": LAST, "order_out": LAST}),
        "in": (1, 2 * (config.block_k + 1), 2, 1, 5, {"order_w": FIRST, "pad": 2**31 // config.block_k}),
        "out": (1, 4, 2 * config.block_n, 1, 5, {"order_x": LAST, "order_w": LAST, "pad": 2**31 // config.block_n}),
        "taps": (1, 1, 1, 3, 1, one_order(LAST) | {"pad": 2**30}),
    }[far]
    problem = TransposedConv(
        "conv_transpose2d", batch, ins, (1, width), outs, (1, taps), (1, 2), (0, 0), min(ins, outs, 2), dtype,
        "fp32", **fields,
    )  # fmt: skip
    conform(kernel, problem, config=config, target=target, fills=("transparent",))
