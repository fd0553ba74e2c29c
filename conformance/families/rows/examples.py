"""Examples, timed problems and random problems of functions of rows."""

from __future__ import annotations

from typing import Any

from conformance.families.draw import Draw
from conformance.families.examples import EVEN, WHOLE_TILES
from conformance.families.rows.problem import EPS, RowProblem

#: Rows and columns of the matrix that is timed.
TIMED_ROWS, TIMED_COLUMNS = 4096, 4096


def example(kernel: Any, dtype: str, config: Any, shape: str) -> RowProblem:
    """Returns a problem whose columns stand for k, too: a program walks over them in blocks."""
    m, n = config.block_m, config.block_n
    sizes = {
        "smaller-than-a-tile": (max(m // 2, 1), max(n - 8, 1)),
        "ragged": (2 * m + 1, n + 16),
        "several-tiles": (3 * m + 2, 2 * n + 8),
        "many-k-blocks": (m + 3, (config.num_stages + 2) * n + 16),
        WHOLE_TILES: (2 * m, 2 * n),
        EVEN: (2 * m, (config.num_stages + 1 | 1) * n),
    }
    return RowProblem(kernel.function, *sizes[shape], dtype)


def timed(kernel: Any, dtype: str) -> RowProblem:
    """Returns a square matrix."""
    return RowProblem(kernel.function, TIMED_ROWS, TIMED_COLUMNS, dtype)


def draw_problem(kernel: Any, draw: Draw) -> RowProblem:
    """Returns a problem of any sizes, layouts and eps."""
    layouts = draw.layout(), draw.layout()
    eps = draw.pick((EPS, 1e-5, 2.0**-10))
    return RowProblem(kernel.function, draw.size(), draw.size(), draw.pick(kernel.dtypes), eps, *layouts)
