"""Block-scaled products: mxfp4, mxfp8 and nvfp4 operands with one scale for each block of K."""

from conformance.families.family import Family, register_family
from conformance.families.microscaled import examples, fills, problem, reference, refusals
from conformance.families.microscaled.problem import MicroscaledGemm

NO_READS = "which packed elements and scales an output needs is not stated yet"
#: The answers that products of block-scaled operands do not have, and why.
LACKS = {
    "unit": "the order in which a unit with scales sums is not measured",
    "products": "a product of decoded operands has no search of its tiles yet",
    "alterations": "the usual faults of all families are tried, and no others are stated yet",
    "axes": NO_READS,
    "needed": NO_READS,
}

register_family(
    MicroscaledGemm,
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
        lacks=LACKS,
    ),
)
