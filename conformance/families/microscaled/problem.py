"""Products of block-scaled operands: narrow codes, and one scale for each block of k (OCP Microscaling Formats 1.0).

The grid of their kernels is here too.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from typing import Any

from conformance.families.family import Tiles, tiles_of
from conformance.problems import Layout, Operand, Problem, check_choice


@dataclass(frozen=True)
class ScaledFormat:
    """The storage of an operand: the ``codes`` of its elements, as ``tl.dot_scaled`` calls them, and the ``dtype`` of
    the tensor that holds them. ``scale`` is a dtype, and ``block`` the number of k that share one scale (None: not
    scaled).

    Codes of e2m1 are packed in pairs, the first in the lower half of a byte. A scale of dtype "uint8" is a biased
    exponent (E8M0): byte b stands for 2**(b - 127), byte 255 for NaN. A scale of dtype "e4m3" is a number.
    """

    codes: str
    dtype: str
    scale: str | None = None
    block: int = 32

    @property
    def per_byte(self) -> int:
        """Elements in one element of the tensor."""
        return 2 if self.codes == "e2m1" else 1


FORMATS: dict[str, ScaledFormat] = {
    "mxfp8": ScaledFormat("e4m3", "e4m3", "uint8"),
    "mxfp8e5": ScaledFormat("e5m2", "e5m2", "uint8"),
    "mxfp4": ScaledFormat("e2m1", "uint8", "uint8"),
    "nvfp4": ScaledFormat("e2m1", "uint8", "e4m3", 16),
    "bf16": ScaledFormat("bf16", "bf16"),
    "fp16": ScaledFormat("fp16", "fp16"),
}

#: Lines and blocks of k of one tile of swizzled scales.
SWIZZLED_LINES, SWIZZLED_BLOCKS = 128, 4


class BlockScaled(Problem):
    """Base of products of block-scaled operands: the formats of A and B."""

    a_format: str
    b_format: str
    K: int

    @property
    def formats(self) -> tuple[ScaledFormat, ScaledFormat]:
        """The formats of A and B."""
        return FORMATS[self.a_format], FORMATS[self.b_format]

    def format_of(self, operand: str) -> ScaledFormat:
        """Returns the format of "a" or "b"."""
        return self.formats["ab".index(operand)]

    @property
    def dtype(self) -> str:  # type: ignore[override]
        """dtype of the tensor that holds the codes of A."""
        return self.formats[0].dtype

    @property
    def has_product(self) -> bool:
        """True if there is anything to multiply."""
        return self.K > 0

    def blocks(self, operand: str) -> int:
        """Blocks of k that have a scale each, the last one perhaps not full."""
        return -(-self.K // self.format_of(operand).block)


@dataclass(frozen=True)
class MicroscaledGemm(BlockScaled):
    """``out[M,N] = A[M,K] @ B[K,N]``, where each operand is codes times the scales of their blocks of k.

    ``a_format`` and ``b_format`` are keys of :data:`FORMATS`. ``packed_a`` is "k" or "m" and ``packed_b`` "k" or "n":
    the dimension along which the codes of two neighbours share a byte; only four-bit codes can be packed along another
    than k. Operands: a (M, K) and b (K, N), half as long in the dimension in which they are packed; scale_a
    (M, blocks of k) and scale_b (N, blocks of k), both laid out as ``layout_scale`` says; each with the ``batch`` in
    front, if there is one. Sums are fp32.

    ``swizzled`` scales lie as tcgen05 reads them (cuBLAS: layouts of 1D block scaling factors). That is in tiles of 128
    lines by 4 blocks of k, (lines / 128, blocks / 4, 32, 4, 4) with both quotients rounded up. The last three
    dimensions are contiguous: line l and block b of a tile are at [l % 32, l // 32, b]. ``layout_scale`` then lays out
    whole tiles, and its ``pad`` and ``step`` count tiles. In the padding scales of lines past the last are NaN, and
    scales of blocks past the last are any finite ones.
    """

    a_format: str
    b_format: str
    M: int
    N: int
    K: int
    packed_a: str = "k"
    packed_b: str = "k"
    out_dtype: str = "fp32"
    layout_a: Layout = Layout()
    layout_b: Layout = Layout("col")
    layout_out: Layout = Layout()
    layout_scale: Layout = Layout()
    batch: int | None = None
    swizzled: bool = False
    op: str = field(default="microscaled_mm", init=False)

    def __post_init__(self) -> None:
        for name in ("a_format", "b_format"):
            check_choice(name, getattr(self, name), FORMATS)
        if self.formats[0].scale is None and self.formats[1].scale is None:
            raise ValueError(f"{self.a_format} x {self.b_format}: one operand at least must have scales; use mm")
        check_choice("out_dtype", self.out_dtype, ("fp32", "bf16", "fp16"))
        for name in ("M", "N", "K", "batch"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: sizes must be >= 0")
        for name in ("layout_a", "layout_b", "layout_out", "layout_scale"):
            if getattr(self, name).batch == "zero":
                raise ValueError(f"{name} has batch 'zero': each matrix of a batch is its own")
        for operand, outer in (("a", "m"), ("b", "n")):
            form, packed = self.format_of(operand), self.packed(operand)
            check_choice(f"packed_{operand}", packed, ("k", outer))
            if packed != "k" and form.per_byte == 1:
                raise ValueError(f"packed_{operand} is {packed!r}: only four-bit codes are packed along {outer}")
            extent = getattr(self, packed.upper())
            if extent % form.per_byte:
                raise ValueError(f"{packed.upper()} is {extent}: {operand} has two codes a byte along {packed}")

    def packed(self, operand: str) -> str:
        """Along which dimension the codes of "a" or "b" are packed."""
        return self.packed_a if operand == "a" else self.packed_b

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        """a, b and the scales that exist: scale_a, scale_b."""
        lead = () if self.batch is None else (self.batch,)
        operands = []
        for name, axes, layout in (("a", "mk", self.layout_a), ("b", "kn", self.layout_b)):
            form = self.format_of(name)
            bytes_along = {axis: form.per_byte if axis == self.packed(name) else 1 for axis in axes}
            shape = (*lead, *(getattr(self, axis.upper()) // bytes_along[axis] for axis in axes))
            operands.append(layout.operand(name, shape, form.dtype))
        for name, lines in (("a", self.M), ("b", self.N)):
            scale = self.format_of(name).scale
            if scale is not None:
                shape, strides = self._of_scales((*lead, lines, self.blocks(name)))
                operands.append(Operand(f"scale_{name}", shape, strides, scale, self.layout_scale.offset))
        return tuple(operands)

    def _of_scales(self, plain: tuple[int, ...]) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Shape and strides of scales that would have the shape ``plain`` if they were not swizzled."""
        if not self.swizzled:
            return plain, self.layout_scale.strides(plain)
        tiles = (*plain[:-2], -(-plain[-2] // SWIZZLED_LINES), -(-plain[-1] // SWIZZLED_BLOCKS))
        size = SWIZZLED_LINES * SWIZZLED_BLOCKS
        steps = tuple(size * stride for stride in self.layout_scale.strides(tiles))
        return (*tiles, 32, 4, 4), (*steps, 16, 4, 1)

    @functools.cached_property
    def outputs(self) -> tuple[Operand, ...]:
        shape = (self.M, self.N) if self.batch is None else (self.batch, self.M, self.N)
        return (self.layout_out.operand("out", shape, self.out_dtype),)

    @functools.cached_property
    def id(self) -> str:
        """Stable text such as ``microscaled_mm-40x56x96-mxfp8.mxfp4-kk-to.fp32-row.col.row``."""
        sizes = f"{'' if self.batch is None else f'{self.batch}x'}{self.M}x{self.N}x{self.K}"
        layouts = [layout.id for layout in (self.layout_a, self.layout_b, self.layout_out)]
        if self.layout_scale != Layout() or self.swizzled:
            layouts.append(f"scale.{'swizzled.' if self.swizzled else ''}{self.layout_scale.id}")
        formats, packed = f"{self.a_format}.{self.b_format}", self.packed_a + self.packed_b
        return "-".join((self.op, sizes, formats, packed, f"to.{self.out_dtype}", ".".join(layouts)))


def tiles(problem: MicroscaledGemm, config: Any) -> Tiles | None:
    """Returns the tiles of the output."""
    return tiles_of(problem.M, problem.N, config, 1 if problem.batch is None else problem.batch)


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...]:
    """Returns one program for each tile, with a dimension for the matrices of a batch; a config with ``matrices`` has
    so many of them in one program."""
    rows, columns, matrices = tiles
    in_one_program = getattr(plan.config, "matrices", None)
    if in_one_program:
        return (rows * columns * -(-matrices // in_one_program),)
    return (rows * columns,) if plan.problem.batch is None else (rows * columns, matrices)
