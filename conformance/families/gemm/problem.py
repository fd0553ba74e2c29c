"""Matrix products: one, scaled, summed in pairs, batched, of integers, with fused prologue and epilogue.

The grid of their kernels is here too.
"""

from __future__ import annotations

import dataclasses
import functools
from dataclasses import dataclass
from typing import Any

from conformance.families.family import Tiles, tiles_of
from conformance.problems import (
    DTYPES,
    EVERY_FP8,
    INTEGERS,
    PRECISIONS,
    RESULTS,
    SPLIT_PRECISIONS,
    Layout,
    Operand,
    Problem,
    check_choice,
)

OPERATIONS = (
    *("mm", "addmm", "scaled_mm", "mm_plus_mm", "bmm", "baddbmm", "int_mm", "mixed_mm", "fused_mm"),
    *("dual_mm", "mm_with_sums"),
)

#: The edge of a block that shares one scale.
SCALE_BLOCK = 128
#: Accepted kinds of scale blocks, of A and of B. "1x128": one scale for 128 k of one row of A, or of one column of B.
#: "128x128": one scale for 128 k of 128 rows or columns.
BLOCK_SCALINGS = ("1x128/1x128", "1x128/128x128", "128x128/1x128")


@dataclass(frozen=True)
class Bias:
    """The addend of an addmm, baddbmm, scaled mm or fused mm.

    ``kind``: "n" is a vector of N added to every row, "1n" the same as a 1xN matrix. "m1" is one value per row, "mn" a
    full matrix. A batch also has "b1n", one row per matrix, and "bmn", a matrix for each. A kind with fewer elements
    than the result is broadcast: its stride is 0 along the dimensions that it lacks.
    """

    kind: str = "n"
    dtype: str | None = None
    layout: Layout = Layout()

    def __post_init__(self) -> None:
        check_choice("bias kind", self.kind, ("n", "1n", "m1", "mn", "b1n", "bmn"))
        if self.layout.batch == "zero":
            raise ValueError(f"bias {self.kind!r} with batch 'zero': one bias for all matrices is of kind '1n' or 'mn'")


@dataclass(frozen=True)
class Fusion:
    """The steps of a fused mm: those on A before the product, and those on the product after it.

    ``prologue``: None, or one of

    * "cast": A is stored as ``stored`` and rounded to the problem's dtype;
    * "scale": row m of A is multiplied in fp32 by ``row_scale[m]`` and rounded to the dtype;
    * "scale-k": column k of A is multiplied in fp32 by ``k_scale[k]`` and rounded to the dtype;
    * "gather": row m of the product's A is row ``rows[m]`` of the stored matrix;
    * "scatter": row m of A makes row ``rows[m]`` of the result. ``rows`` is a permutation.

    ``epilogue``: steps that are applied to the fp32 sum in this order. They are "bias" (added), "relu", "gelu" (exact,
    by erf), "residual" (a matrix of the output's shape and dtype, added) and "dropout". The last makes elements with
    mask 0 zero and doubles the others.
    """

    prologue: str | None = None
    stored: str | None = None
    epilogue: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if self.prologue is not None:
            check_choice("prologue", self.prologue, ("cast", "scale", "scale-k", "gather", "scatter"))
        if (self.prologue == "cast") != (self.stored is not None):
            raise ValueError(f"prologue {self.prologue!r} with stored={self.stored!r}: 'cast' needs a dtype, no other")
        unknown = set(self.epilogue) - {"bias", "relu", "gelu", "residual", "dropout"}
        if unknown or len(set(self.epilogue)) != len(self.epilogue):
            raise ValueError(f"epilogue {self.epilogue}: use each of bias, relu, gelu, residual, dropout at most once")

    @property
    def id(self) -> str:
        prologue = {None: "", "cast": f"from.{self.stored}"}.get(self.prologue, self.prologue)
        return ".".join(part for part in (prologue, *self.epilogue) if part)


@dataclass(frozen=True)
class Gemm(Problem):
    """A product of matrices A[M,K] and B[K,N] into out[M,N], in one of these operations:

    * ``mm``: the product alone;
    * ``addmm``: ``beta * bias + alpha * (A @ B)``; beta 0 ignores the bias and alpha 0 the product, NaN included;
    * ``scaled_mm``: ``(A @ B) * scale_a * scale_b (+ bias)`` with fp32 scales. They are one per tensor ("tensor"), one
      per row of A and column of B ("row"), or one per block of each (:data:`BLOCK_SCALINGS`);
    * ``mm_plus_mm``: ``A @ B + C @ D``, all four with one K; C lies like A and D like B, with pitches of 16 elements
      more;
    * ``bmm``, ``baddbmm``: mm and addmm of ``batch`` matrices each;
    * ``int_mm``: int8 operands, int32 result (sums do not wrap as long as 2**14 * K stays below 2**31);
    * ``mixed_mm``: B holds int8 or uint8 (``b_dtype``), converted to A's dtype before it is multiplied;
    * ``fused_mm``: a product with a :class:`Fusion`;
    * ``dual_mm``: ``silu(A @ B) * (A @ D)``, where silu(x) is x / (1 + exp(-x)); D lies as that of mm_plus_mm;
    * ``mm_with_sums``: the product, and with it ``sums``, the sum of each row of A in fp32.

    ``precision`` applies to fp32 operands: "ieee", "tf32" or one of :data:`SPLIT_PRECISIONS`. ``fast_accum`` applies to
    fp8 operands.
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
    batch: int | None = None
    fusion: Fusion | None = None

    def __post_init__(self) -> None:
        check_choice("operation", self.op, OPERATIONS)
        for name in ("M", "N", "K", "batch"):
            if (getattr(self, name) or 0) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}: sizes must be >= 0")
        for dtype in (self.dtype, self.a_dtype, self.second_dtype):
            check_choice("dtype", dtype, DTYPES)
        check_choice("dtype of the result", self.output_dtype, RESULTS)
        check_choice("precision", self.precision, (*PRECISIONS, *SPLIT_PRECISIONS))
        self._check_operation()

    def _check_operation(self) -> None:
        """Raises ValueError where a field does not belong to the operation."""
        if (self.op == "scaled_mm") != (self.scaling is not None):
            raise ValueError(f"{self.op} with scaling={self.scaling!r}: scaled_mm needs 'tensor' or 'row', others None")
        if self.scaling is not None:
            check_choice("scaling", self.scaling, ("tensor", "row", *BLOCK_SCALINGS))
        fused_bias = self.fusion is not None and "bias" in self.fusion.epilogue
        if (self.op in ("addmm", "baddbmm") or fused_bias) and self.bias is None:
            raise ValueError(f"{self.op if not fused_bias else self.fusion} needs a bias")
        if self.bias is not None and self.op not in ("addmm", "baddbmm", "scaled_mm") and not fused_bias:
            raise ValueError(f"{self.op} takes no bias: use addmm")
        if self.bias is not None and self.bias.kind.startswith("b") and self.batch is None:
            raise ValueError(f"bias kind {self.bias.kind!r} is for a batch: use bmm's operations or another kind")
        if self.op not in ("addmm", "baddbmm") and (self.alpha, self.beta) != (1.0, 1.0):
            raise ValueError(f"{self.op} takes no alpha or beta: use addmm")
        if (self.op in ("bmm", "baddbmm")) != (self.batch is not None):
            raise ValueError(f"{self.op} with batch={self.batch}: bmm and baddbmm need a batch, others take none")
        if (self.op == "fused_mm") != (self.fusion is not None):
            raise ValueError(f"{self.op} with fusion={self.fusion}: fused_mm needs a Fusion, others take none")
        if (self.op == "int_mm") != (self.dtype == "int8"):
            raise ValueError(f"{self.op} of {self.dtype}: int_mm takes int8, other operations do not")
        if (self.op == "mixed_mm") != self.converts_b:
            raise ValueError(f"{self.op} with a B of {self.second_dtype}: mixed_mm takes int8 or uint8, others do not")

    @property
    def converts_b(self) -> bool:
        """True if B holds integers that are converted to A's floating-point dtype before they are multiplied."""
        return self.second_dtype in ("int8", "uint8") and self.dtype not in INTEGERS

    @property
    def a_dtype(self) -> str:
        """dtype in which A is stored: the problem's, unless a prologue casts it."""
        return (self.fusion.stored if self.fusion is not None else None) or self.dtype

    @property
    def second_dtype(self) -> str:
        """dtype of B: that of the problem unless given."""
        return self.b_dtype or self.dtype

    @property
    def output_dtype(self) -> str:
        """dtype of the result: as given, else int32 for int8 operands, bf16 for fp8 operands, else theirs."""
        return self.out_dtype or (
            "int32" if self.dtype == "int8" else "bf16" if self.dtype in EVERY_FP8 else self.dtype
        )

    @property
    def has_product(self) -> bool:
        """True if the product contributes: false for K == 0 and for alpha == 0 (which ignores even NaN)."""
        return self.K > 0 and self.alpha != 0

    @property
    def reads_bias(self) -> bool:
        """True if the bias contributes: beta == 0 ignores it, NaN included."""
        return self.bias is not None and self.beta != 0

    @property
    def dense(self) -> Gemm:
        """See :class:`Problem`. One matrix for the whole batch stays one: the values depend on that."""
        plain: dict[str, object] = {"layout_a": Layout(), "layout_b": Layout(), "layout_out": Layout()}
        for name in ("layout_a", "layout_b"):
            if getattr(self, name).batch == "zero":  # one matrix for all is a fact about the values too
                plain[name] = Layout(batch="zero")
        if self.bias is not None:
            plain["bias"] = dataclasses.replace(self.bias, layout=Layout())
        return dataclasses.replace(self, **plain)  # type: ignore[arg-type]

    @functools.cached_property
    def operands(self) -> tuple[Operand, ...]:
        """The input tensors in the order a, b, c, d, scale_a, scale_b, row_scale, k_scale, rows, bias, residual, mask
        (those that exist); with a batch, a and b are (batch, M, K) and (batch, K, N). A gathered a has 2 * M + 3
        rows."""
        lead = () if self.batch is None else (self.batch,)
        prologue = self.fusion.prologue if self.fusion is not None else None
        shape_a, shape_b = (*lead, 2 * self.M + 3 if prologue == "gather" else self.M, self.K), (*lead, self.K, self.N)
        operands = []
        for name in {"mm_plus_mm": "abcd", "dual_mm": "abd"}.get(self.op, "ab"):
            left = name in "ac"
            shape, layout = (shape_a, self.layout_a) if left else (shape_b, self.layout_b)
            if name in "cd":
                layout = dataclasses.replace(layout, pad=layout.pad + 16)
            dtype = self.a_dtype if left else self.second_dtype
            operands.append(layout.operand(name, shape, dtype))
        operands += self._scale_operands()
        if prologue == "scale":
            operands.append(Operand("row_scale", (self.M,), (1,), "fp32"))
        if prologue == "scale-k":
            operands.append(Operand("k_scale", (self.K,), (1,), "fp32"))
        if prologue in ("gather", "scatter"):
            operands.append(Operand("rows", (self.M,), (1,), "int32"))
        if self.bias is not None:
            operands.append(self._bias_operand(self.bias))
        # the rows of each are apart by a pitch of its own, which leaves the alignment of N as it is
        addends = (("residual", "residual", self.output_dtype, 16), ("dropout", "mask", "uint8", 32))
        for step, name, dtype, pad in addends:
            if self.fusion is not None and step in self.fusion.epilogue:
                operands.append(Operand(name, (self.M, self.N), (self.N + pad, 1), dtype))
        return tuple(operands)

    def _scale_operands(self) -> list[Operand]:
        if self.scaling is None:
            return []
        if self.scaling == "tensor":
            return [Operand("scale_a", (), (), "fp32"), Operand("scale_b", (), (), "fp32")]
        if self.scaling == "row":
            shape_a, shape_b = (self.M, 1), (1, self.N)
            return [Operand("scale_a", shape_a, (1, 1), "fp32"), Operand("scale_b", shape_b, (self.N, 1), "fp32")]
        blocks_k = -(-self.K // SCALE_BLOCK)
        lines = [
            extent if kind == "1x128" else -(-extent // SCALE_BLOCK)
            for extent, kind in zip((self.M, self.N), self.scaling.split("/"), strict=True)
        ]
        # scales of B are stored like B itself: the k-blocks of one column (or 128 columns) are neighbours
        return [
            Operand("scale_a", (lines[0], blocks_k), (max(blocks_k, 1), 1), "fp32"),
            Operand("scale_b", (blocks_k, lines[1]), (1, max(blocks_k, 1)), "fp32"),
        ]

    def _bias_operand(self, bias: Bias) -> Operand:
        dtype = bias.dtype or (self.output_dtype if self.dtype in EVERY_FP8 else self.dtype)
        layout = bias.layout
        if bias.kind == "n":
            return Operand("bias", (self.N,), (layout.step,), dtype, layout.offset)
        batch = self.batch or 1
        shapes: dict[str, tuple[int, ...]] = {
            "1n": (1, self.N),
            "m1": (self.M, 1),
            "mn": (self.M, self.N),
            "b1n": (batch, 1, self.N),
            "bmn": (batch, self.M, self.N),
        }
        shape = shapes[bias.kind]
        return layout.operand("bias", shape, dtype)

    @functools.cached_property
    def outputs(self) -> tuple[Operand, ...]:
        shape = (self.M, self.N) if self.batch is None else (self.batch, self.M, self.N)
        strides = self.layout_out.strides(shape)
        out = Operand("out", shape, strides, self.output_dtype, self.layout_out.offset)
        return (out, Operand("sums", (self.M,), (1,), "fp32")) if self.op == "mm_with_sums" else (out,)

    @functools.cached_property
    def id(self) -> str:
        """Stable text that names this problem, such as ``mm-168x248x88-bf16-row.col.row``."""
        dtype = self.precision if self.dtype == "fp32" and self.precision != "ieee" else self.dtype
        if self.b_dtype not in (None, self.dtype):
            dtype += f"x{self.b_dtype}"
        batch = "" if self.batch is None else f"{self.batch}x"
        parts = [self.op, f"{batch}{self.M}x{self.N}x{self.K}", dtype]
        if self.out_dtype not in (None, Gemm.output_dtype.fget(dataclasses.replace(self, out_dtype=None))):  # type: ignore[attr-defined]
            parts.append(f"to.{self.out_dtype}")
        parts.append(".".join(layout.id for layout in (self.layout_a, self.layout_b, self.layout_out)))
        if self.scaling:
            parts.append(f"{self.scaling.replace('/', '.')}{'.fast' if self.fast_accum else ''}")
        if self.fusion is not None:
            parts.append(self.fusion.id or "plain")
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
    """``beta * bias + alpha * (A @ B)``; alpha is 4 and beta -0.5 unless given. No product of the two, no power of one
    and no sum of two is the same as another, so that no fault hides."""
    return Gemm("addmm", M, N, K, dtype, **{"bias": Bias(), "alpha": 4.0, "beta": -0.5, **fields})  # type: ignore[arg-type]


def scaled_mm(M: int, N: int, K: int, dtype: str = "e4m3", **fields: object) -> Gemm:
    """``(A @ B) * scale_a * scale_b (+ bias)``; row-wise scales and a column-major B unless given."""
    return Gemm("scaled_mm", M, N, K, dtype, **{"scaling": "row", "layout_b": Layout("col"), **fields})  # type: ignore[arg-type]


def mm_plus_mm(M: int, N: int, K: int, dtype: str = "fp16", **fields: object) -> Gemm:
    """``A @ B + C @ D``."""
    return Gemm("mm_plus_mm", M, N, K, dtype, **fields)  # type: ignore[arg-type]


def bmm(M: int, N: int, K: int, dtype: str = "fp16", **fields: object) -> Gemm:
    """A batch of products; three of them unless ``batch`` is given."""
    return Gemm("bmm", M, N, K, dtype, **{"batch": 3, **fields})  # type: ignore[arg-type]


def baddbmm(M: int, N: int, K: int, dtype: str = "fp16", **fields: object) -> Gemm:
    """``beta * bias + alpha * (A @ B)`` for each of a batch; defaults as those of :func:`addmm` and :func:`bmm`."""
    plain = {"batch": 3, "bias": Bias("b1n"), "alpha": 4.0, "beta": -0.5}
    return Gemm("baddbmm", M, N, K, dtype, **{**plain, **fields})  # type: ignore[arg-type]


def int_mm(M: int, N: int, K: int, dtype: str = "int8", **fields: object) -> Gemm:
    """int8 operands, int32 result."""
    return Gemm("int_mm", M, N, K, dtype, **fields)  # type: ignore[arg-type]


def mixed_mm(M: int, N: int, K: int, dtype: str = "fp16", **fields: object) -> Gemm:
    """B holds int8 unless ``b_dtype`` says uint8."""
    return Gemm("mixed_mm", M, N, K, dtype, **{"b_dtype": "int8", **fields})  # type: ignore[arg-type]


def fused_mm(M: int, N: int, K: int, dtype: str = "fp16", **fields: object) -> Gemm:
    """A product with bias and relu fused behind it unless ``fusion`` is given."""
    plain = {"fusion": Fusion(epilogue=("bias", "relu")), "bias": Bias()}
    if "fusion" in fields:
        plain.pop("bias")
    return Gemm("fused_mm", M, N, K, dtype, **{**plain, **fields})  # type: ignore[arg-type]


def dual_mm(M: int, N: int, K: int, dtype: str = "fp16", **fields: object) -> Gemm:
    """``silu(A @ B) * (A @ D)``; ``fields`` are those of :class:`Gemm`."""
    return Gemm("dual_mm", M, N, K, dtype, **fields)  # type: ignore[arg-type]


def mm_with_sums(M: int, N: int, K: int, dtype: str = "fp16", **fields: object) -> Gemm:
    """``A @ B`` and the sums of A's rows; ``fields`` are those of :class:`Gemm`."""
    return Gemm("mm_with_sums", M, N, K, dtype, **fields)  # type: ignore[arg-type]


def tiles(problem: Gemm, config: Any) -> Tiles | None:
    """Returns the tiles of the output; sums of rows need one column of tiles even if there is no column."""
    columns = max(problem.N, 1) if len(problem.outputs) > 1 else problem.N
    return tiles_of(problem.M, columns, config, 1 if problem.batch is None else problem.batch)


def grid(kernel: Any, plan: Any, tiles: Tiles, free: int) -> tuple[int, ...] | None:
    """Returns one program for each tile, and for each part of K where a kernel splits K."""
    rows, columns, matrices = tiles
    if kernel.limits.splits_k:
        return (rows * columns, plan.variant.splits) if plan.variant.splits else None
    return (rows * columns * matrices,)
