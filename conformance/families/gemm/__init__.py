"""Products of two matrices, and of batches of them, with scales, prologues and epilogues."""

from conformance.families.family import Family, register_family
from conformance.families.gemm import alterations, fills, problem, reference, refusals
from conformance.families.gemm.problem import Gemm

register_family(
    Gemm,
    Family(
        value=reference.value,
        magnitude=reference.magnitude,
        fills=fills.FILLS,
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
