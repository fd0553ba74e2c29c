"""The gradient of a convolution with respect to its weights."""

from conformance.families.family import Family, register_family
from conformance.families.weight_gradient import alterations, fills, problem, reference, refusals
from conformance.families.weight_gradient.problem import WeightGradient

register_family(
    WeightGradient,
    Family(
        value=reference.value,
        magnitude=reference.magnitude,
        fills=fills.FILLS,
        refusals=refusals.REFUSALS,
        unit=reference.UNIT,
        axes=alterations.axes,
        needed=alterations.needed,
        alterations=alterations.alterations,
        products=alterations.products,
        tiles=problem.tiles,
        grid=problem.grid,
    ),
)
