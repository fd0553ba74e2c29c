"""Examples, timed problems and random problems of grouped products."""

from __future__ import annotations

from typing import Any

from conformance.families.draw import Draw
from conformance.families.examples import EVEN, TIMED_EDGE, WHOLE_TILES, matrix_sizes, rest
from conformance.families.grouped.problem import KINDS


def example(kernel: Any, dtype: str, config: Any, shape: str) -> Any:
    """Returns a group of one product's rows, one of none and one of a few; of whole tiles two."""
    m, n, k = matrix_sizes(config, dtype, shape)
    rows = (m, m) if shape in (WHOLE_TILES, EVEN) else (m, 0, 24)
    return kernel.problem(dtype, "2d-3d", rows, N=n, K=k)


def timed(kernel: Any, dtype: str) -> Any:
    """Returns four groups of one square product."""
    edge = TIMED_EDGE + rest(dtype)
    return kernel.problem(dtype, "2d-3d", (edge // 4,) * 4, N=edge, K=edge)


def draw_problem(kernel: Any, draw: Draw) -> Any:
    """Returns a product of any kind and sizes, groups of nothing among them."""
    pick = draw.pick
    kind = pick(("2d-3d", "3d-2d", "2d-2d", "3d-3d"))
    sizes = tuple(pick((0, 1, 8, 17, 40, 64)) for _ in range(pick((1, 2, 4))))
    extents: dict[str, Any] = {"M": draw.size(), "N": draw.size(), "K": draw.k()}
    if kind == "3d-3d":
        sizes = (extents["M"],) * len(sizes)
    else:
        extents[KINDS[kind]] = None
    dtype = pick(kernel.dtypes)
    fields: dict[str, Any] = {name: draw.layout() for name in ("layout_a", "layout_b", "layout_out")}
    if dtype == "fp32":
        dtype = pick(("fp32", "tf32"))
    if kernel.scaled:
        fields |= {"scaling": pick(("tensor", "row")), "fast_accum": pick((False, True))}
    return kernel.problem(dtype, kind, sizes, **extents, **fields)
