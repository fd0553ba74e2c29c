"""Grouped products: several matrices of different sizes in one launch."""

from conformance.families.family import Family, register_family
from conformance.families.grouped import alterations, fills, problem, reference, refusals
from conformance.families.grouped.problem import GroupedGemm

register_family(
    GroupedGemm,
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
        lacks={"grid": "its kernels are persistent"},
    ),
)
