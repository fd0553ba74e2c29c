"""The limits of convolution kernels, and when which refusal is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from conformance.families.gemm import refusals as gemm
from conformance.families.gemm.refusals import OF_PRODUCT, GemmLimits, as_product
from conformance.families.limits import Rule, capabilities, past_the_grid, together, variants
from conformance.records import ReasonCode


@dataclass(frozen=True)
class ConvLimits(GemmLimits):
    """The limits of a convolution kernel."""

    #: whether it takes windows of one tap on every position only, in one group and in channels-last order
    pointwise: bool = False
    #: whether it takes groups of one channel only, and has no matrix unit
    depthwise: bool = False


def windows(plan: Any, limits: ConvLimits) -> Iterator[str]:
    """Yields fields of the problem that a kernel for one kind of window does not take."""
    problem = plan.problem
    if limits.pointwise:
        plain = {"kernel": 1, "stride": 1, "padding": 0}
        yield from (name for name, value in plain.items() if set(getattr(problem, name)) != {value})
        if problem.groups != 1:
            yield "groups"
    if limits.depthwise and problem.groups != problem.channels:
        yield "groups"


def dtypes(plan: Any, limits: ConvLimits) -> Iterator[str]:
    """Yields "x" for a dtype that is not taken, and dtypes that the target lacks."""
    if plan.problem.dtype not in limits.dtypes:
        yield "x"
    yield from as_product(gemm.dtypes)(plan, limits)


def precisions(plan: Any, limits: ConvLimits) -> Iterator[str]:
    """Yields the precision that is not taken: a kernel without matrix unit takes "ieee" on every target."""
    if not limits.depthwise:
        yield from as_product(gemm.precisions)(plan, limits)
    elif plan.problem.dtype == "fp32" and plan.problem.precision != "ieee":
        yield plan.problem.precision


def layouts(plan: Any, limits: ConvLimits) -> Iterator[str]:
    """Yields tensors that are no single matrix."""
    problem = plan.problem
    if limits.pointwise:
        orders = {"x": problem.order_x, "out": problem.order_out}
        yield from (name for name, order in orders.items() if order != "channels-last")
        if problem.batch_pad and problem.batch > 1:
            yield "x"


def extents(plan: Any, limits: ConvLimits) -> Iterator[str]:
    """Yields sizes past a dimension of the grid, and an empty batch for a kernel that launches a product."""
    problem = plan.problem
    if limits.pointwise:
        yield from ("batch",) if problem.batch == 0 else ()
        return
    channels = problem.out_channels if limits.depthwise else problem.out_channels // problem.groups
    groups = {} if limits.depthwise else {"groups": problem.groups}
    yield from past_the_grid(**groups, out_channels=-(-channels // plan.config.block_n))


def blocks(plan: Any, limits: ConvLimits) -> Iterator[str]:
    """Yields what matrix units ask of the config."""
    if not limits.depthwise:
        yield from as_product(OF_PRODUCT[ReasonCode.CONFIG])(plan, limits)


REFUSALS: Mapping[ReasonCode, Rule] = MappingProxyType(
    {
        ReasonCode.OPERATION: windows,
        ReasonCode.CAPABILITY: capabilities,
        ReasonCode.DTYPE: dtypes,
        ReasonCode.PRECISION: precisions,
        ReasonCode.LAYOUT: layouts,
        ReasonCode.EXTENT: extents,
        ReasonCode.CONFIG: together(variants, blocks),
    }
)
