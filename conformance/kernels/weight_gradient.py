"""Gradients of convolutions for their weights, as an implicit product, and for their bias."""

from __future__ import annotations

from collections.abc import Mapping

import triton
from torch import Tensor

from conformance.families.gemm.refusals import GemmLimits
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.conv import ConvKernel, by_axis, product_grid, strides, too_many_programs, window_arguments
from conformance.kernels.device.conv import conv_bias_gradient, conv_weight_gradient
from conformance.kernels.kernel import Plan, check_tensors
from conformance.kernels.launch import Launch, dot_precision, size_arguments, spans_wide
from conformance.records import Reason

#: Small tiles without a pipeline, tiles of large matrix instructions, deep, wide and tall ones.
CONFIGS: tuple[AnyConfig, ...] = (
    Config(32, 32, 16, 1, 2),
    Config(64, 64, 32, 3, 4),
    Config(16, 64, 64, 2, 4),
    Config(128, 64, 32, 2, 8),
)

#: Output channels and positions of a block of the launch that sums grad_out, and its compile options.
SUM_ROWS, SUM_POSITIONS = 32, 64
SUM_OPTIONS = {"num_stages": 1, "num_warps": 4}


class WeightGradientConv(ConvKernel):
    """The implicit product: rows are output channels, columns taps and channels, k runs over output positions of all
    images. A launch after it sums grad_out for the bias, if there is one."""

    problems = WeightGradient
    family = "conv-gradient"
    limits = GemmLimits()
    partner = "grad_out"
    zero_sign = "ieee"

    def _shape(self, plan: Plan) -> Reason | None:
        return too_many_programs(plan, "channels")

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: (tiles of output channels of a group, tiles of taps and channels, groups)."""
        return product_grid(plan)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem, config, static = plan.problem, plan.config, plan.variant.static
        check_tensors(self.name, problem, tensors)
        forward, grad_out = problem.forward, problem.operand("grad_out")
        common = {
            "grad_out_ptr": tensors["grad_out"],
            **size_arguments({"POSITIONS": problem.positions, **by_axis("O{}", forward.out_size)}, static),
            **strides("g", "no", grad_out),
            "WIDE_INDEX": spans_wide(problem),
        }
        sizes = {
            "CHANNELS": forward.group_channels,
            "OUT_CHANNELS": forward.out_channels // forward.groups,
            **by_axis("{}", forward.size),
        }
        arguments = {
            **common,
            "x_ptr": tensors["x"],
            "grad_w_ptr": tensors["grad_w"],
            **size_arguments(sizes, static),
            **strides("x", "nc", problem.operand("x")),
            **strides("w", "oc", problem.output),
            **window_arguments(forward),
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "BLOCK_K": config.block_k,
            # Only a size known when compiling says that there is no tail for every later launch too.
            "EVEN_POSITIONS": static and problem.positions % config.block_k == 0,
            "PRECISION": dot_precision(problem),
        }
        after: tuple[Launch, ...] = ()
        if problem.bias:
            sums = {
                **common,
                "grad_bias_ptr": tensors["grad_bias"],
                **size_arguments({"OUT_CHANNELS": forward.out_channels}, static),
                "BLOCK_M": SUM_ROWS,
                "BLOCK_K": SUM_POSITIONS,
            }
            tiles = triton.cdiv(forward.out_channels, SUM_ROWS)
            after = (Launch(conv_bias_gradient, (tiles,), sums, SUM_OPTIONS),)
        return Launch(conv_weight_gradient, plan.grid, arguments, config.options, after=after)


KERNELS = (WeightGradientConv("conv2d_weight_gradient", "conv2d_weight_gradient", configs=CONFIGS),)
