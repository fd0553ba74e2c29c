"""Grouped products: several matrices of different sizes in one launch."""

from conformance.families.family import Family, register_family
from conformance.families.grouped import alterations, dependence, fills, grid, products, reference, refusals, unit
from conformance.families.grouped.problem import GroupedGemm

__all__ = ["fills", "reference"]

register_family(
    GroupedGemm,
    Family(
        refusals=refusals.REFUSALS,
        unit=unit.UNIT,
        axes=dependence.axes,
        needed=dependence.needed,
        alterations=alterations.alterations,
        products=products.products,
        tiles=grid.tiles,
        lacks={"grid": "its kernels are persistent"},
    ),
)
