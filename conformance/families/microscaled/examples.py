"""Examples, timed problems and random problems of block-scaled products."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from conformance.families.draw import Draw
from conformance.families.examples import TIMED_EDGE, matrix_sizes
from conformance.problems import Layout

#: dtype of A's tensor -> the formats of A and B in the examples of that dtype.
EXAMPLES = {
    "e4m3": ("mxfp8", "mxfp8"),
    "e5m2": ("mxfp8e5", "mxfp8"),
    "uint8": ("mxfp4", "mxfp4"),
    "bf16": ("bf16", "mxfp4"),
    "fp16": ("fp16", "mxfp4"),
}

#: The formats of random problems.
DRAWN = (
    *itertools.product(("mxfp8", "mxfp8e5", "mxfp4"), repeat=2),
    *itertools.product(("mxfp8", "mxfp4"), ("bf16", "fp16")),
)


def example(kernel: Any, dtype: str, config: Any, shape: str) -> Any:
    """Returns the product of a shape class. All sizes are even, for codes in pairs; K has a rest of 16, half a block of
    scales."""
    return kernel.problem(EXAMPLES[dtype], *matrix_sizes(config, "e4m3", shape))


def timed(kernel: Any, dtype: str) -> Any:
    """Returns a square product, or a batch of 16 smaller ones."""
    edge, batch = (TIMED_EDGE // 4, 16) if kernel.batched else (TIMED_EDGE, None)
    return kernel.problem(EXAMPLES[dtype], edge, edge, edge, batch=batch)


def draw_problem(kernel: Any, draw: Draw) -> Any:
    """Returns a product of any sizes and layouts. The formats and packings that a released Triton does not compile, or
    multiplies wrongly, have their own cases."""
    pick = draw.pick
    fields: dict[str, Any] = {"out_dtype": pick(("fp32", "fp32", "bf16")), "batch": pick((None, None, 2, 3))}
    for name in ("layout_a", "layout_b"):
        fields[name] = dataclasses.replace(draw.layout(None, fields["batch"] is not None), batch="outer")
    fields["layout_out"] = Layout(pick(("row", "col")), pick((0, 1, 8)))
    fields["layout_scale"] = Layout(pick(("row", "col")), pick((0, 3)), offset=pick((0, 5)))
    m, n, k = draw.size(), draw.size(), 2 * -(-draw.k() // 2)
    return kernel.problem(pick(DRAWN), m, n, k, **fields)
