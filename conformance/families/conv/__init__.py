"""Convolutions: a product of each kernel position with the input, in two and three dimensions, also transposed."""

from conformance.families.conv import alterations, examples, fills, problem, reference, refusals
from conformance.families.conv.problem import Conv
from conformance.families.family import Family, register_family

register_family(
    Conv,
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
        grid=problem.grid,
    ),
)
