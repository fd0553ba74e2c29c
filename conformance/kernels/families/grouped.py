"""The family of grouped products: what its problems, examples and random problems are, whatever the kernel."""

from __future__ import annotations

from typing import Any

from conformance.kernels.families.draw import Draw
from conformance.kernels.families.examples import (
    EVEN,
    FLOATS,
    TIMED_EDGE,
    WHOLE_TILES,
    dtype_fields,
    matrix_sizes,
    rest,
)
from conformance.kernels.kernel import Kernel
from conformance.problems import GroupedGemm


class GroupedFamily(Kernel):
    """A kernel whose problems are :class:`~conformance.problems.GroupedGemm`. A kernel from elsewhere needs only this
    base."""

    core = False
    family = "grouped"
    more_shapes = (WHOLE_TILES,)
    operations = frozenset({"grouped_mm"})
    dtypes = FLOATS

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> GroupedGemm:
        """See :class:`Kernel`: a group of one product's rows, one of none and one of a few; of whole tiles two."""
        m, n, k = matrix_sizes(config, dtype, shape)
        rows = (m, m) if shape in (WHOLE_TILES, EVEN) else (m, 0, 24)
        return GroupedGemm("2d-3d", rows, None, n, k, **dtype_fields(dtype))

    def timed(self, dtype: str) -> GroupedGemm:
        """See :class:`Kernel`: four groups of one square product."""
        edge = TIMED_EDGE + rest(dtype)
        return GroupedGemm("2d-3d", (edge // 4,) * 4, None, edge, edge, **dtype_fields(dtype))

    def draw_problem(self, draw: Draw) -> GroupedGemm:
        """See :class:`Kernel`: any kind and sizes, groups of nothing among them."""
        pick = draw.pick
        kind = pick(("2d-3d", "3d-2d", "2d-2d", "3d-3d"))
        sizes = tuple(pick((0, 1, 8, 17, 40, 64)) for _ in range(pick((1, 2, 4))))
        extents: dict[str, Any] = {"M": draw.size(), "N": draw.size(), "K": draw.k()}
        if kind == "3d-3d":
            sizes = (extents["M"],) * len(sizes)
        else:
            extents[{"2d-3d": "M", "3d-2d": "N", "2d-2d": "K"}[kind]] = None
        dtype = pick(self.dtypes)
        fields: dict[str, Any] = {name: draw.layout() for name in ("layout_a", "layout_b", "layout_out")}
        if dtype == "fp32":
            fields["precision"] = pick(("ieee", "tf32"))
        return GroupedGemm(kind, sizes, **extents, dtype=dtype, **fields)
