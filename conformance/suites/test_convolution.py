"""Convolutions: windows, strides, padding, groups and memory orders in two and three dimensions."""

import math

from conformance.cases.scenarios import scenario, where
from conformance.families.conv.examples import one_order, orders
from conformance.families.conv.problem import Conv, image_size
from conformance.families.examples import dtype_fields
from conformance.judging.plan_rules import expect_refusal
from conformance.records import ReasonCode

LAST, FIRST = "channels-last", "contiguous"

#: Fields of the problem, and whether sizes are compile-time constants.
STYLES = {
    "first": ({}, False),
    "last-bias": (one_order(LAST) | {"bias": True}, False),
    "last-static": (one_order(LAST), True),
    "mixed-padded-bias": (orders(LAST, FIRST, FIRST) | {"pad": 5, "bias": True}, False),
}

#: window, stride, padding, groups and, if it is not 1, dilation. The quick tier has the first one: it differs in each
#: direction, and a program must stay in its group.
WINDOWS = {
    "two-groups": ((3, 2), (2, 1), (1, 0), 2, (1, 3)),
    # the usual layer: every tap but the middle one leaves the image somewhere
    "3x3-same": ((3, 3), (1, 1), (1, 1), 1),
    # one tap: no loop over the window
    "1x1": ((1, 1), (1, 1), (0, 0), 1),
    # windows that do not overlap
    "patches": ((2, 2), (2, 2), (0, 0), 1),
    # whole windows that see padding only
    "padded-past-the-window": ((1, 4), (1, 3), (2, 3), 1),
    # K is shorter than any block
    "one-channel-per-group": ((1, 2), (1, 1), (1, 1), 3),
    # taps further apart than outputs along one axis and not along the other; some leave the image
    "dilated": ((2, 3), (1, 3), (2, 1), 1, (3, 2)),
}
#: The same. The quick tier has the second one.
DEEP_WINDOWS = {
    "2x2x2": ((2, 2, 2), (1, 1, 1), (1, 0, 1), 1),
    "two-groups": ((2, 2, 3), (3, 2, 1), (1, 0, 2), 2, (1, 3, 2)),
    "1x1x1": ((1, 1, 1), (1, 1, 1), (0, 0, 0), 1),
    "padded-past-the-window": ((1, 3, 1), (1, 2, 1), (1, 3, 0), 1),
    "dilated": ((2, 2, 2), (1, 1, 2), (2, 0, 1), 2, (3, 2, 1)),
}


def convolution(dtype, config, geometry, *, batch=2, **fields):
    """Returns two or more ragged row blocks of positions over ``batch`` images, and two of columns (one where there are
    groups or many taps). There are three k-blocks or more: channels make one and a half, three where there is one tap.
    """
    window, stride, padding, groups, *more = geometry
    dilation = more[0] if more else (1,) * len(window)
    taps = math.prod(window)
    channels = config.block_k // 2 + 3 if taps > 1 else 2 * config.block_k + 3
    if groups == 3:
        channels = 1  # one channel a group
    columns = config.block_n + 5 if groups == 1 and taps <= 4 else config.block_n - 3
    width = 7 if len(window) == 2 else 5
    rows = -(-(config.block_m + 9) // (max(batch, 1) * width))
    positions = (rows, width) if len(window) == 2 else (2, -(-rows // 2), width)
    size = image_size(positions, window, stride, padding, dilation)
    return Conv(
        f"conv{len(window)}d", batch, channels * groups, size, columns * groups, window, stride, padding, groups,
        dilation=dilation, **dtype_fields(dtype), **fields,
    )  # fmt: skip


@scenario(
    where(family="conv", operation="conv2d", pointwise=False, depthwise=False, transposed=False),
    window=list(WINDOWS),
    rotate={"style": list(STYLES)},
)
def test_windows(conform, kernel, target, dtype, config, window, style):
    """Windows of one tap, odd, even and flat; strides, padding wider than the window, groups."""
    fields, static = STYLES[style]
    problem = convolution(dtype, config, WINDOWS[window], **fields)
    conform(kernel, problem, config=config, target=target, static=static)


@scenario(
    where(family="conv", operation="conv3d", pointwise=False, depthwise=False, transposed=False),
    window=list(DEEP_WINDOWS),
    rotate={"style": list(STYLES)},
)
def test_windows_with_depth(conform, kernel, target, dtype, config, window, style):
    """The same in three dimensions."""
    fields, static = STYLES[style]
    problem = convolution(dtype, config, DEEP_WINDOWS[window], **fields)
    conform(kernel, problem, config=config, target=target, static=static)


@scenario(
    where(family="conv", pointwise=True),
    rank=[2, 3],
    rotate={"weights": [LAST, FIRST]},
    configs=1,
    every_target=True,  # short cases: with them the quick tier has a convolution on every target
)
def test_single_tap_as_product(conform, kernel, target, dtype, config, rank, weights):
    """A 1x1 window over channels-last operands is a product of matrices, however its weights lie."""
    geometry = ((1,) * rank, (1,) * rank, (0,) * rank, 1)
    fields = {"pad": 8 * (rank - 2), "bias": rank == 2, **orders(LAST, weights, LAST)}
    problem = convolution(dtype, config, geometry, **fields)
    conform(kernel, problem, config=config, target=target)


@scenario(
    where(family="conv", depthwise=False, transposed=False), window=["1x1", "3x3"], dtypes=("bf16", "fp16"), configs=1
)
def test_empty_batch(conform, recorder, kernel, target, dtype, config, window):
    """A batch of no image launches nothing and gives an empty result. The kernels that use a product refuse it."""
    rank = kernel.rank
    edge, pad = (3, 1) if window == "3x3" else (1, 0)
    problem = convolution(dtype, config, ((edge,) * rank, (1,) * rank, (pad,) * rank, 1), batch=0, **one_order(LAST))
    if kernel.pointwise:
        code = ReasonCode.EXTENT if edge == 1 else ReasonCode.OPERATION
        expect_refusal(conform, recorder, kernel, problem, config=config, target=target, code=code)
        return
    run = conform(kernel, problem, config=config, target=target)
    recorder.verdict("launch", 0 in run.plan.grid, f"grid {run.plan.grid}")
    for name, out in run.trial.outputs.items():
        recorder.verdict(f"shape/{name}", tuple(out.shape) == problem.output.shape, str(tuple(out.shape)))


#: window, stride, padding, dilation and output channels for each channel. The quick tier has the fifth one.
DEPTHWISE = {
    "3x3-same": ((3, 3), (1, 1), (1, 1), (1, 1), 1),
    "1x1": ((1, 1), (1, 1), (0, 0), (1, 1), 3),
    "dilated": ((2, 3), (1, 2), (3, 2), (3, 2), 1),
    # whole windows that see padding only
    "padded-past-the-window": ((1, 4), (1, 3), (2, 4), (1, 1), 1),
    "two-a-channel": ((3, 2), (2, 1), (1, 1), (2, 3), 2),
    # the window is larger than the image
    "larger-than-the-image": ((5, 4), (1, 1), (4, 3), (1, 1), 2),
}


def depthwise(config, dtype, geometry, *, batch=2, **fields):
    """A column block and a few channels more, and two row blocks of positions or more over ``batch`` images."""
    window, stride, padding, dilation, multiplier = geometry
    channels = -(-(config.block_n + 3) // multiplier)
    positions = 2, -(-(config.block_m + 5) // (2 * max(batch, 1)))
    size = image_size(positions, window, stride, padding, dilation)
    return Conv(
        "conv2d", batch, channels, size, channels * multiplier, window, stride, padding, channels, dtype,
        dilation=dilation, **fields,
    )  # fmt: skip


@scenario(where(family="conv", depthwise=True), window=list(DEPTHWISE), rotate={"style": list(STYLES)[::-1]})
def test_groups_of_one_channel(conform, kernel, target, dtype, config, window, style):
    """Groups of one channel, with one output channel or more for each; no matrix unit is used."""
    fields, static = STYLES[style]
    problem = depthwise(config, dtype, DEPTHWISE[window], **fields)
    conform(kernel, problem, config=config, target=target, static=static)


@scenario(
    where(family="conv", depthwise=True),
    edge=["far-images", "far-taps", "far-channels", "empty"],
    dtypes=("bf16",),
    configs=1,
    every_row=where(family="conv", depthwise=True),
)
def test_edges_of_groups_of_one_channel(conform, kernel, target, dtype, config, edge):
    """A batch of no image launches nothing. Offsets of the last image, tap and channel may need more than 32 bits; the
    memory between is not used."""
    plain, fills = ((1, 2), (1, 1), (0, 1), (1, 1), 1), ("transparent", "wide-A", "randn")
    if edge == "empty":
        conform(kernel, depthwise(config, dtype, plain, batch=0), config=config, target=target)
    elif edge == "far-images":
        problem = depthwise(config, dtype, plain, batch=3, batch_pad=2**30, **one_order(LAST))
        conform(kernel, problem, config=config, target=target, fills=fills)
    else:
        channels, taps, order = (1, 3, LAST) if edge == "far-taps" else (3, 1, FIRST)
        pitches = one_order(order) | {"pad": 2**30}
        problem = Conv("conv2d", 1, channels, (1, 3), channels, (1, taps), (1, 1), (0, 0), channels, dtype, **pitches)
        conform(kernel, problem, config=config, target=target, fills=("transparent",))


#: by the rank of the images
FAR_IMAGES = {2: ((1, 2), (1, 1), (0, 1), 1), 3: ((1, 1, 2), (1, 1, 1), (0, 0, 1), 1)}


@scenario(
    where(family="conv", pointwise=False, depthwise=False, transposed=False), order=[LAST], dtypes=("bf16",), configs=1
)
def test_images_past_2_31_elements(conform, kernel, target, dtype, config, order):
    """Offsets of the last image need more than 32 bits; only the images themselves are touched."""
    problem = convolution(dtype, config, FAR_IMAGES[kernel.rank], batch=3, batch_pad=2**30, **one_order(order))
    conform(kernel, problem, config=config, target=target, fills=("transparent", "wide-A", "randn"))


#: By the tensor with the large stride. First come channels of x and out (in groups of their half), strides that make
#: 2**31, and the orders of x, w and out. Last are positions of x and taps in a row.
FAR = {
    "in": (lambda c: (2 * (c.block_k + 1), 2, c.block_k - 1), (FIRST, LAST, FIRST), 9, 1),
    "out": (lambda c: (4, 2 * c.block_n, 2 * c.block_n - 1), (LAST, LAST, FIRST), 9, 1),
    "taps": (lambda c: (1, 1, 2), (LAST, LAST, LAST), 3, 3),
}


@scenario(
    where(family="conv", operation="conv2d", pointwise=False, depthwise=False, transposed=False),
    far=list(FAR),
    dtypes=("bf16",),
    configs=1,
    every_row=where(family="conv"),
)
def test_strides_past_2_31_elements(conform, kernel, target, dtype, config, far):
    """Offsets of a block of channels, of the second group and of the last tap need more than 32 bits. The memory
    between is not used. The output is of a wider dtype than the image."""
    channels, order, width, taps = FAR[far]
    ins, outs, strides = channels(config)
    layout = orders(*order) | {"pad": 2**31 // strides}
    geometry = ((1, taps), (1, 1), (0, 0), min(outs, 2))
    problem = Conv("conv2d", 1, ins, (1, width), outs, *geometry, dtype, "fp32", **layout)
    conform(kernel, problem, config=config, target=target, fills=("transparent",))


REFUSED = {
    "stride": (((1, 1), (2, 1), (0, 0), 1), (LAST, LAST, LAST), ReasonCode.OPERATION),
    "padding": (((1, 1), (1, 1), (0, 1), 1), (LAST, LAST, LAST), ReasonCode.OPERATION),
    "groups": (((1, 1), (1, 1), (0, 0), 2), (LAST, LAST, LAST), ReasonCode.OPERATION),
    "window": (((1, 2), (1, 1), (0, 0), 1), (LAST, LAST, LAST), ReasonCode.OPERATION),
    "x-contiguous": (((1, 1), (1, 1), (0, 0), 1), (FIRST, LAST, LAST), ReasonCode.LAYOUT),
    "out-contiguous": (((1, 1), (1, 1), (0, 0), 1), (LAST, LAST, FIRST), ReasonCode.LAYOUT),
}


@scenario(where(family="conv", pointwise=True), refused=list(REFUSED), dtypes=("bf16",), configs=1)
def test_what_is_no_product(conform, recorder, kernel, target, dtype, config, refused):
    """A kernel refuses convolutions that cannot be seen as one product of matrices, for a typed reason."""
    geometry, order, code = REFUSED[refused]
    problem = convolution(dtype, config, geometry, **orders(*order))
    expect_refusal(conform, recorder, kernel, problem, config=config, target=target, code=code)
