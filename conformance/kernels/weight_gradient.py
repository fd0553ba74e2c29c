"""Gradients of convolutions for their weights, as an implicit product, and for their bias."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping

import triton
from torch import Tensor

from conformance.families.gemm.refusals import GemmLimits
from conformance.heuristics.configs import AnyConfig, Config
from conformance.kernels.arguments import GRID_LIMIT, dot_precision, size_arguments, spans_wide
from conformance.kernels.device.conv import conv_bias_gradient, conv_weight_gradient
from conformance.kernels.families.weight_gradient import WeightGradientFamily
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Features, Plan, check_tensors
from conformance.kernels.launch import Launch
from conformance.numerics.contract import Contract
from conformance.numerics.sum_order import SumOrder
from conformance.problems import Operand
from conformance.records import ExecutorName, Reason, ReasonCode

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

#: The kernel of the product: it says what this asks of dtype, config and target, and what its arithmetic and its code
#: must be.
_PRODUCT = PointerGemm("mm", "mm", "mm")


def _as_product(plan: Plan) -> Plan:
    """The plan of the product that the gradient of one group is."""
    return dataclasses.replace(plan, kernel="mm", problem=plan.problem.product)


class WeightGradientConv(WeightGradientFamily):
    """The implicit product: rows are output channels, columns taps and channels, k runs over output positions of all
    images. A launch after it sums grad_out for the bias, if there is one."""

    limits = GemmLimits()
    name = "conv2d_weight_gradient"
    operations = frozenset({"conv2d_weight_gradient"})
    configs = CONFIGS
    zero_sign = "ieee"

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`: operation, dtype and extents, then the reasons of the product."""
        problem = plan.problem
        if reason := self.foreign(plan):
            return reason
        if problem.dtype not in self.dtypes:
            detail = f"x is {problem.dtype}, {self.name} takes {', '.join(self.dtypes)}: convert x and grad_out"
            return Reason(ReasonCode.DTYPE, "x", detail)
        columns = triton.cdiv(problem.product.N, plan.config.block_n)
        for name, count in (("groups", problem.groups), ("channels", columns)):
            if count > GRID_LIMIT:
                detail = f"{name} of {problem.id} take {count} programs along one axis, {GRID_LIMIT} are possible"
                return Reason(ReasonCode.EXTENT, name, detail)
        return _PRODUCT.refusal(_as_product(plan))

    def shared_memory(self, plan: Plan) -> int:
        """See :class:`Kernel`: that of the product."""
        return _PRODUCT.shared_memory(_as_product(plan))

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`: that of the product."""
        contract = _PRODUCT.contract(_as_product(plan), executor)
        signed = contract.zero_sign != "any"
        return dataclasses.replace(contract, zero_sign=self.declared_zero_sign) if signed else contract

    def order(self, plan: Plan) -> SumOrder | None:
        """See :class:`Kernel`: that of the product."""
        return _PRODUCT.order(_as_product(plan))

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: those of the product."""
        return _PRODUCT.features(_as_product(plan))

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: (tiles of output channels of a group, tiles of taps and channels, groups)."""
        product, config = plan.problem.product, plan.config
        return (triton.cdiv(product.M, config.block_m), triton.cdiv(product.N, config.block_n), plan.problem.groups)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`."""
        problem, config, static = plan.problem, plan.config, plan.variant.static
        check_tensors(self.name, problem, tensors)
        forward, grad_out = problem.forward, problem.operand("grad_out")
        common = {
            "grad_out_ptr": tensors["grad_out"],
            **size_arguments({"POSITIONS": problem.positions, **_by_axis("O{}", forward.out_size)}, static),
            **_strides("g", "nohw", grad_out),
            "WIDE_INDEX": spans_wide(problem),
        }
        sizes = {
            "CHANNELS": forward.group_channels,
            "OUT_CHANNELS": forward.out_channels // forward.groups,
            **_by_axis("{}", forward.size),
        }
        arguments = {
            **common,
            "x_ptr": tensors["x"],
            "grad_w_ptr": tensors["grad_w"],
            **size_arguments(sizes, static),
            **_strides("x", "nchw", problem.operand("x")),
            **_strides("w", "ochw", problem.output),
            **_by_axis("KERNEL_{}", forward.kernel),
            **_by_axis("STRIDE_{}", forward.stride),
            **_by_axis("PADDING_{}", forward.padding),
            **_by_axis("DILATION_{}", forward.dilation),
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


def _by_axis(name: str, values: tuple[int, ...]) -> dict[str, int]:
    return {name.format(axis): value for axis, value in zip("HW", values, strict=True)}


def _strides(letter: str, axes: str, operand: Operand) -> dict[str, int]:
    return {f"stride_{letter}{axis}": stride for axis, stride in zip(axes, operand.strides, strict=True)}


KERNELS = (WeightGradientConv(),)
