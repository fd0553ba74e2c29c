"""The refusals that are right for a kernel for grouped products."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from conformance.families.gemm import refusals as gemm
from conformance.families.gemm.refusals import OF_PRODUCT, GemmLimits
from conformance.families.limits import DESCRIPTOR_BYTES, Broken, Rule, capabilities, memory_rules, together, variants
from conformance.problems import itemsize
from conformance.records import ReasonCode


def of_group(rule: Rule) -> Rule:
    """Returns ``rule`` about the product of a group, whose sizes ask nothing."""
    return lambda plan, limits: rule(dataclasses.replace(plan, problem=plan.problem.product_of(16, 16, 16)), limits)


def broken(plan: Any, limits: GemmLimits) -> Iterator[Broken]:
    """Yields the rules of descriptors that the plan's memory breaks, and groups that begin within a unit of the copy
    engine."""
    yield from gemm.broken(plan, limits)
    yield from within_units(plan, limits)


def within_units(plan: Any, limits: GemmLimits) -> Iterator[Broken]:
    """Yields groups that begin within a unit of the copy engine along the unit stride of A or B."""
    problem = plan.problem
    for name, rows, columns in (("a", "M", "K"), ("b", "K", "N")):
        if name in limits.described and problem.has_product and problem.ragged:
            yield from _within_units(problem, name, rows, columns)


def _within_units(problem: Any, name: str, rows: str, columns: str) -> Iterator[Broken]:
    operand = problem.operand(name)
    inner, axis = (columns, -1) if operand.strides[-1] == 1 else (rows, -2)
    if inner != problem.ragged:
        return
    bits = 8 * operand.shape[axis] * itemsize(operand.dtype) // max(problem.extent(inner), 1)
    for group, size in enumerate(problem.sizes):
        begin = sum(problem.sizes[:group])
        if size and begin * bits % (8 * DESCRIPTOR_BYTES):
            yield ReasonCode.ALIGNMENT_BASE, name, f"a group that begins at {inner} = {begin}"


def layouts(plan: Any, limits: GemmLimits) -> Iterator[str]:
    """Yields fp8 operands that do not lie along k, which matrix units of Hopper need."""
    for name, inner in (("a", -1), ("b", -2)) if plan.problem.scaling else ():
        if plan.problem.operand(name).strides[inner] != 1:
            yield name


def stores(plan: Any, limits: GemmLimits) -> Iterator[str]:
    """Yields "tma_store" where no descriptor of the output ends with its group: those of the device end with rows."""
    ragged, host = plan.problem.ragged, plan.variant.descriptors == "host"
    if plan.variant.tma_store and (ragged == "N" or (ragged == "M" and host)):
        yield "tma_store"


_MEMORY = memory_rules(broken)
REFUSALS: Mapping[ReasonCode, Rule] = MappingProxyType(
    {
        **_MEMORY,
        ReasonCode.CAPABILITY: capabilities,
        ReasonCode.DTYPE: of_group(gemm.dtypes),
        ReasonCode.PRECISION: of_group(gemm.precisions),
        ReasonCode.LAYOUT: together(_MEMORY[ReasonCode.LAYOUT], layouts),
        ReasonCode.BLOCK_BYTES: of_group(gemm.block_bytes),
        ReasonCode.CONFIG: together(variants, stores, gemm.subtiles, of_group(OF_PRODUCT[ReasonCode.CONFIG])),
    }
)
