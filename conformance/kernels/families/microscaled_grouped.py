"""The family of grouped products of block-scaled operands: its problems, examples and random problems."""

from __future__ import annotations

import dataclasses
from typing import Any

from conformance.families.microscaled_grouped.problem import MicroscaledGroupedGemm
from conformance.kernels.families.draw import Draw
from conformance.kernels.families.examples import EVEN, TIMED_EDGE, WHOLE_TILES, matrix_sizes
from conformance.kernels.families.grouped import describable
from conformance.kernels.families.microscaled import DRAWN, EXAMPLES
from conformance.kernels.kernel import Kernel
from conformance.problems import Layout


class MicroscaledGroupedFamily(Kernel):
    """A kernel whose problems are :class:`~conformance.families.microscaled_grouped.problem.MicroscaledGroupedGemm`. A
    third-party kernel needs only this base."""

    weight = 1
    family = "microscaled-grouped"
    operations = frozenset({"microscaled_grouped_mm"})
    dtypes = tuple(EXAMPLES)
    more_shapes = (WHOLE_TILES,)

    def problem(
        self, formats: tuple[str, str], sizes: tuple[int, ...], N: int, K: int, **fields: Any
    ) -> MicroscaledGroupedGemm:
        """Returns a product in these ``formats``; of a kernel with descriptors with operands that these can have.
        ``fields`` are those of :class:`~conformance.families.microscaled_grouped.problem.MicroscaledGroupedGemm`."""
        problem = MicroscaledGroupedGemm(*formats, sizes, N, K, **fields)
        # tcgen05 needs 32 bytes for four-bit codes that meet eight-bit ones
        return describable(problem, "ab", 32) if self.descriptors else problem

    def example(self, dtype: str, config: Any, shape: str = "ragged") -> MicroscaledGroupedGemm:
        """See :class:`Kernel`: a group of one product's rows, one of none and one of a few; of whole tiles two."""
        m, n, k = matrix_sizes(config, "e4m3", shape)
        rows = (m, m) if shape in (WHOLE_TILES, EVEN) else (m, 0, 25)
        return self.problem(EXAMPLES[dtype], rows, n, k)

    def timed(self, dtype: str) -> MicroscaledGroupedGemm:
        """See :class:`Kernel`: four groups of one square product."""
        return self.problem(EXAMPLES[dtype], (TIMED_EDGE // 4,) * 4, TIMED_EDGE, TIMED_EDGE)

    def draw_problem(self, draw: Draw) -> MicroscaledGroupedGemm:
        """See :class:`Kernel`: any sizes and layouts, groups of nothing among them; no fp16, because no released Triton
        compiles products of it with four-bit codes for sm_80."""
        pick = draw.pick
        sizes = tuple(pick((0, 1, 8, 17, 40, 64)) for _ in range(pick((1, 2, 4))))
        fields: dict[str, Any] = {"out_dtype": pick(("fp32", "bf16"))}
        fields["layout_a"] = dataclasses.replace(draw.layout(None, False), batch="outer")
        fields["layout_b"] = dataclasses.replace(draw.layout(None, True), batch="outer")
        fields["layout_out"] = Layout(pick(("row", "col")), pick((0, 1, 8)))
        fields["layout_scale"] = Layout(pick(("row", "col")), pick((0, 3)), offset=pick((0, 5)))
        a, b = pick([pair for pair in DRAWN if "fp16" not in pair])
        return self.problem((a, b), sizes, draw.size(), 2 * -(-draw.k() // 2), **fields)
