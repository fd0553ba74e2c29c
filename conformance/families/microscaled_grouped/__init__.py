"""Grouped products with block-scaled operands."""

from conformance.families.family import Family, register_family
from conformance.families.grouped.problem import tiles
from conformance.families.microscaled import LACKS
from conformance.families.microscaled_grouped import examples, fills, reference, refusals
from conformance.families.microscaled_grouped.problem import MicroscaledGroupedGemm

register_family(
    MicroscaledGroupedGemm,
    Family(
        value=reference.value,
        magnitude=reference.magnitude,
        fills=fills.FILLS,
        example=examples.example,
        timed=examples.timed,
        draw_problem=examples.draw_problem,
        refusals=refusals.REFUSALS,
        tiles=tiles,
        lacks={**LACKS, "grid": "its kernels are persistent"},
    ),
)
