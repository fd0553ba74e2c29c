"""The base of the kernels that multiply matrices."""

from __future__ import annotations

from typing import Any

from conformance.families.draw import Draw
from conformance.families.examples import dtype_fields
from conformance.families.gemm import problem as problems
from conformance.families.gemm.problem import BLOCK_SCALINGS, OPERATIONS, Gemm
from conformance.kernels.kernel import Kernel, Plan, Variant
from conformance.problems import Layout


class GemmFamily(Kernel):
    """A kernel whose problems are :class:`~conformance.families.gemm.problem.Gemm`. A third-party kernel needs only
    this base."""

    problems = Gemm
    family = "gemm"
    more_orders = (("row", "col"), ("col", "row"), ("col", "col"))
    #: whether its scales are per block of the operands, instead of per tensor or row
    block_scaled: bool = False
    #: whether A may be column-major and B row-major; otherwise A is row-major and B column-major
    any_order: bool = True
    #: whether program number p of a grid with one program for each tile computes tile p in bands of GROUP_M rows
    banded_tiles: bool = False
    #: whether its loop over tiles gives warps different work
    specialised: bool = False
    #: whether suites show with it which matrix unit each target has
    shows_matrix_unit: bool = False

    @property
    def operation(self) -> str:
        """The first of its operations, in the order of :data:`~conformance.families.gemm.problem.OPERATIONS`."""
        return next(name for name in OPERATIONS if name in self.operations)

    def problem(self, dtype: str, M: int, N: int, K: int, **fields: Any) -> Gemm:
        """Returns a problem of the kernel's operation, in the orders that it takes. ``dtype`` is one of
        :meth:`dtype_names`, ``fields`` are those of :class:`~conformance.families.gemm.problem.Gemm`."""
        for name, order in zip(("layout_a", "layout_b"), self.orders or (), strict=False):
            fields.setdefault(name, Layout(order))
        if self.block_scaled:
            fields.setdefault("scaling", BLOCK_SCALINGS[1])
        problem: Gemm = getattr(problems, self.operation)(M, N, K, **{**fields, **dtype_fields(dtype)})
        return problem

    @property
    def knows_tiles(self) -> bool:
        """True if the kernel says which program makes which tile."""
        return self.banded_tiles or type(self).tile_of is not GemmFamily.tile_of

    def tile_of(self, plan: Plan, program: tuple[int, ...]) -> tuple[int, int]:
        """Returns the row and the column of the tile that ``program``, an index of the grid of ``plan``, makes alone. A
        kernel with another order of tiles than bands of GROUP_M rows defines it. Raises NotImplementedError for a
        kernel that does not say it."""
        if not self.banded_tiles:
            raise NotImplementedError(f"{self.name} does not say which program makes which tile")
        problem, config = plan.problem, plan.config
        tiles_m, tiles_n = -(-problem.M // config.block_m), -(-problem.N // config.block_n)
        band, inside = divmod(program[0], config.group_m * tiles_n)
        rows = min(tiles_m - band * config.group_m, config.group_m)
        return band * config.group_m + inside % rows, inside // rows

    @property
    def orders(self) -> tuple[str, str] | None:
        """The orders of A and B where a problem may not have, or does not name, any other; None for all the same."""
        return self.usual_orders or (None if self.any_order else ("row", "col"))

    def draw_variant(self, draw: Draw) -> Variant:
        """See :class:`Kernel`: every form of a descriptor kernel, static sizes or not of another."""
        pick = draw.pick
        if self.descriptors:
            store = draw.chance(0.5)
            where, subtile = pick(("device", "host")), pick((1, 2, 4))
            return Variant(where, store, subtile, pick((False, True)), pick((False, True)), pick((None, 2, 3)))
        if self.persistent:
            return super().draw_variant(draw)
        return Variant(static=pick((False, True)))
