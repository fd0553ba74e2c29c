"""Convolutions: a product of each kernel position with the input, in two and three dimensions, also transposed."""

from conformance.families.conv import alterations, dependence, fills, grid, products, reference, refusals, unit
from conformance.families.conv.problem import Conv
from conformance.families.family import Family, register_family

__all__ = ["fills", "reference"]

register_family(
    Conv,
    Family(
        refusals=refusals.REFUSALS,
        unit=unit.UNIT,
        axes=dependence.axes,
        needed=dependence.needed,
        alterations=alterations.alterations,
        products=products.products,
        tiles=grid.tiles,
        grid=grid.grid,
    ),
)
