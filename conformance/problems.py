"""What is computed: the problem, its operands, their dtypes and layouts.

A problem says nothing about how it is computed: no tiles, no target, no kernel. It is hashable, picklable and
has a stable text id, so that records of two runs can be joined on it.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass

import torch

DTYPES: dict[str, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
}
FP8 = ("e4m3", "e5m2")

#: Every guarded allocation starts at a multiple of this many bytes, so ``Layout.offset`` alone decides alignment.
BASE_ALIGNMENT = 256


def itemsize(dtype: str) -> int:
    """Bytes of one element of ``dtype`` (a key of :data:`DTYPES`)."""
    return DTYPES[dtype].itemsize


@dataclass(frozen=True)
class Layout:
    """How a 2-D operand lies in memory.

    ``order`` names the dimension with the smaller stride ("row": the last, "col": the first), ``pad`` elements are
    added to the leading dimension beyond the extent, ``step`` is the stride of the inner dimension (1 unless the
    operand is a strided view) and ``offset`` shifts the first element, in elements, from a 256-byte boundary.
    """

    order: str = "row"
    pad: int = 0
    step: int = 1
    offset: int = 0

    def __post_init__(self) -> None:
        if self.order not in ("row", "col"):
            raise ValueError(f"layout order {self.order!r} is unknown: use 'row' or 'col'")
        if self.pad < 0 or self.step < 1 or self.offset < 0:
            raise ValueError(f"{self}: pad and offset must be >= 0 and step >= 1")

    def strides(self, shape: tuple[int, int]) -> tuple[int, int]:
        """Strides in elements for an operand of ``shape``; extents of 0 are laid out as if they were 1."""
        rows, cols = (max(extent, 1) for extent in shape)
        if self.order == "row":
            return (cols * self.step + self.pad, self.step)
        return (self.step, rows * self.step + self.pad)

    @property
    def id(self) -> str:
        text = self.order
        if self.step != 1:
            text += f"*{self.step}"
        if self.pad:
            text += f"+{self.pad}"
        if self.offset:
            text += f"@{self.offset}"
        return text


@dataclass(frozen=True)
class Operand:
    """One tensor of a problem: ``shape`` and ``strides`` in elements, ``offset`` in elements from 256-byte alignment.

    ``shape`` is what the operation sees; a dimension with stride 0 is broadcast and holds one element in memory.
    """

    name: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str
    offset: int = 0

    @property
    def numel(self) -> int:
        return math.prod(self.shape)

    @property
    def span(self) -> int:
        """Elements from the first to one past the last that the operand touches (0 if it is empty)."""
        if self.numel == 0:
            return 0
        return 1 + sum((extent - 1) * stride for extent, stride in zip(self.shape, self.strides, strict=True))


@dataclass(frozen=True)
class Bias:
    """The addend of an addmm or scaled mm.

    ``kind``: "n" a vector of N added to every row, "1n" the same as a 1xN matrix, "m1" one value per row,
    "mn" a full matrix. Kinds with fewer elements than M*N are read with stride 0 along the broadcast dimension.
    """

    kind: str = "n"
    dtype: str | None = None
    layout: Layout = Layout()

    def __post_init__(self) -> None:
        if self.kind not in ("n", "1n", "m1", "mn"):
            raise ValueError(f"bias kind {self.kind!r} is unknown: use 'n', '1n', 'm1' or 'mn'")


@dataclass(frozen=True)
class Gemm:
    """``out[M,N] = epilogue(A[M,K] @ B[K,N])`` in one of three operations:

    * ``mm``: the product alone;
    * ``addmm``: ``beta * bias + alpha * (A @ B)``; beta 0 ignores the bias and alpha 0 the product, NaN included;
    * ``scaled_mm``: ``(A @ B) * scale_a * scale_b (+ bias)`` with fp32 scales, one per tensor ("tensor") or
      one per row of A and one per column of B ("row").

    ``precision`` applies to fp32 operands: "ieee" or "tf32". ``fast_accum`` applies to fp8 operands.
    """

    op: str
    M: int
    N: int
    K: int
    dtype: str = "fp16"
    out_dtype: str | None = None
    b_dtype: str | None = None
    precision: str = "ieee"
    layout_a: Layout = Layout()
    layout_b: Layout = Layout()
    layout_out: Layout = Layout()
    bias: Bias | None = None
    alpha: float = 1.0
    beta: float = 1.0
    scaling: str | None = None
    fast_accum: bool = False

    def __post_init__(self) -> None:
        if self.op not in ("mm", "addmm", "scaled_mm"):
            raise ValueError(f"operation {self.op!r} is unknown: use 'mm', 'addmm' or 'scaled_mm'")
        for name in ("M", "N", "K"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: sizes must be >= 0")
        for dtype in (self.dtype, self.a_dtype, self.second_dtype, self.output_dtype):
            if dtype not in DTYPES:
                raise ValueError(f"dtype {dtype!r} is unknown: use one of {', '.join(DTYPES)}")
        if self.precision not in ("ieee", "tf32"):
            raise ValueError(f"precision {self.precision!r} is unknown: use 'ieee' or 'tf32'")
        if (self.op == "scaled_mm") != (self.scaling is not None):
            raise ValueError(f"{self.op} with scaling={self.scaling!r}: scaled_mm needs 'tensor' or 'row', others None")
        if self.scaling not in (None, "tensor", "row"):
            raise ValueError(f"scaling {self.scaling!r} is unknown: use 'tensor' or 'row'")
        if (self.op == "addmm") and self.bias is None:
            raise ValueError("addmm needs a bias")
        if self.op == "mm" and self.bias is not None:
            raise ValueError("mm takes no bias: use addmm")
        if self.op != "addmm" and (self.alpha, self.beta) != (1.0, 1.0):
            raise ValueError(f"{self.op} takes no alpha or beta: use addmm")

    @property
    def a_dtype(self) -> str:
        return self.dtype

    @property
    def second_dtype(self) -> str:
        """dtype of B: that of A unless given."""
        return self.b_dtype or self.dtype

    @property
    def output_dtype(self) -> str:
        """dtype of the result: as given, else bf16 for a scaled mm of fp8 operands, else that of A."""
        return self.out_dtype or ("bf16" if self.dtype in FP8 else self.dtype)

    @property
    def has_product(self) -> bool:
        """Whether the product contributes: false for K == 0 and for alpha == 0 (which ignores even NaN)."""
        return self.K > 0 and self.alpha != 0

    @property
    def reads_bias(self) -> bool:
        """Whether the bias contributes: beta == 0 ignores it, NaN included."""
        return self.bias is not None and self.beta != 0

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        """The input tensors in the order a, b, scale_a, scale_b, bias (those that exist)."""
        shape_a, shape_b = (self.M, self.K), (self.K, self.N)
        found = [
            Operand("a", shape_a, self.layout_a.strides(shape_a), self.a_dtype, self.layout_a.offset),
            Operand("b", shape_b, self.layout_b.strides(shape_b), self.second_dtype, self.layout_b.offset),
        ]
        if self.scaling == "tensor":
            found += [Operand("scale_a", (), (), "fp32"), Operand("scale_b", (), (), "fp32")]
        elif self.scaling == "row":
            found += [
                Operand("scale_a", (self.M, 1), (1, 1), "fp32"),
                Operand("scale_b", (1, self.N), (self.N, 1), "fp32"),
            ]
        if self.bias is not None:
            found.append(self._bias_operand(self.bias))
        return tuple(found)

    def _bias_operand(self, bias: Bias) -> Operand:
        dtype = bias.dtype or (self.output_dtype if self.dtype in FP8 else self.dtype)
        layout = bias.layout
        if bias.kind == "n":
            return Operand("bias", (self.N,), (layout.step,), dtype, layout.offset)
        shape = {"1n": (1, self.N), "m1": (self.M, 1), "mn": (self.M, self.N)}[bias.kind]
        return Operand("bias", shape, layout.strides(shape), dtype, layout.offset)

    @functools.cached_property
    def output(self) -> Operand:
        shape = (self.M, self.N)
        return Operand("out", shape, self.layout_out.strides(shape), self.output_dtype, self.layout_out.offset)

    def operand(self, name: str) -> Operand:
        """The input or output called ``name``; KeyError if the problem has none of that name."""
        for operand in (*self.operands, self.output):
            if operand.name == name:
                return operand
        raise KeyError(f"{self.id} has no operand {name!r}: it has {[o.name for o in self.operands]} and 'out'")

    @functools.cached_property
    def id(self) -> str:
        """Stable text that names this problem, such as ``mm-168x248x88-bf16-row.col.row``."""
        dtype = self.dtype if self.b_dtype in (None, self.dtype) else f"{self.dtype}x{self.b_dtype}"
        if self.dtype == "fp32":
            dtype = self.precision if self.precision == "tf32" else "fp32"
        parts = [self.op, f"{self.M}x{self.N}x{self.K}", dtype]
        if self.out_dtype not in (None, Gemm.output_dtype.fget(dataclasses.replace(self, out_dtype=None))):  # type: ignore[attr-defined]
            parts.append(f"to.{self.out_dtype}")
        parts.append(".".join(layout.id for layout in (self.layout_a, self.layout_b, self.layout_out)))
        if self.scaling:
            parts.append(f"{self.scaling}{'.fast' if self.fast_accum else ''}")
        if self.bias is not None:
            text = f"bias.{self.bias.kind}"
            if self.bias.layout != Layout():
                text += f".{self.bias.layout.id}"
            if self.bias.dtype:
                text += f".{self.bias.dtype}"
            parts.append(text)
        if (self.alpha, self.beta) != (1.0, 1.0):
            parts.append(f"alpha{self.alpha:g}.beta{self.beta:g}")
        return "-".join(parts)


def mm(M: int, N: int, K: int, dtype: str = "fp16", **fields: object) -> Gemm:
    """``A @ B``; ``fields`` are those of :class:`Gemm`."""
    return Gemm("mm", M, N, K, dtype, **fields)  # type: ignore[arg-type]


def addmm(M: int, N: int, K: int, dtype: str = "fp16", **fields: object) -> Gemm:
    """``beta * bias + alpha * (A @ B)``; alpha is 2 and beta 0.5 unless given, so that no factor hides behind a 1."""
    return Gemm("addmm", M, N, K, dtype, **{"bias": Bias(), "alpha": 2.0, "beta": 0.5, **fields})  # type: ignore[arg-type]


def scaled_mm(M: int, N: int, K: int, dtype: str = "e4m3", **fields: object) -> Gemm:
    """``(A @ B) * scale_a * scale_b (+ bias)``; row-wise scales and a column-major B unless given."""
    return Gemm("scaled_mm", M, N, K, dtype, **{"scaling": "row", "layout_b": Layout("col"), **fields})  # type: ignore[arg-type]
