"""Examples, timed problems and random problems of products with four-bit weights."""

from __future__ import annotations

import dataclasses
from typing import Any

from conformance.families.draw import Draw
from conformance.families.examples import TIMED_EDGE, matrix_sizes
from conformance.families.int4.problem import Int4Gemm, int4_mm
from conformance.problems import Layout

#: Name of the dtypes of A and of codes -> the fields of the examples of these.
EXAMPLES: dict[str, dict[str, Any]] = {
    "bf16xint4": {"packed": "n", "group": 64, "zero": "float"},
    "fp16xuint4": {"packed": "k", "group": 128, "zero": "packed"},
}


def example(kernel: Any, dtype: str, config: Any, shape: str) -> Int4Gemm:
    """Returns the product of a shape class. All sizes are even, for codes in pairs."""
    return int4_mm(dtype, *matrix_sizes(config, "bf16", shape), **EXAMPLES[dtype])


def timed(kernel: Any, dtype: str) -> Int4Gemm:
    """Returns a square product."""
    return int4_mm(dtype, TIMED_EDGE, TIMED_EDGE, TIMED_EDGE, **EXAMPLES[dtype])


def draw_problem(kernel: Any, draw: Draw) -> Int4Gemm:
    """Returns a product of any sizes, groups, packings and layouts."""
    pick = draw.pick
    m, n, k = draw.size(), 2 * -(-draw.size() // 2), 2 * -(-draw.k() // 2)
    fields = {
        "signed": pick((True, False)),
        "packed": pick(("k", "n")),
        "group": pick((0, 16, 32, 48, 64, 128)),
        "zero": pick(("none", "packed", "float")),
        "out_dtype": pick(("", "", "fp32")),
        "layout_a": draw.layout(),
        "layout_b": draw.layout(),
        "layout_out": Layout(pick(("row", "col")), pick((0, 1, 8))),
        "layout_scale": dataclasses.replace(draw.layout(), step=1),
    }
    return int4_mm(pick(kernel.dtype_names()), m, n, k, **fields)
