"""Convolutions: the implicit product in two and three dimensions, and 1x1 kernels as an explicit product."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping
from typing import Any

import triton
from torch import Tensor

from conformance.families.conv.problem import Conv
from conformance.families.conv.refusals import ConvLimits
from conformance.families.gemm.problem import Gemm
from conformance.heuristics.base import BASE
from conformance.heuristics.configs import AnyConfig
from conformance.kernels.device.conv import conv_pointer
from conformance.kernels.families.conv import ConvFamily
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Features, Plan, check_tensors
from conformance.kernels.launch import GRID_LIMIT, Launch, dot_precision, size_arguments, spans_wide
from conformance.numerics.contract import Contract
from conformance.numerics.sum_order import SumOrder
from conformance.problems import Layout, Operand
from conformance.records import ExecutorName, Reason, ReasonCode

#: The kernels of the product that a convolution is. They state its demands on dtype, config and target, its arithmetic,
#: and what its code must be.
_PRODUCTS = {op: PointerGemm(op, op, "mm") for op in ("mm", "addmm")}


def _as_product(plan: Plan, problem: Gemm | None = None) -> tuple[PointerGemm, Plan]:
    """Returns the kernel and the plan of the product that ``plan`` amounts to; ``problem`` adds its layouts."""
    problem = problem or plan.problem.product
    return _PRODUCTS[problem.op], dataclasses.replace(plan, kernel=problem.op, problem=problem)


class ConvKernel(ConvFamily):
    """Base of convolutions and their gradients: they are judged as the product that they amount to. A kernel
    without a ``table`` lists its ``configs``."""

    #: the operand that has the dtype of x
    partner = "w"

    def __init__(
        self, name: str, *operations: str, table: str | None = None, configs: tuple[AnyConfig, ...] = ()
    ) -> None:
        self.name = name
        self.operations = frozenset(operations)
        self.table = table
        self.configs = BASE.table(table) if table else configs

    def refusal(self, plan: Plan) -> Reason | None:
        problem = plan.problem
        if reason := self.foreign(plan):
            return reason
        if problem.dtype not in self.dtypes:
            detail = f"x is {problem.dtype}, {self.name} takes {', '.join(self.dtypes)}: convert x and {self.partner}"
            return Reason(ReasonCode.DTYPE, "x", detail)
        kernel, product = _as_product(plan)
        return self._shape(plan) or kernel.refusal(product)

    def shared_memory(self, plan: Plan) -> int | None:
        """See :class:`Kernel`: that of the product."""
        kernel, product = _as_product(plan)
        return kernel.shared_memory(product)

    @abc.abstractmethod
    def _shape(self, plan: Plan) -> Reason | None:
        """Returns the reason for which the kernel does not take the sizes or layouts."""

    def contract(self, plan: Plan, executor: ExecutorName) -> Contract:
        """See :class:`Kernel`: that of the product."""
        kernel, product = _as_product(plan)
        contract = kernel.contract(product, executor)
        signed = contract.zero_sign != "any"
        return dataclasses.replace(contract, zero_sign=self.declared_zero_sign) if signed else contract

    def order(self, plan: Plan) -> SumOrder | None:
        """See :class:`Kernel`: that of the product."""
        kernel, product = _as_product(plan)
        return kernel.order(product)

    def features(self, plan: Plan) -> Features:
        """See :class:`Kernel`: those of the product."""
        kernel, product = _as_product(plan)
        return kernel.features(product)


class PointerConv(ConvKernel):
    """The implicit product: rows are output positions, columns output channels, k runs over taps and channels."""

    limits = ConvLimits()
    zero_sign = "ieee"

    #: the axes of images that arguments are named for, and the first two of the weights
    axes, weight_axes = "DHW", "oc"

    def _shape(self, plan: Plan) -> Reason | None:
        return too_many_programs(plan, "out_channels")

    def order(self, plan: Plan) -> SumOrder | None:
        """See :class:`Kernel`: that of the product, tap by tap."""
        order, problem = super().order(plan), plan.problem
        is_constant = plan.variant.static or problem.group_channels == 1  # Triton takes an argument of 1 for a constant
        once = is_constant and problem.taps == 1 and problem.group_channels <= plan.config.block_k
        return None if order is None else dataclasses.replace(order, begins_at_addend=once)

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: (tiles of output positions, tiles of output channels of a group, groups)."""
        return product_grid(plan)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        arguments = {
            **self._arguments(plan, tensors),
            "DEPTH": len(plan.problem.size) == 3,
            "EVEN_CHANNELS": plan.problem.group_channels % plan.config.block_k == 0,
        }
        return Launch(conv_pointer, plan.grid, arguments, plan.config.options)

    def _arguments(self, plan: Plan, tensors: Mapping[str, Tensor]) -> dict[str, Any]:
        """Returns the arguments that all device functions take. Raises NotApplicable if a tensor is not what the plan
        was made for."""
        problem, config, axes = plan.problem, plan.config, self.axes
        check_tensors(self.name, problem, tensors)
        sizes = {
            "BATCH": problem.batch,
            "CHANNELS": problem.group_channels,
            "OUT_CHANNELS": problem.out_channels // problem.groups,
            **by_axis("{}", problem.size, axes),
            **by_axis("O{}", problem.out_size, axes),
        }
        return {
            "x_ptr": tensors["x"],
            "w_ptr": tensors["w"],
            "out_ptr": tensors["out"],
            "bias_ptr": tensors.get("bias"),
            **size_arguments(sizes, plan.variant.static),
            **strides("x", "nc", problem.operand("x"), axes),
            **strides("w", self.weight_axes, problem.operand("w"), axes),
            **strides("o", "nc", problem.output, axes),
            **window_arguments(problem, axes),
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "BLOCK_K": config.block_k,
            "WIDE_INDEX": spans_wide(problem),
            "PRECISION": dot_precision(problem),
            "HAS_BIAS": problem.bias,
        }


class ProductConv(ConvKernel):
    """A 1x1 kernel over channels-last operands. x and out are matrices of a row per position, w one of a column per
    output channel. The pointer kernel of the product does the work."""

    limits = ConvLimits(pointwise=True)
    pointwise = True
    zero_sign = "ieee"

    def _shape(self, plan: Plan) -> Reason | None:
        problem = plan.problem
        for name, values, required in (
            ("kernel", set(problem.kernel), {1}),
            ("stride", set(problem.stride), {1}),
            ("padding", set(problem.padding), {0}),
            ("groups", {problem.groups}, {1}),
        ):
            if values != required:
                detail = f"{name} is {getattr(problem, name)}: a product of matrices needs {required.pop()} throughout"
                return Reason(ReasonCode.OPERATION, name, detail)
        if problem.batch == 0:
            return Reason(ReasonCode.EXTENT, "batch", "the batch is 0: a product is launched for one image or more")
        for name, order in (("x", problem.order_x), ("out", problem.order_out)):
            if order != "channels-last":
                detail = (
                    f"{name} is {order}: each image is a matrix of its own, but one product needs one matrix for "
                    "all images: use channels-last"
                )
                return Reason(ReasonCode.LAYOUT, name, detail)
        if problem.batch_pad and problem.batch > 1:
            detail = f"images are {problem.batch_pad} elements apart: rows of one matrix have one distance throughout"
            return Reason(ReasonCode.LAYOUT, "x", detail)
        return None

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: that of the product."""
        kernel, product = _as_product(plan)
        return kernel.grid(product)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`: the product's launch over x, w and out as matrices, in the same memory."""
        problem = plan.problem
        check_tensors(self.name, problem, tensors)
        kernel, product = _as_product(plan, _matrices(problem))
        views = {
            "a": _rows_by_channels(tensors["x"]),
            "b": tensors["w"].flatten(1).t(),
            "out": _rows_by_channels(tensors["out"]),
        }
        if problem.bias:
            views["bias"] = tensors["bias"]
        return kernel.launch(product, views)


def _matrices(problem: Conv) -> Gemm:
    """The product that a 1x1 convolution in channels-last order is, with the layouts of x, w and out."""
    outer, step, *_ = problem.operand("w").strides
    weights = Layout("col", pad=outer - problem.channels * step, step=step)
    rows = Layout("row", pad=problem.pad)
    return dataclasses.replace(problem.product, layout_a=rows, layout_b=weights, layout_out=rows)


def _rows_by_channels(tensor: Tensor) -> Tensor:
    """(batch, channels, *size) in channels-last order -> the same memory as (batch * positions, channels)."""
    rows = tensor.movedim(1, -1)
    return rows.view(-1, rows.shape[-1])


def too_many_programs(plan: Plan, columns: str) -> Reason | None:
    """Returns the reason for which a grid of :func:`product_grid` is too large, or None; ``columns`` names the channels
    that are columns of the product."""
    problem = plan.problem
    for name, count in (("groups", problem.groups), (columns, triton.cdiv(problem.product.N, plan.config.block_n))):
        if count > GRID_LIMIT:
            detail = f"{name} of {problem.id} take {count} programs along one axis, {GRID_LIMIT} are possible"
            return Reason(ReasonCode.EXTENT, name, detail)
    return None


def product_grid(plan: Plan) -> tuple[int, int, int]:
    """Returns the grid of an implicit product: (tiles of rows, tiles of columns, groups)."""
    product, config = plan.problem.product, plan.config
    return (triton.cdiv(product.M, config.block_m), triton.cdiv(product.N, config.block_n), plan.problem.groups)


def by_axis(name: str, values: tuple[int, ...], axes: str = "HW", absent: int = 1) -> dict[str, int]:
    """Returns arguments of the spatial axes; ``absent`` stands for the depth of two dimensions.

    >>> by_axis("KERNEL_{}", (3, 2), "DHW")
    {'KERNEL_D': 1, 'KERNEL_H': 3, 'KERNEL_W': 2}
    """
    whole = (absent,) * (len(axes) - len(values)) + values
    return {name.format(axis): value for axis, value in zip(axes, whole, strict=True)}


def window_arguments(problem: Conv, axes: str = "HW") -> dict[str, int]:
    """Returns the extents, strides, padding and dilation of a window as arguments."""
    return {
        **by_axis("KERNEL_{}", problem.kernel, axes),
        **by_axis("STRIDE_{}", problem.stride, axes),
        **by_axis("PADDING_{}", problem.padding, axes, 0),
        **by_axis("DILATION_{}", problem.dilation, axes),
    }


def strides(tensor: str, outer: str, operand: Operand, axes: str = "HW") -> dict[str, int]:
    """Returns stride arguments: of the two outer dimensions, then of the spatial ones."""
    named = {f"stride_{tensor}{axis}": stride for axis, stride in zip(outer, operand.strides[:2], strict=True)}
    return named | by_axis(f"stride_{tensor}{{}}", operand.strides[2:], axes.lower(), 0)


KERNELS: tuple[ConvKernel, ...] = (
    PointerConv("conv2d", "conv2d", table="conv"),
    PointerConv("conv3d", "conv3d", table="conv"),
    ProductConv("conv1x1_as_mm", "conv2d", "conv3d", table="mm"),
)
