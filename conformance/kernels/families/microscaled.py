"""The family of products of block-scaled operands: what its problems, examples and random problems are."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

from conformance.families.microscaled.problem import MicroscaledGemm
from conformance.kernels.families.draw import Draw
from conformance.kernels.families.examples import TIMED_EDGE, WHOLE_TILES, matrix_sizes
from conformance.kernels.kernel import Kernel
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


class MicroscaledFamily(Kernel):
    """A kernel whose problems are :class:`~conformance.families.microscaled.problem.MicroscaledGemm`. A third-party
    kernel needs only this base."""

    weight = 1
    family = "microscaled"
    specialised = False
    #: whether each of its problems is a batch
    batched = False
    #: whether scales are loaded by descriptors
    described_scales = False
    operations = frozenset({"microscaled_mm"})
    dtypes = tuple(EXAMPLES)
    more_shapes = (WHOLE_TILES,)

    def sizes(self, config: Any, shape: str) -> tuple[int, int, int]:
        """(M, N, K) of a shape class. All are even, for codes in pairs; K has a rest of 16, half a block of scales."""
        return matrix_sizes(config, "e4m3", shape)

    def problem(self, formats: tuple[str, str], M: int, N: int, K: int, **fields: Any) -> MicroscaledGemm:
        """A product of A and B in these ``formats``; ``fields`` are those of
        :class:`~conformance.families.microscaled.problem.MicroscaledGemm`."""
        return MicroscaledGemm(*formats, M, N, K, **fields)

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> MicroscaledGemm:
        return self.problem(EXAMPLES[dtype], *self.sizes(config, shape))

    def timed(self, dtype: str) -> MicroscaledGemm:
        """See :class:`Kernel`: a square product."""
        return self.problem(EXAMPLES[dtype], TIMED_EDGE, TIMED_EDGE, TIMED_EDGE)

    def draw_problem(self, draw: Draw) -> MicroscaledGemm:
        """See :class:`Kernel`: any sizes and layouts. The formats and packings that a released Triton does not compile,
        or multiplies wrongly, have cases of their own."""
        pick = draw.pick
        fields: dict[str, Any] = {"out_dtype": pick(("fp32", "fp32", "bf16")), "batch": pick((None, None, 2, 3))}
        for name in ("layout_a", "layout_b"):
            fields[name] = dataclasses.replace(draw.layout(None, fields["batch"] is not None), batch="outer")
        fields["layout_out"] = Layout(pick(("row", "col")), pick((0, 1, 8)))
        fields["layout_scale"] = Layout(pick(("row", "col")), pick((0, 3)), offset=pick((0, 5)))
        m, n, k = draw.size(), draw.size(), 2 * -(-draw.k() // 2)
        return self.problem(pick(DRAWN), m, n, k, **fields)


class BatchedFamily(MicroscaledFamily):
    """A kernel of which each problem is a batch."""

    batched = True
    #: matrices in the problems that do not say how many
    matrices = 2

    def problem(self, formats: tuple[str, str], M: int, N: int, K: int, **fields: Any) -> MicroscaledGemm:
        """See :class:`MicroscaledFamily`: a batch, of :attr:`matrices` unless ``fields`` say how many."""
        if fields.get("batch") is None:
            fields["batch"] = self.matrices
        return super().problem(formats, M, N, K, **fields)

    def timed(self, dtype: str) -> MicroscaledGemm:
        """See :class:`Kernel`: 16 smaller square products."""
        edge = TIMED_EDGE // 4
        return self.problem(EXAMPLES[dtype], edge, edge, edge, batch=16)
