"""The gradient of a convolution with respect to its weights."""

from conformance.families.family import Family, register_family
from conformance.families.weight_gradient import alterations, examples, fills, problem, reference, refusals
from conformance.families.weight_gradient.problem import WeightGradient

register_family(
    WeightGradient,
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
