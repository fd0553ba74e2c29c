"""Products of two matrices, and of batches of them, with scales, prologues and epilogues."""

from conformance.families.family import Family, register_family
from conformance.families.gemm import alterations, dependence, fills, grid, products, reference, refusals, unit
from conformance.families.gemm.problem import Gemm

__all__ = ["fills", "reference"]

register_family(
    Gemm,
    Family(
        refusals=refusals.REFUSALS,
        unit=unit.UNIT,
        is_plain=products.is_plain,
        axes=dependence.axes,
        needed=dependence.needed,
        alterations=alterations.alterations,
        products=products.products,
        tiles=grid.tiles,
        grid=grid.grid,
    ),
)
