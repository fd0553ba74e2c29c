"""The gradient of a convolution with respect to its weights."""

from conformance.families.family import Family, register_family
from conformance.families.weight_gradient import (
    alterations,
    dependence,
    fills,
    grid,
    products,
    reference,
    refusals,
    unit,
)
from conformance.families.weight_gradient.problem import WeightGradient

__all__ = ["fills", "reference"]

register_family(
    WeightGradient,
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
