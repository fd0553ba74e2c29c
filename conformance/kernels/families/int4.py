"""The family of products with four-bit weights: what its problems, examples and random problems are."""

from __future__ import annotations

import dataclasses
from typing import Any

from conformance.families.int4.problem import Int4Gemm
from conformance.kernels.families.draw import Draw
from conformance.kernels.families.examples import TIMED_EDGE, WHOLE_TILES, matrix_sizes
from conformance.kernels.kernel import Kernel
from conformance.problems import Layout

#: Name of the dtypes of A and of codes -> the fields of the examples of these.
EXAMPLES: dict[str, dict[str, Any]] = {
    "bf16xint4": {"packed": "n", "group": 64, "zero": "float"},
    "fp16xuint4": {"packed": "k", "group": 128, "zero": "packed"},
}


class Int4Family(Kernel):
    """A kernel whose problems are :class:`~conformance.families.int4.problem.Int4Gemm`. A third-party kernel needs
    only this
    base."""

    weight = 1
    family = "int4"
    operations = frozenset({"int4_mm"})
    dtypes = ("bf16", "fp16")
    more_shapes = (WHOLE_TILES,)

    def dtype_names(self) -> list[str]:
        """See :class:`Kernel`: the dtypes of A and of codes, such as "bf16xint4"."""
        return list(EXAMPLES)

    def sizes(self, config: Any, shape: str) -> tuple[int, int, int]:
        """(M, N, K) of a shape class. All are even, for codes in pairs."""
        return matrix_sizes(config, "bf16", shape)

    def problem(self, dtype: str, M: int, N: int, K: int, **fields: Any) -> Int4Gemm:
        """A product of these dtypes, such as "bf16xint4"; ``fields`` are those of
        :class:`~conformance.families.int4.problem.Int4Gemm`."""
        stored, _, codes = dtype.partition("x")
        return Int4Gemm(stored, M, N, K, **{"signed": codes == "int4", **fields})

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> Int4Gemm:
        return self.problem(dtype, *self.sizes(config, shape), **EXAMPLES[dtype])

    def timed(self, dtype: str) -> Int4Gemm:
        """See :class:`Kernel`: a square product."""
        return self.problem(dtype, TIMED_EDGE, TIMED_EDGE, TIMED_EDGE, **EXAMPLES[dtype])

    def draw_problem(self, draw: Draw) -> Int4Gemm:
        """See :class:`Kernel`: any sizes, groups, packings and layouts."""
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
        return self.problem(pick(self.dtype_names()), m, n, k, **fields)
