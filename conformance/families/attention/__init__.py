"""Attention: the softmax of scaled products, forward and backward, with masks, scores, pages and packed sequences."""

from conformance.families.attention import alterations, examples, fills, problem, reference, refusals
from conformance.families.attention.problem import Attention
from conformance.families.family import Family, register_family

register_family(
    Attention,
    Family(
        value=reference.value,
        fills=fills.FILLS,
        example=examples.example,
        timed=examples.timed,
        draw_problem=examples.draw_problem,
        refusals=refusals.REFUSALS,
        pools_fills=True,
        axes=alterations.axes,
        needed=alterations.needed,
        alterations=alterations.alterations,
        tiles=problem.tiles,
        judged_tiles=problem.judged_tiles,
        grid=problem.grid,
        code_tiles=problem.code_tiles,
        lacks={
            "magnitude": "its bounds follow every step of the softmax",
            "unit": "the bits of a device's exp2 in the softmax are not measured",
            "products": "its second product has the softmax of the first as an operand",
        },
    ),
)
