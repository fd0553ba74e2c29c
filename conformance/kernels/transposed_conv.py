"""Transposed convolutions, which are gradients of convolutions for their images: two ways to the same sums."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.arguments import dot_precision, size_arguments, spans_wide
from conformance.kernels.conv import PointerConv
from conformance.kernels.device.conv import conv_input_gradient, conv_transposed
from conformance.kernels.families.conv import TransposedFamily
from conformance.kernels.kernel import Plan, check_tensors
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

    def __init__(self, name: str, configs: tuple[AnyConfig, ...]) -> None:
        self.name = name
        self.operations = frozenset({"conv_transpose2d"})
        self.configs = configs

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`."""
        arguments = {
            **self._arguments(plan, tensors),
            "EVEN_CHANNELS": plan.problem.group_channels % plan.config.block_k == 0,
        }
        return Launch(conv_transposed, plan.grid, arguments, plan.config.options)

    def _arguments(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Returns the arguments that both device functions take. Raises NotApplicable if a tensor is not what the plan
        was made for."""
        problem, config = plan.problem, plan.config
        check_tensors(self.name, problem, tensors)
        sizes = {
            "BATCH": problem.batch,
            "CHANNELS": problem.group_channels,
            "OUT_CHANNELS": problem.out_channels // problem.groups,
            **_by_axis("{}", problem.size),
            **_by_axis("O{}", problem.out_size),
        }
        strides: dict[str, int] = {}
        operands = problem.operand("x"), problem.operand("w"), problem.output
        for letter, axes, operand in zip("xwo", ("nchw", "cohw", "nchw"), operands, strict=True):
            steps = zip(axes, operand.strides, strict=True)
            strides |= {f"stride_{letter}{axis}": step for axis, step in steps}
        return {
            "x_ptr": tensors["x"],
            "w_ptr": tensors["w"],
            "out_ptr": tensors["out"],
            "bias_ptr": tensors.get("bias"),
            **size_arguments(sizes, plan.variant.static),
            **strides,
            **_by_axis("KERNEL_{}", problem.kernel),
            **_by_axis("STRIDE_{}", problem.stride),
            **_by_axis("PADDING_{}", problem.padding),
            **_by_axis("DILATION_{}", problem.dilation),
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "BLOCK_K": config.block_k,
            "WIDE_INDEX": spans_wide(problem),
            "PRECISION": dot_precision(problem),
            "HAS_BIAS": problem.bias,
        }


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
        """See :class:`Kernel`."""
        problem = plan.problem
        common = tuple(map(math.gcd, problem.stride, problem.dilation))
        inverse = tuple(
            pow(apart // divisor, -1, step // divisor) if step > divisor else 0
            for step, apart, divisor in zip(problem.stride, problem.dilation, common, strict=True)
        )
        arguments = {
            **self._arguments(plan, tensors),
            **_by_axis("COMMON_{}", common),
            **_by_axis("INVERSE_{}", inverse),
        }
        return Launch(conv_input_gradient, plan.grid, arguments, plan.config.options)


def _by_axis(name: str, values: tuple[int, ...]) -> dict[str, int]:
    return {name.format(axis): value for axis, value in zip("HW", values, strict=True)}


KERNELS: tuple[PointerConv, ...] = (
    TransposedPointerConv("conv_transpose2d", CONFIGS),
    InputGradientConv("conv2d_input_gradient", INPUT_GRADIENT_CONFIGS),
)
