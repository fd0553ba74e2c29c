"""Products whose second operand has packed 4-bit weights with scales and zero points."""

from conformance.families.family import Family, register_family
from conformance.families.int4 import alterations, examples, fills, problem, reference, refusals
from conformance.families.int4.problem import Int4Gemm

register_family(
    Int4Gemm,
    Family(
        value=reference.value,
        magnitude=reference.magnitude,
        fills=fills.FILLS,
        example=examples.example,
        timed=examples.timed,
        draw_problem=examples.draw_problem,
        refusals=refusals.REFUSALS,
        tiles=problem.tiles,
        grid=problem.grid,
        axes=alterations.axes,
        needed=alterations.needed,
        products=alterations.products,
        alterations=alterations.alterations,
        lacks={"unit": "the order in which decoded operands are summed is not measured"},
    ),
)
