"""The refusals that are right for a kernel for gradients of weights."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from conformance.families.conv.refusals import dtypes
from conformance.families.gemm.refusals import OF_PRODUCT, GemmLimits, as_product, precisions
from conformance.families.limits import Rule, capabilities, past_the_grid, together, variants
from conformance.records import ReasonCode


def extents(plan: Any, limits: GemmLimits) -> Iterator[str]:
    """Yields sizes past a dimension of the grid."""
    problem = plan.problem
    return past_the_grid(groups=problem.groups, channels=-(-problem.product.N // plan.config.block_n))


REFUSALS: Mapping[ReasonCode, Rule] = MappingProxyType(
    {
        ReasonCode.CAPABILITY: capabilities,
        ReasonCode.DTYPE: dtypes,
        ReasonCode.PRECISION: as_product(precisions),
        ReasonCode.EXTENT: extents,
        ReasonCode.CONFIG: together(variants, as_product(OF_PRODUCT[ReasonCode.CONFIG])),
    }
)
