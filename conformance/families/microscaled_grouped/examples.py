"""Examples, timed problems and random problems of grouped block-scaled products."""

from __future__ import annotations

import dataclasses
from typing import Any

from conformance.families.draw import Draw
from conformance.families.examples import EVEN, TIMED_EDGE, WHOLE_TILES, matrix_sizes
from conformance.families.microscaled.examples import DRAWN, EXAMPLES
from conformance.problems import Layout


def example(kernel: Any, dtype: str, config: Any, shape: str) -> Any:
    """Returns a group of one product's rows, one of none and one of a few; of whole tiles two."""
    m, n, k = matrix_sizes(config, "e4m3", shape)
    rows = (m, m) if shape in (WHOLE_TILES, EVEN) else (m, 0, 25)
    return kernel.problem(EXAMPLES[dtype], rows, n, k)


def timed(kernel: Any, dtype: str) -> Any:
    """Returns four groups of one square product."""
    return kernel.problem(EXAMPLES[dtype], (TIMED_EDGE // 4,) * 4, TIMED_EDGE, TIMED_EDGE)


def draw_problem(kernel: Any, draw: Draw) -> Any:
    """Returns a product of any sizes and layouts, groups of nothing among them. None is of fp16: no released Triton
    compiles products of it with four-bit codes for sm_80."""
    pick = draw.pick
    sizes = tuple(pick((0, 1, 8, 17, 40, 64)) for _ in range(pick((1, 2, 4))))
    fields: dict[str, Any] = {"out_dtype": pick(("fp32", "bf16"))}
    fields["layout_a"] = dataclasses.replace(draw.layout(None, False), batch="outer")
    fields["layout_b"] = dataclasses.replace(draw.layout(None, True), batch="outer")
    fields["layout_out"] = Layout(pick(("row", "col")), pick((0, 1, 8)))
    fields["layout_scale"] = Layout(pick(("row", "col")), pick((0, 3)), offset=pick((0, 5)))
    a, b = pick([pair for pair in DRAWN if "fp16" not in pair])
    return kernel.problem((a, b), sizes, draw.size(), 2 * -(-draw.k() // 2), **fields)
