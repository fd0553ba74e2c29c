"""Functions of the rows and elements of a matrix: softmax, norms, activations, losses, sums, codes, order, dropout."""

from conformance.families.family import Family, register_family
from conformance.families.rows import alterations, examples, fills, problem, reference, refusals
from conformance.families.rows.problem import RowProblem

NO_PRODUCT = "nothing is multiplied by a matrix unit"

register_family(
    RowProblem,
    Family(
        value=reference.value,
        fills=fills.FILLS,
        example=examples.example,
        timed=examples.timed,
        draw_problem=examples.draw_problem,
        refusals=refusals.REFUSALS,
        alterations=alterations.alterations,
        axes=alterations.axes,
        needed=alterations.needed,
        tiles=problem.tiles,
        grid=problem.grid,
        judged_tiles=problem.judged_tiles,
        lacks={
            "magnitude": "the bounds follow every step of the computation",
            "unit": NO_PRODUCT,
            "products": NO_PRODUCT,
        },
    ),
)
