"""The refusals that are right for a kernel of functions of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from conformance.families.limits import KernelLimits, Rule, capabilities, lacks, together, variants
from conformance.records import ReasonCode


def dtypes(plan: Any, limits: KernelLimits) -> Iterator[str]:
    """Yields the dtype of a matrix if the target lacks it."""
    if plan.problem.dtype != "fp32" and lacks(plan.target, plan.problem.dtype):
        yield plan.problem.dtype


def block_size(plan: Any, limits: KernelLimits) -> Iterator[str]:
    """Yields "block size" for blocks that are no powers of two."""
    if any(size < 1 or size & (size - 1) for size in plan.config.tile):
        yield "block size"


REFUSALS: Mapping[ReasonCode, Rule] = MappingProxyType(
    {
        ReasonCode.CAPABILITY: capabilities,
        ReasonCode.DTYPE: dtypes,
        ReasonCode.CONFIG: together(variants, block_size),
    }
)
