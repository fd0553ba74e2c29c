"""Examples, timed problems and random problems of gradients of convolutions for their weights."""

from __future__ import annotations

import math
from typing import Any

from conformance.families.conv import examples as forward_examples
from conformance.families.conv.examples import one_order
from conformance.families.conv.problem import Conv
from conformance.families.draw import Draw
from conformance.families.examples import dtype_fields, matrix_sizes
from conformance.families.weight_gradient.problem import WeightGradient


def example(kernel: Any, dtype: str, config: Any, shape: str) -> WeightGradient:
    """Returns a gradient whose output channels stand for rows of a product. The taps of a 2x2 window and channels stand
    for columns, positions of two images for k. The bias has its gradient where there are several column tiles."""
    rows, columns, k = matrix_sizes(config, dtype, shape)
    of_image = k // 2
    width = math.gcd(of_image, 8)
    out_size = of_image // width, width
    padding = tuple(int(edge > 1) for edge in out_size)
    size = tuple(edge + 1 - 2 * pad for edge, pad in zip(out_size, padding, strict=True))
    several = shape == "several-tiles"
    forward = Conv(
        "conv2d", 2, columns // 4, size, rows, (2, 2), (1, 1), padding, bias=several,
        **dtype_fields(dtype), **one_order("contiguous" if several else "channels-last"),
    )  # fmt: skip
    return WeightGradient(forward)


def timed(kernel: Any, dtype: str) -> WeightGradient:
    """Returns the gradient of the timed convolution."""
    return WeightGradient(forward_examples.timed(kernel, dtype))


def draw_problem(kernel: Any, draw: Draw) -> WeightGradient:
    """Returns the gradient of a random convolution."""
    return WeightGradient(forward_examples.draw_problem(kernel, draw))
