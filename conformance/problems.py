"""Problems: what is computed, with the operands, dtypes and layouts; and the reference of a problem by its class.

A problem says nothing about how it is computed: no tiles, no target, no kernel. It is hashable, picklable and
has a stable text id, so that records of two runs can be joined on it. The families register their references here.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

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

    def operand(self, name: str, shape: tuple[int, ...], dtype: str) -> Operand:
        """Returns the tensor of ``shape`` that is laid out so."""
        return Operand(name, shape, self.strides(shape), dtype, self.offset)

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


class Problem(abc.ABC):
    """A computation, without anything about how it is done. Hashable and picklable."""

    #: the operation, such as "mm" or "conv"
    op: str
    #: dtype of the operands, a key of ``DTYPES``
    dtype: str
    #: how fp32 operands are multiplied: "ieee" or "tf32"; products of two matrices know more
    precision: str = "ieee"

    @property
    @abc.abstractmethod
    def operands(self) -> tuple[Operand, ...]:
        """The input tensors."""

    @property
    @abc.abstractmethod
    def outputs(self) -> tuple[Operand, ...]:
        """The output tensors, the operation's main result first."""

    @property
    @abc.abstractmethod
    def id(self) -> str:
        """Stable text that names this problem."""

    @property
    def dense(self) -> Problem:
        """Returns the same problem without its layouts, on which the values of a fill do not depend: each field
        ``layout_...`` has the plainest. A problem that is laid out in another way overrides this."""
        layouts = {name: Layout() for name in vars(self) if name.startswith("layout_")}
        return dataclasses.replace(self, **layouts)  # type: ignore[type-var]

    @property
    def fixed_values(self) -> Mapping[str, Sequence[int]]:
        """The operands that have one value only, whatever the fill."""
        return {}

    @property
    def output(self) -> Operand:
        """The first output."""
        return self.outputs[0]

    @property
    def output_dtype(self) -> str:
        """dtype of the first output."""
        return self.output.dtype

    @property
    def tensors(self) -> tuple[Operand, ...]:
        """Operands and outputs."""
        return (*self.operands, *self.outputs)

    def operand(self, name: str) -> Operand:
        """Returns the input or output called ``name``; KeyError if the problem has none of that name."""
        for operand in self.tensors:
            if operand.name == name:
                return operand
        raise KeyError(f"{self.id} has no operand {name!r}: it has {[operand.name for operand in self.tensors]}")


#: Where fp64 values are computed; what None means is up to the function that takes it.
Device = torch.device | str | None


@functools.singledispatch
def value(problem: Problem, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """The first output of ``problem`` in fp64 and in its shape, before it is rounded to the output dtype.

    ``inputs`` maps operand names to tensors of the operands' shapes. ``device`` is where the value is computed and
    where it lives (None: where the first operand lives; for attention the CPU). Raises KeyError for a missing operand,
    ValueError for one of another shape, TypeError for a family without a reference.
    """
    raise TypeError(_unknown(problem, "reference value"))


@functools.singledispatch
def magnitude(problem: Problem, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """The sum of the products' absolute values, in fp64 and in the shape of the first output, without the epilogue.

    Arguments and errors are those of :func:`value`. Attention has none: its bounds follow every step of the softmax.
    """
    raise TypeError(_unknown(problem, "magnitude"))


def _unknown(problem: Problem, what: str) -> str:
    name = type(problem).__name__
    return f"{problem.id} is a {name}, for which there is no {what}: register one for {name}"


def in_fp64(inputs: Mapping[str, Tensor], names: str, device: Device) -> list[Tensor]:
    """The inputs with these names, of one letter each, in fp64 on ``device`` (None: where the first of them lives)."""
    target = inputs[names[0]].device if device is None else torch.device(device)
    return [inputs[name].to(target).double() for name in names]


def check_inputs(problem: Problem, inputs: Mapping[str, Tensor]) -> None:
    """Raises KeyError if an operand of ``problem`` is missing in ``inputs``, ValueError if one has another shape."""
    for operand in problem.operands:
        if operand.name not in inputs:
            raise KeyError(f"{problem.id} needs the input {operand.name!r}: given are {sorted(inputs)}")
        shape = tuple(inputs[operand.name].shape)
        if shape != operand.shape:
            raise ValueError(f"{problem.id}: input {operand.name!r} has shape {shape}, it must have {operand.shape}")
