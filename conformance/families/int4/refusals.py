"""The refusals that are right for a kernel with packed 4-bit weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from conformance.families.limits import KernelLimits, Rule, capabilities, lacks, together, variants
from conformance.records import ReasonCode


def dtypes(plan: Any, limits: KernelLimits) -> Iterator[str]:
    """Yields dtypes of A and of the output that the target lacks."""
    names = {plan.problem.dtype, plan.problem.out_dtype} & {"bf16", "fp16"}
    return (name for name in names if lacks(plan.target, name))


def block_size(plan: Any, limits: KernelLimits) -> Iterator[str]:
    """Yields "block size" below the least tile of matrix units."""
    if min(plan.config.tile) < 16:
        yield "block size"


REFUSALS: Mapping[ReasonCode, Rule] = MappingProxyType(
    {
        ReasonCode.CAPABILITY: capabilities,
        ReasonCode.DTYPE: dtypes,
        ReasonCode.CONFIG: together(variants, block_size),
    }
)
