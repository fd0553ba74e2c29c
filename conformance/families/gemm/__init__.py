"""Products of two matrices, and of batches of them, with scales, prologues and epilogues."""

from conformance.families.family import Family, register_family
from conformance.families.gemm import alterations, examples, fills, problem, reference, refusals
from conformance.families.gemm.problem import Gemm

register_family(
    Gemm,
    Family(
        value=reference.value,
        magnitude=reference.magnitude,
        fills=fills.FILLS,
        example=examples.example,
        timed=examples.timed,
        draw_problem=examples.draw_problem,
        refusals=refusals.REFUSALS,
        unit=reference.UNIT,
        is_plain=alterations.is_plain,
        axes=alterations.axes,
        needed=alterations.needed,
        alterations=alterations.alterations,
        products=alterations.products,
        tiles=problem.tiles,
        grid=problem.grid,
    ),
)
