"""Grouped products: several matrices of different sizes in one launch."""

from conformance.families.family import Family, register_family
from conformance.families.grouped import alterations, examples, fills, problem, reference, refusals
from conformance.families.grouped.problem import GroupedGemm

register_family(
    GroupedGemm,
    Family(
        value=reference.value,
        magnitude=reference.magnitude,
        fills=fills.FILLS,
        example=examples.example,
        timed=examples.timed,
        draw_problem=examples.draw_problem,
        refusals=refusals.REFUSALS,
        unit=reference.UNIT,
        axes=alterations.axes,
        needed=alterations.needed,
        alterations=alterations.alterations,
        products=alterations.products,
        tiles=problem.tiles,
        judged_tiles=problem.judged_tiles,
        lacks={"grid": "its kernels are persistent"},
    ),
)
