"""Products with four-bit weights: integer codes two a byte, with a scale and perhaps a zero point for a group of k.

The grid of their kernels is here too.
"""

from __future__ import annotations

import functools
import math
from dataclasses import dataclass, field
from typing import Any

from conformance.families.family import Tiles, tiles_of
from conformance.problems import Layout, Operand, Problem, check_choice

#: Codes in one byte.
PER_BYTE = 2


@dataclass(frozen=True)
class Int4Gemm(Problem):
    """``out[M,N] = A[M,K] @ W[K,N]`` with ``W = (code - zero) * scale`` in fp32, rounded to ``dtype``.

    ``dtype`` is "bf16" or "fp16". A code is an integer of -8 to 7 if ``signed``, else of 0 to 15. Two neighbours along
    ``packed``, "k" or "n", share a byte, the first in its lower half. Each column has one scale for ``group`` k; 0
    stands for all k. ``zero`` is "none" (zero points are 0), "packed" (codes, two columns a byte, as GPTQ and AWQ store
    them) or "float" (of ``dtype``). Operands: a (M, K); b, K or N halved; scale (groups, N) of ``dtype``; zero
    (groups, N), or N halved. Scales and zero points are laid out as ``layout_scale`` says. Sums are fp32.
    """

    dtype: str
    M: int
    N: int
    K: int
    signed: bool = True
    packed: str = "k"
    group: int = 128
    zero: str = "none"
    out_dtype: str = ""
    layout_a: Layout = Layout()
    layout_b: Layout = Layout()
    layout_out: Layout = Layout()
    layout_scale: Layout = Layout()
    op: str = field(default="int4_mm", init=False)

    def __post_init__(self) -> None:
        check_choice("dtype", self.dtype, ("bf16", "fp16"))
        check_choice("packed", self.packed, ("k", "n"))
        check_choice("zero", self.zero, ("none", "packed", "float"))
        if not self.out_dtype:
            object.__setattr__(self, "out_dtype", self.dtype)
        check_choice("out_dtype", self.out_dtype, ("bf16", "fp16", "fp32"))
        for name in ("M", "N", "K", "group"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: sizes must be >= 0")
        for axis, packed in ((self.packed, "b"), ("n", "zero")):
            if (packed == "b" or self.zero == "packed") and getattr(self, axis.upper()) % PER_BYTE:
                extent = getattr(self, axis.upper())
                raise ValueError(f"{axis.upper()} is {extent}: {packed} has two codes a byte along {axis}")

    @property
    def codes(self) -> range:
        """The integers that a code can be."""
        return range(-8, 8) if self.signed else range(16)

    @property
    def weights(self) -> str:
        """The name of the codes: "int4" or "uint4"."""
        return "int4" if self.signed else "uint4"

    @property
    def has_product(self) -> bool:
        """True if there is anything to multiply."""
        return self.K > 0

    @property
    def groups(self) -> int:
        """Scales of a column, the last one perhaps for fewer k."""
        return -(-self.K // (self.group or max(self.K, 1)))

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        """a, b, scale, and zero if there is one."""
        stored = "int8" if self.signed else "uint8"
        halved = (self.K // PER_BYTE, self.N) if self.packed == "k" else (self.K, self.N // PER_BYTE)
        tensors = [
            ("a", (self.M, self.K), self.layout_a, self.dtype),
            ("b", halved, self.layout_b, stored),
            ("scale", (self.groups, self.N), self.layout_scale, self.dtype),
        ]
        if self.zero == "packed":
            tensors.append(("zero", (self.groups, self.N // PER_BYTE), self.layout_scale, stored))
        elif self.zero == "float":
            tensors.append(("zero", (self.groups, self.N), self.layout_scale, self.dtype))
        return tuple(layout.operand(name, shape, dtype) for name, shape, layout, dtype in tensors)

    @functools.cached_property
    def outputs(self) -> tuple[Operand, ...]:
        return (self.layout_out.operand("out", (self.M, self.N), self.out_dtype),)

    @functools.cached_property
    def id(self) -> str:
        """Stable text such as ``int4_mm-40x56x96-bf16.uint4-k-g32-zero.packed-to.fp32-row.col.row``."""
        layouts = [layout.id for layout in (self.layout_a, self.layout_b, self.layout_out)]
        if self.layout_scale != Layout():
            layouts.append(f"scale.{self.layout_scale.id}")
        zero = [] if self.zero == "none" else [f"zero.{self.zero}"]
        parts = (self.op, f"{self.M}x{self.N}x{self.K}", f"{self.dtype}.{self.weights}", self.packed, f"g{self.group}")
        return "-".join((*parts, *zero, f"to.{self.out_dtype}", ".".join(layouts)))


def int4_mm(dtypes: str, M: int, N: int, K: int, **fields: Any) -> Int4Gemm:
    """Returns a product of A and codes of these ``dtypes``, such as "bf16xint4"; ``fields`` are those of
    :class:`Int4Gemm`."""
    stored, _, codes = dtypes.partition("x")
    return Int4Gemm(stored, M, N, K, **{"signed": codes == "int4", **fields})


def tiles(problem: Int4Gemm, config: Any) -> Tiles | None:
    """Returns the tiles of the output."""
    return tiles_of(problem.M, problem.N, config)


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...]:
    """Returns one program for each tile."""
    return (math.prod(tiles),)
