"""The tensors of a problem: dtypes, and how an operand lies in memory."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import torch

DTYPES: dict[str, torch.dtype] = {
    "fp64": torch.float64,
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "e4m3": torch.float8_e4m3fn,
    "e5m2": torch.float8_e5m2,
    "e4m3fnuz": torch.float8_e4m3fnuz,
    "e5m2fnuz": torch.float8_e5m2fnuz,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "int32": torch.int32,
}
#: How fp32 operands are multiplied.
PRECISIONS = ("ieee", "tf32")
#: Further ways, of which only products of two matrices know. Each operand is split into parts of a narrower format, and
#: three or six products of parts are summed.
SPLIT_PRECISIONS = ("tf32x3", "bf16x3", "bf16x6")
#: The 8-bit floats of the OCP specification.
FP8 = ("e4m3", "e5m2")
#: Those of AMD's CDNA3: the exponent's bias is one more, there is no infinity, and the code of -0 is the only NaN.
FNUZ = ("e4m3fnuz", "e5m2fnuz")
EVERY_FP8 = (*FP8, *FNUZ)
INTEGERS = ("int8", "uint8", "int32")
#: dtypes of results. Devices differ in what a value past the range of FNUZ becomes, so nothing is rounded to it.
RESULTS = tuple(name for name in DTYPES if name not in FNUZ)

#: Every guarded allocation starts at a multiple of this many bytes, so ``Layout.offset`` alone decides alignment.
BASE_ALIGNMENT = 256


def check_choice(what: str, choice: str, choices: Iterable[str]) -> None:
    """Raises ValueError if ``choice``, which is called ``what``, is none of ``choices``."""
    if choice not in choices:
        raise ValueError(f"{what} {choice!r} is unknown: use one of {', '.join(choices)}")


def itemsize(dtype: str) -> int:
    """Bytes of one element of ``dtype`` (a key of :data:`DTYPES`).

    >>> itemsize("bf16"), itemsize("fp32"), itemsize("e4m3")
    (2, 4, 1)
    """
    return DTYPES[dtype].itemsize


@dataclass(frozen=True)
class Layout:
    """The layout of a matrix, or a batch of matrices, in memory.

    ``order`` names the dimension of a matrix with the smaller stride ("row": the last, "col": the first). ``pad``
    elements are added to the leading dimension beyond the extent. ``step`` is the stride of the inner dimension (1
    unless the operand is a strided view). ``offset`` shifts the first element, in elements, from a 256-byte boundary.
    ``batch`` says how the matrices of a batch follow each other. They are "outer" (one after the other, ``batch_pad``
    elements apart), "inner" (interleaved: the batch has the smallest stride) or "zero" (one matrix for all).
    """

    order: str = "row"
    pad: int = 0
    step: int = 1
    offset: int = 0
    batch: str = "outer"
    batch_pad: int = 0

    def __post_init__(self) -> None:
        check_choice("layout order", self.order, ("row", "col"))
        check_choice("layout batch", self.batch, ("outer", "inner", "zero"))
        if min(self.pad, self.offset, self.batch_pad) < 0 or self.step < 1:
            raise ValueError(f"{self}: pad, offset and batch_pad must be >= 0 and step >= 1")

    def strides(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """Strides in elements for a matrix (rows, columns) or a batch of them (batch, rows, columns); extents of 0 are
        laid out as if they were 1."""
        if len(shape) not in (2, 3):
            raise ValueError(f"a layout is for 2 or 3 dimensions, the shape is {shape}")
        rows, cols = (max(extent, 1) for extent in shape[-2:])
        if self.order == "row":
            inner = (cols * self.step + self.pad, self.step)
            plane = rows * inner[0]
        else:
            inner = (self.step, rows * self.step + self.pad)
            plane = cols * inner[1]
        if len(shape) == 2:
            return inner
        if self.batch == "zero":
            return (0, *inner)
        if self.batch == "inner":
            count = max(shape[0], 1)
            return (1, inner[0] * count, inner[1] * count)
        return (plane + self.batch_pad, *inner)

    @property
    def id(self) -> str:
        """Stable text such as ``col*2+8@1``: the order, and each other field that is not its default."""
        text = self.order
        if self.step != 1:
            text += f"*{self.step}"
        if self.pad:
            text += f"+{self.pad}"
        if self.batch != "outer":
            text += f"~{self.batch}"
        if self.batch_pad:
            text += f"^{self.batch_pad}"
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
