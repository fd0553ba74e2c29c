"""The refusals that are right for a kernel of functions of rows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from conformance.families.limits import KernelLimits, Rule, capabilities, lacks, together, variants
from conformance.records import ReasonCode


@dataclass(frozen=True)
class RowLimits(KernelLimits):
    """The limits of a kernel of functions of rows."""

    #: fields of Variant: see :class:`KernelLimits`
    variant: frozenset[str] = frozenset({"static"})
    #: the fewest columns of a block
    least_columns: int = 1


def dtypes(plan: Any, limits: KernelLimits) -> Iterator[str]:
    """Yields the dtypes of operands and outputs that the target lacks."""
    yield from (name for name in plan.problem.narrow_dtypes if lacks(plan.target, name))


def block_size(plan: Any, limits: KernelLimits) -> Iterator[str]:
    """Yields "block size" for blocks that are no powers of two, or have too few columns."""
    least = limits.least_columns if isinstance(limits, RowLimits) else 1
    if any(size < 1 or size & (size - 1) for size in plan.config.tile) or plan.config.block_n < least:
        yield "block size"


REFUSALS: Mapping[ReasonCode, Rule] = MappingProxyType(
    {
        ReasonCode.CAPABILITY: capabilities,
        ReasonCode.DTYPE: dtypes,
        ReasonCode.CONFIG: together(variants, block_size),
    }
)
