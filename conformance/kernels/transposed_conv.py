"""Transposed convolutions, which are gradients of convolutions for their images: two ways to the same sums."""

from __future__ import annotations

import math
from collections.abc import Mapping

import triton
from torch import Tensor

from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.conv import PointerConv, by_axis
from conformance.kernels.device.conv import conv_input_gradient, conv_transposed
from conformance.kernels.families.conv import TransposedFamily
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


class TransposedPointerConv(TransposedFamily, PointerConv):
    """The implicit product over every tap, where rows multiply zeros for the taps between two elements of x."""

    zero_sign = "ieee"

    axes, weight_axes = "HW", "co"

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
