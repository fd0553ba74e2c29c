"""Grouped products with block-scaled operands."""

from conformance.families.family import Family, register_family
from conformance.families.grouped.problem import tiles
from conformance.families.microscaled_grouped import fills, reference, refusals
from conformance.families.microscaled_grouped.problem import MicroscaledGroupedGemm

NO_READS = "which packed elements and scales an output needs is not stated yet"

register_family(
    MicroscaledGroupedGemm,
    Family(
        value=reference.value,
        magnitude=reference.magnitude,
        fills=fills.FILLS,
        refusals=refusals.REFUSALS,
        tiles=tiles,
        lacks={
            "unit": "the order in which a unit with scales sums is not measured",
            "products": "a product of decoded operands has no search of its tiles yet",
            "alterations": "no faulty computation of this family is stated yet",
            "axes": NO_READS,
            "needed": NO_READS,
            "grid": "its kernels are persistent",
        },
    ),
)
