"""Products of two matrices, and of batches of them, with scales, prologues and epilogues."""

from conformance.families.family import Family, register_family
from conformance.families.gemm import dependence, fills, grid, reference
from conformance.families.gemm.problem import Gemm

__all__ = ["fills", "reference"]

register_family(
    Gemm,
    Family(
        axes=dependence.axes,
        needed=dependence.needed,
        tiles=grid.tiles,
        grid=grid.grid,
    ),
)
