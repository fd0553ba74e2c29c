"""Convolutions: the implicit product in two and three dimensions, and 1x1 kernels as an explicit product."""

from __future__ import annotations

import abc
import dataclasses
from collections.abc import Mapping

import triton
from torch import Tensor

from conformance.families.conv.problem import Conv
from conformance.families.conv.refusals import ConvLimits
from conformance.families.gemm.problem import Gemm
from conformance.heuristics.base import BASE
from conformance.heuristics.configs import AnyConfig
from conformance.kernels.arguments import GRID_LIMIT, dot_precision, size_arguments, spans_wide
from conformance.kernels.device.conv import conv_pointer
from conformance.kernels.families.conv import ConvFamily
from conformance.kernels.gemm import PointerGemm
from conformance.kernels.kernel import Features, Plan, check_tensors
from conformance.kernels.launch import Launch
from conformance.numerics.contract import Contract
from conformance.numerics.sum_order import SumOrder
from conformance.problems import Layout
from conformance.records import ExecutorName, Reason, ReasonCode

#: The kernels of the product that a convolution is. They state its demands on dtype, config and target, its arithmetic,
#: and what its code must be.
_PRODUCTS = {op: PointerGemm(op, op, "mm") for op in ("mm", "addmm")}


def _as_product(plan: Plan, problem: Gemm | None = None) -> tuple[PointerGemm, Plan]:
    """The kernel and the plan of the product that the convolution of ``plan`` is; ``problem`` adds its layouts."""
    problem = problem or plan.problem.product
    return _PRODUCTS[problem.op], dataclasses.replace(plan, kernel=problem.op, problem=problem)


class ConvKernel(ConvFamily):
    """Base of the convolutions: they are judged as the product that they amount to."""

    def __init__(self, name: str, operations: frozenset[str], table: str) -> None:
        self.name = name
        self.operations = operations
        self.table = table
        self.configs: tuple[AnyConfig, ...] = BASE.table(table)

    def refusal(self, plan: Plan) -> Reason | None:
        """See :class:`Kernel`."""
        problem = plan.problem
        if reason := self.foreign(plan):
            return reason
        if problem.dtype not in self.dtypes:
            detail = f"x is {problem.dtype}, {self.name} takes {', '.join(self.dtypes)}: convert x and w"
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

    def _shape(self, plan: Plan) -> Reason | None:
        problem = plan.problem
        columns = triton.cdiv(problem.out_channels // problem.groups, plan.config.block_n)
        for name, count in (("groups", problem.groups), ("out_channels", columns)):
            if count > GRID_LIMIT:
                detail = f"{name} of {problem.id} take {count} programs along one axis, {GRID_LIMIT} are possible"
                return Reason(ReasonCode.EXTENT, name, detail)
        return None

    def order(self, plan: Plan) -> SumOrder | None:
        """See :class:`Kernel`: that of the product, tap by tap."""
        order, problem = super().order(plan), plan.problem
        is_constant = plan.variant.static or problem.group_channels == 1  # Triton takes an argument of 1 for a constant
        once = is_constant and problem.taps == 1 and problem.group_channels <= plan.config.block_k
        return None if order is None else dataclasses.replace(order, begins_at_addend=once)

    def grid(self, plan: Plan) -> tuple[int, ...]:
        """See :class:`Kernel`: (tiles of output positions, tiles of output channels of a group, groups)."""
        product, config = plan.problem.product, plan.config
        return (triton.cdiv(product.M, config.block_m), triton.cdiv(product.N, config.block_n), plan.problem.groups)

    def launch(self, plan: Plan, tensors: Mapping[str, Tensor]) -> Launch:
        """See :class:`Kernel`."""
        problem, config = plan.problem, plan.config
        check_tensors(self.name, problem, tensors)
        sizes = {
            "BATCH": problem.batch,
            "CHANNELS": problem.group_channels,
            "OUT_CHANNELS": problem.out_channels // problem.groups,
            **_by_axis("{}", problem.size, 1),
            **_by_axis("O{}", problem.out_size, 1),
        }
        arguments = {
            "x_ptr": tensors["x"],
            "w_ptr": tensors["w"],
            "out_ptr": tensors["out"],
            "bias_ptr": tensors.get("bias"),
            **size_arguments(sizes, plan.variant.static),
            **_strides("x", "nc", problem.operand("x").strides),
            **_strides("w", "oc", problem.operand("w").strides),
            **_strides("o", "nc", problem.output.strides),
            **_by_axis("KERNEL_{}", problem.kernel, 1),
            **_by_axis("STRIDE_{}", problem.stride, 1),
            **_by_axis("PADDING_{}", problem.padding, 0),
            **_by_axis("DILATION_{}", problem.dilation, 1),
            "BLOCK_M": config.block_m,
            "BLOCK_N": config.block_n,
            "BLOCK_K": config.block_k,
            "DEPTH": len(problem.size) == 3,
            "EVEN_CHANNELS": problem.group_channels % config.block_k == 0,
            "WIDE_INDEX": spans_wide(problem),
            "PRECISION": dot_precision(problem),
            "HAS_BIAS": problem.bias,
        }
        return Launch(conv_pointer, plan.grid, arguments, config.options)


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


def _by_axis(name: str, values: tuple[int, ...], absent: int) -> dict[str, int]:
    """Arguments of depth, height and width; ``absent`` stands for the depth of two dimensions."""
    whole = (absent,) * (3 - len(values)) + values
    return {name.format(axis): value for axis, value in zip("DHW", whole, strict=True)}


def _strides(tensor: str, outer: str, strides: tuple[int, ...]) -> dict[str, int]:
    """Stride arguments: of the two outer dimensions, then of depth, height and width."""
    named = {f"stride_{tensor}{axis}": stride for axis, stride in zip(outer, strides[:2], strict=True)}
    return named | {key.lower(): stride for key, stride in _by_axis(f"stride_{tensor}{{}}", strides[2:], 0).items()}


KERNELS: tuple[ConvKernel, ...] = (
    PointerConv("conv2d", frozenset({"conv2d"}), "conv"),
    PointerConv("conv3d", frozenset({"conv3d"}), "conv"),
    ProductConv("conv1x1_as_mm", frozenset({"conv2d", "conv3d"}), "mm"),
)
