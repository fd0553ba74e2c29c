"""The family of gradients of convolutions for their weights: its problems, examples and random problems."""

from __future__ import annotations

import math
from typing import Any

from conformance.families.conv.problem import Conv
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.kernels.families.conv import ConvFamily, one_order
from conformance.kernels.families.draw import Draw
from conformance.kernels.families.examples import dtype_fields, matrix_sizes


class WeightGradientFamily(ConvFamily):
    """A kernel whose problems are :class:`~conformance.families.weight_gradient.problem.WeightGradient`. A third-party
    kernel needs only this base."""

    family = "conv-gradient"

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> WeightGradient:  # type: ignore[override]
        """See :class:`Kernel`. Output channels stand for rows of a product, the taps of a 2x2 window and channels for
        columns, positions of two images for k. The bias has its gradient where there are several column tiles."""
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

    def timed(self, dtype: str) -> WeightGradient:  # type: ignore[override]
        """See :class:`Kernel`: that of the timed convolution."""
        return WeightGradient(super().timed(dtype))

    def draw_problem(self, draw: Draw) -> WeightGradient:  # type: ignore[override]
        """See :class:`Kernel`: the gradients of a random convolution."""
        return WeightGradient(super().draw_problem(draw))
