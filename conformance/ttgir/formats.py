"""Element types of TTGIR: what an array of each holds here, and the bits that lie in memory."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import torch

#: What an array holds by element type. Floats that NumPy lacks are fp32 values, rounded to what the type can hold.
_ARRAYS = {
    "i1": np.bool_, "i8": np.int8, "i16": np.int16, "i32": np.int32, "i64": np.int64, "index": np.int64,
    "f16": np.float16, "f32": np.float32, "f64": np.float64,
}  # fmt: skip
_UNSIGNED = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
#: Formats that torch rounds to.
_TORCH = {
    "bf16": torch.bfloat16, "f8E4M3FN": torch.float8_e4m3fn, "f8E5M2": torch.float8_e5m2,
    "f8E4M3FNUZ": torch.float8_e4m3fnuz, "f8E5M2FNUZ": torch.float8_e5m2fnuz,
}  # fmt: skip
_SIZES = {"bf16": 2, **{name: 1 for name in _TORCH if name != "bf16"}}
_SHAPE = re.compile(r"^((?:\d+x)*)(.*)$", re.DOTALL)


class UnknownType(ValueError):
    """A type that is in no table here; the message names it."""


class Type:
    """One type: ``shape`` (empty for a scalar), ``element`` as TTGIR spells it, ``layout`` as text.

    ``kind`` is "tensor", "memdesc", "tensordesc", "pointer" or "scalar". A pointer's element is what it points to; an
    array of pointers holds addresses.
    """

    def __init__(self, kind: str, shape: tuple[int, ...], element: str, layout: str = "") -> None:
        self.kind, self.shape, self.element, self.layout = kind, shape, element, layout

    @property
    def pointee(self) -> str | None:
        return self.element[8:-1].split(",")[0].strip() if self.element.startswith("!tt.ptr<") else None

    @property
    def array(self) -> type:
        """NumPy's type of an array of it. Raises UnknownType."""
        if self.pointee is not None:
            return np.int64
        return array_type(self.element)

    def __repr__(self) -> str:
        return f"{self.kind}<{'x'.join(map(str, self.shape))} {self.element}>"


def array_type(element: str) -> type:
    if element in _TORCH:
        return np.float32
    if element not in _ARRAYS:
        raise UnknownType(element)
    return _ARRAYS[element]


_KNOWN: dict[str, Type] = {}


def type_of(text: str) -> Type:
    """Returns the type that ``text`` spells, such as ``tensor<64x32xbf16, #blocked>``.

    >>> type_of("tensor<64x32xbf16, #blocked>")
    tensor<64x32 bf16>
    """
    if text not in _KNOWN:
        _KNOWN[text] = _type_of(text.strip())
    return _KNOWN[text]


def _type_of(text: str) -> Type:
    for kind, prefix in (("tensor", "tensor<"), ("memdesc", "!ttg.memdesc<"), ("memdesc", "<")):
        if text.startswith(prefix):
            inside = text[len(prefix) : text.rindex(">")]
            sizes, rest = _SHAPE.match(inside).groups()  # type: ignore[union-attr]
            element, _, layout = _first(rest)
            return Type(kind, tuple(int(size) for size in sizes.split("x")[:-1]), element, layout)
    if text.startswith("!tt.tensordesc<"):
        inside = text[len("!tt.tensordesc<") : -1].removeprefix("tensor<").removesuffix(">")
        sizes, rest = _SHAPE.match(inside).groups()  # type: ignore[union-attr]
        element, _, layout = _first(rest)
        element = re.sub(r"^[su]i(\d+)$", r"i\1", element)
        return Type("tensordesc", tuple(int(size) for size in sizes.split("x")[:-1]), element, layout)
    if text.startswith("!tt.ptr<"):
        return Type("pointer", (), text)
    return Type("scalar", (), text)


def _first(text: str) -> tuple[str, str, str]:
    depth = 0
    for index, char in enumerate(text):
        depth += (char in "<{(") - (char in ">})")
        if char == "," and not depth:
            return text[:index].strip(), ",", text[index + 1 :].strip()
    return text.strip(), "", ""


def size_of(element: str) -> int:
    """Bytes of one element.

    >>> size_of("bf16"), size_of("f32")
    (2, 4)
    """
    if element.startswith("!tt.ptr<"):
        return 8
    if element in _SIZES:
        return _SIZES[element]
    return int(np.dtype(array_type(element)).itemsize)


def bits_type(element: str) -> type:
    """NumPy's unsigned integer that holds the bits of one element."""
    return _UNSIGNED[size_of(element)]


def rounded(values: Any, element: str) -> Any:
    """``values`` as an array of ``element``: floats to nearest even, integers wrapped."""
    if element in _TORCH:
        wide = torch.from_numpy(np.ascontiguousarray(np.asarray(values, dtype=np.float32)))
        return wide.to(_TORCH[element]).float().numpy().reshape(np.shape(values))  # that of a scalar became one of (1,)
    return np.asarray(values).astype(array_type(element))


def encoded(values: Any, element: str) -> Any:
    """Returns the bits of ``values`` in memory."""
    values = np.asarray(values)
    if element in _TORCH:
        wide = torch.from_numpy(np.ascontiguousarray(values.astype(np.float32)))
        narrow = wide.to(_TORCH[element]).view(torch.int16 if element == "bf16" else torch.int8)
        return narrow.numpy().view(bits_type(element)).reshape(values.shape)
    if element == "i1":
        return values.astype(np.uint8)
    kind = np.int64 if element.startswith("!tt.ptr<") else array_type(element)
    return np.ascontiguousarray(values.astype(kind)).view(bits_type(element)).reshape(values.shape)


def decoded(bits: Any, element: str) -> Any:
    """Returns the values that ``bits`` mean."""
    shape = np.shape(bits)
    bits = np.ascontiguousarray(bits)  # of a scalar it makes an array of one
    if element == "bf16":
        return (bits.astype(np.uint32) << 16).view(np.float32).reshape(shape)
    if element in _TORCH:
        return torch.from_numpy(bits.view(np.int8)).view(_TORCH[element]).float().numpy().reshape(shape)
    if element == "i1":
        return bits.astype(np.bool_)
    kind = np.int64 if element.startswith("!tt.ptr<") else array_type(element)
    return bits.view(kind).reshape(shape)
