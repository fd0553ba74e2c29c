"""The refusals that are right for a kernel for grouped products of block-scaled operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from conformance.families.grouped.refusals import within_units
from conformance.families.limits import Broken, Rule, capabilities, memory_rules, together, variants
from conformance.families.microscaled import refusals as microscaled
from conformance.families.microscaled.refusals import MicroscaledLimits
from conformance.records import ReasonCode


def broken(plan: Any, limits: MicroscaledLimits) -> Iterator[Broken]:
    """Yields the rules of descriptors, with gaps or without, that the plan's memory breaks, and groups that begin
    within a unit of the copy engine."""
    yield from microscaled.broken(plan, limits)
    yield from within_units(plan, limits)


REFUSALS: Mapping[ReasonCode, Rule] = MappingProxyType(
    {
        **memory_rules(broken),
        ReasonCode.CAPABILITY: capabilities,
        ReasonCode.DTYPE: microscaled.dtypes,
        ReasonCode.SCALE: microscaled.scales,
        ReasonCode.CONFIG: together(variants, microscaled.block_size),
    }
)
