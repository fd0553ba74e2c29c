"""Depthwise convolution: each output channel sees one channel, so there is no product of matrices."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from conformance import codegen_checks as codegen
from conformance.families.conv.examples import one_order
from conformance.families.conv.problem import Conv
from conformance.families.conv.refusals import ConvLimits
from conformance.families.draw import Draw
from conformance.families.examples import WHOLE_TILES, dtype_fields, matrix_sizes
from conformance.heuristics.configs import AnyConfig, Config, DepthwiseConfig
from conformance.kernels.conv import by_axis, strides, window_arguments
from conformance.kernels.device.conv import conv_depthwise
from conformance.kernels.families.conv import ConvFamily
from conformance.kernels.kernel import Features, Plan, check_tensors, lacking
from conformance.kernels.launch import GRID_LIMIT, Launch, size_arguments, spans_wide
from conformance.numerics.contract import FMA, Contract
from conformance.problems import FP8
from conformance.records import ExecutorName, Reason, ReasonCode

#: Tiles of many positions and few channels, of few and many, and small ones; one warp to eight; loops with and without
#: a pipeline.
CONFIGS: tuple[AnyConfig, ...] = (
    DepthwiseConfig(64, 16, 2, 4),
    DepthwiseConfig(16, 64, 1, 2),
    DepthwiseConfig(8, 8, 1, 1),
    DepthwiseConfig(256, 8, 3, 8),
)


class DepthwiseConv(ConvFamily):
    """One multiply-add in fp32 for each tap of an output element, taps from the first to the last."""

    limits = ConvLimits(depthwise=True, variant=ConvLimits().variant | {"implied_dtype"})
    name = "conv2d_depthwise"
    operations = frozenset({"conv2d"})
    configs = CONFIGS
    depthwise = True
    zero_sign = "ieee"

    def dtype_names(self) -> list[str]:
        """See :class:`Kernel`: there is no matrix unit, and so no tf32."""
        return list(self.dtypes)

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> Conv:
        """See :class:`Kernel`. Positions stand for rows of a product, output channels for columns, taps for k. There
        are two output channels for each channel where the kernel has more than one column block."""
        tile = Config(config.block_m, config.block_n, 4, config.num_stages, config.num_warps)
        positions, columns, _ = matrix_sizes(tile, dtype, shape)
        multiplier = 2 if shape in ("ragged", "several-tiles") else 1
        channels, width = -(-columns // multiplier), min(positions, 8)
        size = triton.cdiv(positions, width), width
        window = (5, 5) if shape == "many-k-blocks" else (2, 3) if shape != WHOLE_TILES else (3, 3)
        padding = (window[0] // 2, window[1] // 2)
        order = "contiguous" if shape == "several-tiles" else "channels-last"
        return Conv(
            "conv2d", 1, channels, size, channels * multiplier, window, (1, 1), padding, channels,
            **dtype_fields(dtype), **one_order(order),
        )  # fmt: skip

    def timed(self, dtype: str) -> Any:
        """See :class:`Kernel`: with a group for each channel."""
        problem = super().timed(dtype)
        return dataclasses.replace(problem, groups=problem.channels)

    def draw_problem(self, draw: Draw) -> Any:
        """See :class:`Kernel`: any channels and multiplier, for the rest as other convolutions."""
        channels = draw.pick((1, 3, 8, 20))
        sizes = {"channels": channels, "groups": channels, "out_channels": channels * draw.pick((1, 2, 3))}
        return dataclasses.replace(super().draw_problem(draw), precision="ieee", **sizes)

    def refusal(self, plan: Plan) -> Reason | None:
        problem = plan.problem
        if reason := self.foreign(plan):
            return reason
        if problem.groups != problem.channels:
            detail = f"{problem.channels} channels in {problem.groups} groups: {self.name} takes a group per channel"
            return Reason(ReasonCode.OPERATION, "groups", detail)
        if problem.dtype not in self.dtypes:
            detail = f"x is {problem.dtype}, {self.name} takes {', '.join(self.dtypes)}: convert x and w"
            return Reason(ReasonCode.DTYPE, "x", detail)
        if problem.dtype == "fp32" and problem.precision != "ieee":
            detail = f"precision is {problem.precision}: {self.name} has no matrix unit. Use ieee"
            return Reason(ReasonCode.PRECISION, problem.precision, detail)
        dtypes = sorted({problem.dtype, problem.output.dtype} & {*FP8, "bf16", "fp16"})
        if reason := lacking(plan, *dtypes, code=ReasonCode.DTYPE) or self.other_variant(plan):
            return reason
        columns = triton.cdiv(problem.out_channels, plan.config.block_n)
        if columns > GRID_LIMIT:
            detail = f"{problem.id} takes {columns} programs along the channels, {GRID_LIMIT} are possible"
            return Reason(ReasonCode.EXTENT, "out_channels", detail)
        return None

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`: fp32 multiply-adds, fused or not."""
        zero_sign = self.declared_zero_sign if executor == ExecutorName.INTERPRETER else "any"
        overflow = "saturate" if plan.problem.output.dtype in FP8 else "ieee"
        return Contract(plan.problem.output.dtype, FMA, overflow=overflow, zero_sign=zero_sign)

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: (tiles of output positions, tiles of output channels)."""
        problem, config = plan.problem, plan.config
        return (triton.cdiv(problem.product.M, config.block_m), triton.cdiv(problem.out_channels, config.block_n))

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        problem, config = plan.problem, plan.config
        check_tensors(self.name, problem, tensors)
        sizes = {
            "BATCH": problem.batch,
            "OUT_CHANNELS": problem.out_channels,
            **by_axis("{}", problem.size),
            **by_axis("O{}", problem.out_size),
        }
        weights = strides("w", "oc", problem.operand("w"))
        del weights["stride_wc"]  # a weight sees one channel
        arguments = {
            "x_ptr": tensors["x"],
            "w_ptr": tensors["w"],
            "out_ptr": tensors["out"],
            "bias_ptr": tensors.get("bias"),
            **size_arguments(sizes, plan.variant.static),
            **strides("x", "nc", problem.operand("x")),
            **weights,
            **strides("o", "nc", problem.output),
            "MULTIPLIER": problem.out_channels // problem.groups,
            **window_arguments(problem),
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "WIDE_INDEX": spans_wide(problem),
            "HAS_BIAS": problem.bias,
        }
        return Launch(conv_depthwise, plan.grid, arguments, config.options)

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: pointer loads and stores, and no matrix unit."""
        units = {codegen.MMA, codegen.WGMMA, codegen.TCGEN05, codegen.MFMA, codegen.WMMA}
        copies = {codegen.TENSOR_DESCRIPTOR, codegen.TMA_LOAD, codegen.TMA_STORE}
        return Features(frozenset({codegen.POINTER_LOAD, codegen.POINTER_STORE}), frozenset(units | copies))


KERNELS = (DepthwiseConv(),)
