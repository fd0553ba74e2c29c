"""Products whose second operand has packed 4-bit weights with scales and zero points."""

from conformance.families.family import Family, register_family
from conformance.families.int4 import examples, fills, problem, reference, refusals
from conformance.families.int4.problem import Int4Gemm

NO_READS = "which packed weights, scales and zero points an output needs is not stated yet"

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
        lacks={
            "unit": "the order in which decoded operands are summed is not measured",
            "products": "a product of decoded operands has no search of its tiles yet",
            "alterations": "no faulty computation of this family is stated yet",
            "axes": NO_READS,
            "needed": NO_READS,
        },
    ),
)
