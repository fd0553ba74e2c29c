"""Linear attention: attention without a softmax, with a state that decays."""

from conformance.families.family import Family, register_family
from conformance.families.linear_attention import alterations, examples, fills, problem, reference, refusals
from conformance.families.linear_attention.problem import LinearAttention

NO_READS = "an output needs all earlier positions, whose decay may make them vanish: not stated yet"

register_family(
    LinearAttention,
    Family(
        value=reference.value,
        fills=fills.FILLS,
        example=examples.example,
        timed=examples.timed,
        draw_problem=examples.draw_problem,
        refusals=refusals.REFUSALS,
        alterations=alterations.alterations,
        tiles=problem.tiles,
        grid=problem.grid,
        code_tiles=problem.code_tiles,
        lacks={
            "magnitude": "its bounds follow the largest state of each chunk",
            "unit": "the bits of the rounded states and scores are not stated yet",
            "products": "its products depend on a state that decays",
            "axes": NO_READS,
            "needed": NO_READS,
        },
    ),
)
