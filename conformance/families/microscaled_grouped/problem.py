"""Grouped products of block-scaled operands, as experts have them: a matrix B for each group of rows of A."""

from __future__ import annotations

import functools
import itertools
from dataclasses import dataclass, field

from conformance.families.microscaled.problem import BlockScaled, MicroscaledGemm
from conformance.problems import Layout, Operand


@dataclass(frozen=True)
class MicroscaledGroupedGemm(BlockScaled):
    """``out_g = A_g @ B_g`` for each group g, where A_g and out_g are the rows of A and out that belong to the group.

    ``sizes`` holds how many rows each group has, 0 for an empty group; their sum is M. Operands: a (M, K) and b
    (groups, K, N), of four-bit codes half as long in k; scale_a (M, blocks of k) and scale_b (groups, N, blocks of k)
    where the format has scales, both laid out as ``layout_scale`` says; ``offsets`` (groups,), int32, where each group
    ends. Sums are fp32.
    """

    a_format: str
    b_format: str
    sizes: tuple[int, ...]
    N: int
    K: int
    out_dtype: str = "fp32"
    layout_a: Layout = Layout()
    layout_b: Layout = Layout("col")
    layout_out: Layout = Layout()
    layout_scale: Layout = Layout()
    op: str = field(default="microscaled_grouped_mm", init=False)

    #: like a product of one matrix: codes side by side along k, scales in lines, no batch; groups differ in their rows
    packed_a = packed_b = "k"
    swizzled = False
    ragged = "M"

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) < 0:
            raise ValueError(f"sizes are {self.sizes}: at least one group is required, and sizes >= 0")
        for group in range(self.groups):
            self.group(group)  # raises ValueError for what no product can be

    @property
    def M(self) -> int:
        """Rows of all groups."""
        return sum(self.sizes)

    @property
    def groups(self) -> int:
        return len(self.sizes)

    @property
    def ends(self) -> tuple[int, ...]:
        """Returns the end of each group: the values of ``offsets``."""
        return tuple(itertools.accumulate(self.sizes))

    def extent(self, name: str) -> int:
        """M, N or K of the tensors."""
        return int(getattr(self, name))

    def group(self, group: int) -> MicroscaledGemm:
        """Returns the product of one group, in its plainest layout."""
        return MicroscaledGemm(
            self.a_format, self.b_format, self.sizes[group], self.N, self.K, out_dtype=self.out_dtype
        )

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        """a, b, the scales that exist, and offsets."""
        form_a, form_b = self.formats
        shapes = {
            "a": ((self.M, self.K // form_a.per_byte), self.layout_a, form_a.dtype),
            "b": ((self.groups, self.K // form_b.per_byte, self.N), self.layout_b, form_b.dtype),
            "scale_a": ((self.M, self.blocks("a")), self.layout_scale, form_a.scale),
            "scale_b": ((self.groups, self.N, self.blocks("b")), self.layout_scale, form_b.scale),
        }
        operands = [
            layout.operand(name, shape, dtype) for name, (shape, layout, dtype) in shapes.items() if dtype is not None
        ]
        return (*operands, Operand("offsets", (self.groups,), (1,), "int32"))

    @functools.cached_property
    def outputs(self) -> tuple[Operand, ...]:
        return (self.layout_out.operand("out", (self.M, self.N), self.out_dtype),)

    @functools.cached_property
    def id(self) -> str:
        """Stable text such as ``microscaled_grouped_mm-40.0.25x56x96-mxfp8.mxfp4-to.fp32-row.col.row``."""
        layouts = [layout.id for layout in (self.layout_a, self.layout_b, self.layout_out)]
        if self.layout_scale != Layout():
            layouts.append(f"scale.{self.layout_scale.id}")
        sizes = f"{'.'.join(map(str, self.sizes))}x{self.N}x{self.K}"
        return "-".join((self.op, sizes, f"{self.a_format}.{self.b_format}", f"to.{self.out_dtype}", ".".join(layouts)))
