"""Transposed convolutions, which are gradients of convolutions for their images: two ways to the same sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from conformance.families.conv.examples import one_order
from conformance.families.conv.problem import TransposedConv, conv_transpose2d, input_gradient
from conformance.families.draw import Draw
from conformance.families.examples import EVEN, TIMED_IMAGE, WHOLE_TILES, dtype_fields, matrix_sizes
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.conv import PointerConv, by_axis
from conformance.kernels.device.conv import conv_input_gradient, conv_transposed
from conformance.kernels.kernel import Plan
from conformance.kernels.launch import Launch

#: Small tiles without a pipeline, tiles of large matrix instructions, wide and tall ones.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(32, 32, 16, 1, 2),
    Config(64, 64, 32, 3, 4),
    Config(128, 16, 32, 2, 4),
    Config(64, 128, 16, 2, 8),
)
INPUT_GRADIENT_CONFIGS: tuple[AnyConfig, ...] = (
    Config(16, 32, 32, 1, 2),
    Config(64, 32, 32, 2, 4),
    Config(128, 64, 16, 3, 8),
)


class TransposedPointerConv(PointerConv):
    """The implicit product over every tap, where rows multiply zeros for the taps between two elements of x."""

    transposed = True
    zero_sign = "ieee"
    axes, weight_axes = "HW", "co"

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> TransposedConv:
        """See :class:`Kernel`. Output positions stand for rows of a product, output channels for columns, channels for
        k. The strides are 2 x 1, and the windows 1x1 where K is to be long."""
        positions, columns, channels = matrix_sizes(config, dtype, shape)
        edge, width = 1 if shape in ("many-k-blocks", WHOLE_TILES, EVEN) else 2, min(positions, 8)
        out_size, stride = (triton.cdiv(positions, width), width), (2, 1)
        window = tuple(min(edge, size) for size in out_size)
        left = [size - taps for size, taps in zip(out_size, window, strict=True)]
        size = tuple(rest // step + 1 for rest, step in zip(left, stride, strict=True))
        output_padding = tuple(rest % step for rest, step in zip(left, stride, strict=True))
        return conv_transpose2d(
            1, channels, size, columns, window, stride=stride, output_padding=output_padding,
            **dtype_fields(dtype), **one_order("contiguous" if shape == "several-tiles" else "channels-last"),
        )  # fmt: skip

    def timed(self, dtype: str) -> TransposedConv:
        """See :class:`Kernel`: 8 images of 256 channels, twice as large as they were."""
        fields = {**dtype_fields(dtype), **one_order("channels-last")}
        return conv_transpose2d(8, 256, TIMED_IMAGE // 2, 256, 3, stride=2, padding=1, output_padding=1, **fields)

    def draw_problem(self, draw: Draw) -> TransposedConv:
        """See :class:`Kernel`: the gradient of a convolution that other kernels take, with a bias and any orders."""
        forward = super().draw_problem(draw)
        orders = {name: getattr(forward, name) for name in ("order_x", "order_w", "order_out")}
        return input_gradient(forward, bias=forward.bias, **orders)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        arguments = {
            **self._arguments(plan, tensors),
            "EVEN_CHANNELS": plan.problem.group_channels % plan.config.block_k == 0,
        }
        return Launch(conv_transposed, plan.grid, arguments, plan.config.options)


class InputGradientConv(TransposedPointerConv):
    """A product for each phase of the strides, over the taps that its rows meet."""

    phases = True
    zero_sign = "ieee"

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: (phases times tiles of their positions, tiles of output channels of a group, groups)."""
        problem, (_, *columns_and_groups) = plan.problem, super().grid(plan)
        each = (triton.cdiv(size, step) for size, step in zip(problem.out_size, problem.stride, strict=True))
        tiles = triton.cdiv(problem.batch * math.prod(each), plan.config.block_m)
        return (math.prod(problem.stride) * tiles, *columns_and_groups)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem = plan.problem
        common = tuple(map(math.gcd, problem.stride, problem.dilation))
        inverse = tuple(
            pow(apart // divisor, -1, step // divisor) if step > divisor else 0
            for step, apart, divisor in zip(problem.stride, problem.dilation, common, strict=True)
        )
        arguments = {
            **self._arguments(plan, tensors),
            **by_axis("COMMON_{}", common),
            **by_axis("INVERSE_{}", inverse),
        }
        return Launch(conv_input_gradient, plan.grid, arguments, plan.config.options)


KERNELS: tuple[PointerConv, ...] = (
    TransposedPointerConv("conv_transpose2d", "conv_transpose2d", configs=CONFIGS),
    InputGradientConv("conv2d_input_gradient", "conv_transpose2d", configs=INPUT_GRADIENT_CONFIGS),
)
