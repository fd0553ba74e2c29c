"""The refusals that are right for a linear attention kernel."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from conformance.families.family import LEAST
from conformance.families.gemm import refusals as gemm
from conformance.families.gemm.problem import mm
from conformance.families.gemm.refusals import GemmLimits
from conformance.families.limits import KernelLimits, Rule, capabilities, past_the_grid, together, variants
from conformance.records import ReasonCode


def as_product(rule: Rule) -> Rule:
    """Returns ``rule`` about a product of a block, for its dtypes and precision."""

    def about(plan: Any, limits: KernelLimits) -> Iterator[str]:
        problem = plan.problem
        product = mm(16, 16, 16, problem.dtype, precision=problem.precision)
        yield from rule(dataclasses.replace(plan, problem=product), GemmLimits(dtypes=limits.dtypes))

    return about


def extents(plan: Any, limits: KernelLimits) -> Iterator[str]:
    """Yields sizes past a dimension of the grid, and heads that no matrix unit multiplies."""
    problem = plan.problem
    yield from past_the_grid(batch=problem.batch, heads=problem.heads)
    if problem.head_dim < LEAST:
        yield "head_dim"


def blocks(plan: Any, limits: KernelLimits) -> Iterator[str]:
    """Yields "block size" for blocks that are too small or no power of two, "chunk" for those that divide none."""
    config = plan.config
    if any(size < LEAST or size & (size - 1) for size in config.tile):
        yield "block size"
    if plan.problem.chunk % config.block_t:
        yield "chunk"


REFUSALS: Mapping[ReasonCode, Rule] = MappingProxyType(
    {
        ReasonCode.CAPABILITY: capabilities,
        ReasonCode.DTYPE: as_product(gemm.dtypes),
        ReasonCode.PRECISION: as_product(gemm.precisions),
        ReasonCode.EXTENT: extents,
        ReasonCode.CONFIG: together(variants, blocks),
    }
)
