"""Operations without memory and without waiting: each a function of arrays, made once from the operation's text.

Functions of NVIDIA's libdevice and AMD's OCML, which a kernel calls by name, are among them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from conformance.ttgir.formats import Type, decoded, encoded, rounded, size_of, type_of
from conformance.ttgir.text import Operation, split_outside

#: What an operation does with the values of its operands: one result, or a tuple of several.
Compute = Callable[..., Any]
#: Makes the names of the operands and the function of one operation.
Maker = Callable[[Operation], tuple[list[str], Compute]]

NAMES = re.compile(r"%[\w$.-]+(?:#\d+)?")
_ATTRIBUTES = re.compile(r"<?\{([^{}]*(?:\{[^{}]*\}[^{}]*)*)\}>?")


#: What reading a text raises if it has a form that no table here expects: a number is a word, an operand is missing.
MISREAD = (ArithmeticError, AttributeError, LookupError, TypeError, ValueError)


class UnknownOperation(Exception):
    """An operation, an attribute or a spelling that no table here has; the message names it."""


def operands(operation: Operation) -> list[str]:
    """The names of its operands in order: those before its types."""
    words = operation.words
    return NAMES.findall(words[: len(words) - len(operation.types)] if not operation.tail else words)


def attributes(operation: Operation) -> dict[str, str]:
    """Returns the attributes in the operation's braces as text; braces in its types are not its own."""
    words = operation.words
    match = _ATTRIBUTES.search(words if operation.tail else words[: len(words) - len(operation.types)])
    read: dict[str, str] = {}
    for part in split_outside(match[1] if match else ""):
        name, _, value = part.partition(" = ")
        read[name.strip('" ')] = value.split(" : ")[0].strip() if not value.startswith("array") else value
    return read


def result_type(operation: Operation) -> Type:
    """The type of its one result."""
    text = operation.types
    return type_of(text.rpartition("->")[2].strip() if "->" in text else split_outside(text)[-1])


def _unsigned(values: Any) -> Any:
    values = np.asarray(values)
    return values.astype(np.dtype(f"u{values.dtype.itemsize}"))


def _quotient(a: Any, b: Any) -> Any:
    """Integer quotient towards zero. A quotient by zero is undefined, and 0 here."""
    a, b = np.asarray(a), np.asarray(b)
    safe = np.where(b == 0, 1, b)
    low = np.abs(a.astype(np.int64)) // np.abs(safe.astype(np.int64))
    return np.where(b == 0, 0, low * np.sign(a.astype(np.int64)) * np.sign(safe.astype(np.int64))).astype(a.dtype)


def _ceiling(a: Any, b: Any) -> Any:
    a, b = np.asarray(a), np.asarray(b)
    return -(-a.astype(np.int64) // np.where(b == 0, 1, b)).astype(a.dtype)


def _floor(a: Any, b: Any) -> Any:
    a, b = np.asarray(a), np.asarray(b)
    return (a.astype(np.int64) // np.where(b == 0, 1, b)).astype(a.dtype)


def _high_half(a: Any, b: Any) -> Any:
    """Returns the upper half of an unsigned product."""
    return _halves(_unsigned(a), _unsigned(b))[1].astype(np.asarray(a).dtype)


def _halves(a: Any, b: Any) -> tuple[Any, Any]:
    """The lower and the upper half of a product of two integers, which are as signed as their arrays are."""
    kind = np.asarray(a).dtype
    wide = np.dtype(f"{kind.kind}8") if kind.itemsize < 8 else np.dtype(object)
    high = np.asarray(a).astype(wide) * np.asarray(b).astype(wide) >> wide.type(8 * kind.itemsize)
    return np.multiply(a, b), np.asarray(high).astype(kind)


_BINARY: dict[str, Compute] = {
    "addi": np.add, "subi": np.subtract, "muli": np.multiply, "divsi": _quotient, "ceildivsi": _ceiling,
    "floordivsi": _floor,
    "remsi": lambda a, b: np.asarray(a) - _quotient(a, b) * np.asarray(b),
    "divui": lambda a, b: (_unsigned(a) // np.where(_unsigned(b) == 0, 1, _unsigned(b))).astype(np.asarray(a).dtype),
    "remui": lambda a, b: (_unsigned(a) % np.where(_unsigned(b) == 0, 1, _unsigned(b))).astype(np.asarray(a).dtype),
    "andi": np.bitwise_and, "ori": np.bitwise_or, "xori": np.bitwise_xor,
    "maxsi": np.maximum, "minsi": np.minimum,
    "maxui": lambda a, b: np.where(_unsigned(a) > _unsigned(b), a, b),
    "minui": lambda a, b: np.where(_unsigned(a) < _unsigned(b), a, b),
    "shli": np.left_shift, "shrsi": np.right_shift,
    "shrui": lambda a, b: (_unsigned(a) >> _unsigned(b)).astype(np.asarray(a).dtype),
    "addf": np.add, "subf": np.subtract, "mulf": np.multiply, "divf": np.divide,
    "maxnumf": np.fmax, "minnumf": np.fmin, "maximumf": np.maximum, "minimumf": np.minimum,
    "remf": np.fmod, "precise_divf": np.divide, "approx_divf": np.divide, "mulhiui": _high_half,
}  # fmt: skip
_UNARY: dict[str, Compute] = {
    "arith.negf": np.negative, "math.exp2": np.exp2, "math.exp": np.exp, "math.log": np.log, "math.log2": np.log2,
    "math.sqrt": np.sqrt, "tt.precise_sqrt": np.sqrt, "math.rsqrt": lambda x: 1 / np.sqrt(x),
    "math.absf": np.abs, "math.absi": np.abs,
    "math.sin": np.sin, "math.cos": np.cos, "math.floor": np.floor, "math.ceil": np.ceil, "math.tanh": np.tanh,
    "math.erf": lambda x: torch.erf(torch.from_numpy(np.asarray(x))).numpy(),
}  # fmt: skip
_COMPARE: dict[str, Compute] = {
    "eq": np.equal, "ne": np.not_equal,
    "slt": np.less, "sle": np.less_equal, "sgt": np.greater, "sge": np.greater_equal,
    "ult": lambda a, b: _unsigned(a) < _unsigned(b), "ule": lambda a, b: _unsigned(a) <= _unsigned(b),
    "ugt": lambda a, b: _unsigned(a) > _unsigned(b), "uge": lambda a, b: _unsigned(a) >= _unsigned(b),
    "oeq": np.equal, "olt": np.less, "ole": np.less_equal, "ogt": np.greater, "oge": np.greater_equal,
    "one": lambda a, b: (a < b) | (a > b), "une": np.not_equal, "ueq": lambda a, b: ~((a < b) | (a > b)),
    "uno": lambda a, b: np.isnan(a) | np.isnan(b), "ord": lambda a, b: ~(np.isnan(a) | np.isnan(b)),
}  # fmt: skip


def _binary(operation: Operation) -> tuple[list[str], Compute]:
    function, kind = _BINARY[operation.name.partition(".")[2]], result_type(operation)
    return operands(operation), lambda a, b: rounded(function(a, b), kind.element)


def _unary(operation: Operation) -> tuple[list[str], Compute]:
    function, kind = _UNARY[operation.name], result_type(operation)
    return operands(operation), lambda a: rounded(function(a), kind.element)


def _compare(operation: Operation) -> tuple[list[str], Compute]:
    predicate = operation.words.split(",")[0].split()[0]
    if predicate not in _COMPARE:
        raise UnknownOperation(f"{operation.name} {predicate}")
    return operands(operation), _COMPARE[predicate]


def _constant(operation: Operation) -> tuple[list[str], Compute]:
    value, _, _ = operation.words.partition(" : ")
    kind = result_type(operation) if " : " in operation.words else Type("scalar", (), "i1")
    text = value.removeprefix("dense<").removesuffix(">").strip()
    if text in ("true", "false"):
        scalar: Any = text == "true"
    elif text.startswith("0x"):
        bits = np.array(int(text, 16), dtype=f"u{size_of(kind.element)}")
        scalar = decoded(bits, kind.element)
    else:
        scalar = float(text) if "." in text or "e" in text.lower() else int(text)
    held = np.broadcast_to(rounded(np.asarray(scalar), kind.element), kind.shape)
    return [], lambda: held


def _cast(operation: Operation) -> tuple[list[str], Compute]:
    source = type_of(operation.types.split(" to ")[0].split("->")[0].strip())
    target = type_of(operation.types.split(" to ")[-1].split("->")[-1].strip())
    name = operation.name
    if (match := re.search(r"rounding = (\w+)", operation.words)) and match[1] != "rtne":
        if name != "tt.fp_to_fp" or match[1] != "rtz":
            raise UnknownOperation(f"{name} {match[0]}")
        return operands(operation), lambda a: towards_zero(a, target.element)
    if name == "arith.fptoui":
        return operands(operation), lambda a: rounded(np.asarray(a).astype(np.uint64), target.element)
    if name in ("arith.extui", "arith.uitofp"):
        return operands(operation), lambda a: rounded(_unsigned(a) if source.element != "i1" else a, target.element)
    if name == "arith.extsi" and source.element == "i1":
        return operands(operation), lambda a: -rounded(a, target.element)
    if name == "arith.trunci" and target.element == "i1":
        return operands(operation), lambda a: (np.asarray(a) & 1).astype(np.bool_)
    if name in ("tt.bitcast", "arith.bitcast"):
        if source.pointee is not None:
            return operands(operation), lambda a: a
        return operands(operation), lambda a: decoded(encoded(a, source.element), target.element)
    return operands(operation), lambda a: rounded(a, target.element)


def towards_zero(values: Any, element: str) -> Any:
    """``values``, floats, rounded to the nearest value of ``element`` that is no further from zero."""
    values = np.asarray(values)
    near = rounded(values, element)
    bits = encoded(near, element)
    below = decoded(bits - bits.dtype.type(1), element)  # one step towards zero, whatever the sign
    return np.where(np.abs(near.astype(np.float64)) > np.abs(values.astype(np.float64)), below, near)


def _extended(operation: Operation) -> tuple[list[str], Compute]:
    """Returns a product with both its halves."""
    signed = "mulsi" in operation.name

    def compute(a: Any, b: Any) -> tuple[Any, Any]:
        kind = np.asarray(a).dtype
        low, high = _halves(a, b) if signed else _halves(_unsigned(a), _unsigned(b))
        return low.astype(kind), high.astype(kind)

    return operands(operation), compute


def _clamp(operation: Operation) -> tuple[list[str], Compute]:
    kind = result_type(operation)
    larger, smaller = (np.maximum, np.minimum) if "propagateNan = all" in operation.words else (np.fmax, np.fmin)
    return operands(operation), lambda x, low, high: rounded(smaller(larger(x, low), high), kind.element)


def _gather(operation: Operation) -> tuple[list[str], Compute]:
    axis = int(attributes(operation)["axis"])
    return operands(operation), lambda a, indices: np.take_along_axis(a, np.asarray(indices).astype(np.int64), axis)


def _histogram(operation: Operation) -> tuple[list[str], Compute]:
    kind = result_type(operation)

    def compute(values: Any, mask: Any = True) -> Any:
        kept = np.asarray(values)[np.broadcast_to(mask, np.shape(values))]
        outside = (kept < 0) | (kept >= kind.shape[0])  # undefined: not counted here
        return np.bincount(kept[~outside], minlength=kind.shape[0]).astype(kind.array)

    return operands(operation), compute


def _cat(operation: Operation) -> tuple[list[str], Compute]:
    return operands(operation), lambda a, b: np.concatenate([a, b])


def _splat(operation: Operation) -> tuple[list[str], Compute]:
    shape = result_type(operation).shape
    return operands(operation), lambda a: np.broadcast_to(np.asarray(a), shape)


def _broadcast(operation: Operation) -> tuple[list[str], Compute]:
    shape = result_type(operation).shape
    return operands(operation), lambda a: np.broadcast_to(a, shape)


def _expand(operation: Operation) -> tuple[list[str], Compute]:
    axis = int(attributes(operation)["axis"])
    return operands(operation), lambda a: np.expand_dims(a, axis)


def _range(operation: Operation) -> tuple[list[str], Compute]:
    ends = attributes(operation)
    values = np.arange(int(ends["start"]), int(ends["end"]), dtype=np.int32)
    return [], lambda: values


def _addptr(operation: Operation) -> tuple[list[str], Compute]:
    kind = result_type(Operation("", [], "", "", tail=": " + split_outside(operation.types)[0]))
    size = size_of(kind.pointee) if kind.pointee else 1
    return operands(operation), lambda base, offset: np.asarray(base) + np.asarray(offset).astype(np.int64) * size


def _same(operation: Operation) -> tuple[list[str], Compute]:
    return operands(operation)[:1], lambda a: a


def _reshape(operation: Operation) -> tuple[list[str], Compute]:
    # where it allows another order, the kernel's result may depend on none: this one is as good
    shape = result_type(operation).shape
    return operands(operation), lambda a: np.reshape(a, shape)


def order_of(operation: Operation) -> tuple[int, ...]:
    """Returns the permutation that its attribute ``order`` names."""
    return tuple(int(axis) for axis in re.search(r"order = array<i32: ([\d, ]+)>", operation.words)[1].split(","))  # type: ignore[index]


def _trans(operation: Operation) -> tuple[list[str], Compute]:
    order = order_of(operation)
    return operands(operation), lambda a: np.transpose(a, order)


def _join(operation: Operation) -> tuple[list[str], Compute]:
    return operands(operation), lambda a, b: np.stack([a, b], axis=-1)


def _split(operation: Operation) -> tuple[list[str], Compute]:
    return operands(operation), lambda a: (a[..., 0], a[..., 1])


def _unsplat(operation: Operation) -> tuple[list[str], Compute]:
    return operands(operation), lambda a: np.asarray(a).reshape(())


def _fma(operation: Operation) -> tuple[list[str], Compute]:
    kind = result_type(operation)
    return operands(operation), lambda a, b, c: rounded(
        np.asarray(a, np.float64) * np.asarray(b, np.float64) + np.asarray(c, np.float64), kind.element
    )


def product(a: Any, b: Any, kind: Type) -> Any:
    """A times B, summed in fp64 where the result is of floats, and exactly in integers."""
    if kind.element.startswith("i"):
        return np.matmul(np.asarray(a, np.int64), np.asarray(b, np.int64)).astype(kind.array)
    return np.matmul(np.asarray(a, np.float64), np.asarray(b, np.float64))


def accumulated(values: Any, start: Any, element: str) -> Any:
    """Returns a product, added to ``start`` unless that is None, as an array of ``element``."""
    return rounded(values if start is None else values + start, element)


def _dot(operation: Operation) -> tuple[list[str], Compute]:
    kind = result_type(operation)
    return operands(operation), lambda a, b, c: accumulated(product(a, b, kind), c, kind.element)


def _round_tf32(operation: Operation) -> tuple[list[str], Compute]:
    if "cvt.rna.tf32.f32" not in operation.words:
        raise UnknownOperation("tt.elementwise_inline_asm of another text than cvt.rna.tf32.f32")

    def convert(values: Any) -> Any:
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32)
        finite = (bits & 0x7F800000) != 0x7F800000
        nearest = ((bits + np.uint32(0x1000)) & np.uint32(0xFFFFE000)).astype(np.uint32)
        return np.where(finite, nearest, bits).astype(np.uint32).view(np.float32).reshape(np.shape(values))

    words = operation.words[: len(operation.words) - len(operation.types)]
    return NAMES.findall(words.rpartition("}")[2]), convert


def _by_torch(function: Callable[[torch.Tensor], torch.Tensor]) -> Compute:
    return lambda x: function(torch.from_numpy(np.array(x))).numpy()


def _half_away(x: Any) -> Any:
    """The nearest integer; of two, the one that is further from zero."""
    return np.copysign(np.floor(np.abs(x) + np.asarray(0.5, np.asarray(x).dtype)), x)


#: By the name that both libraries have for it, without prefix and suffix.
_FUNCTIONS: dict[str, Compute] = {
    "acos": np.arccos, "acosh": np.arccosh, "asin": np.arcsin, "asinh": np.arcsinh, "atan": np.arctan,
    "atan2": np.arctan2, "atanh": np.arctanh, "cbrt": np.cbrt, "ceil": np.ceil, "copysign": np.copysign, "cos": np.cos,
    "cosh": np.cosh, "erf": _by_torch(torch.erf), "erfc": _by_torch(torch.erfc), "exp": np.exp, "exp2": np.exp2,
    "exp10": lambda x: np.power(np.asarray(10, np.asarray(x).dtype), x), "expm1": np.expm1, "fabs": np.abs,
    "floor": np.floor, "fma": lambda a, b, c: np.asarray(a, np.float64) * b + c, "fmax": np.fmax, "fmin": np.fmin,
    "fmod": np.fmod, "hypot": np.hypot, "isinf": np.isinf, "isnan": np.isnan, "lgamma": _by_torch(torch.lgamma),
    "log": np.log, "log10": np.log10, "log1p": np.log1p, "log2": np.log2, "nearbyint": np.rint, "pow": np.power,
    "powi": np.power,
    "rint": np.rint, "round": _half_away, "rsqrt": lambda x: 1 / np.sqrt(x), "signbit": np.signbit, "sin": np.sin,
    "sinh": np.sinh, "sqrt": np.sqrt, "tan": np.tan, "tanh": np.tanh, "trunc": np.trunc,
}  # fmt: skip
#: The spellings of a function: __nv_tanhf of fp32 and __nv_tanh of fp64, __ocml_tanh_f32, quick forms of fp32.
_SYMBOL = re.compile(r"__(?:nv_(?:fast_)?|ocml_(?:native_)?)(\w+?)(?:_f(?:16|32|64))?$")


def _external(operation: Operation) -> tuple[list[str], Compute]:
    symbol = attributes(operation)["symbol"].strip('"')
    match = _SYMBOL.match(symbol)
    name = match[1] if match else ""
    function = _FUNCTIONS.get(name) or _FUNCTIONS.get(name.removesuffix("d").removesuffix("f"))
    if function is None:
        raise UnknownOperation(f"{operation.name} {symbol}")
    kind = result_type(operation)
    return operands(operation), lambda *values: rounded(function(*values), kind.element)


#: How each operation without memory is made.
MAKERS: dict[str, Maker] = {
    **{f"arith.{name}": _binary for name in _BINARY},
    **dict.fromkeys(("tt.precise_divf", "tt.approx_divf", "tt.mulhiui"), _binary),
    **dict.fromkeys(_UNARY, _unary),
    **{f"arith.{name}": _cast for name in ("extf", "truncf", "extsi", "extui", "trunci", "sitofp", "uitofp", "fptosi")},
    **{f"arith.{name}": _cast for name in ("fptoui", "index_cast", "index_castui", "bitcast")},
    **dict.fromkeys(("arith.mului_extended", "arith.mulsi_extended"), _extended),
    "arith.cmpi": _compare, "arith.cmpf": _compare, "arith.constant": _constant,
    "tt.fp_to_fp": _cast, "tt.bitcast": _cast, "tt.splat": _splat, "tt.broadcast": _broadcast,
    "tt.expand_dims": _expand, "tt.make_range": _range, "tt.addptr": _addptr, "tt.reshape": _reshape,
    "tt.trans": _trans, "tt.join": _join, "tt.split": _split, "tt.unsplat": _unsplat, "math.fma": _fma,
    "tt.dot": _dot, "tt.elementwise_inline_asm": _round_tf32,
    "tt.clampf": _clamp, "tt.gather": _gather, "tt.histogram": _histogram, "tt.cat": _cat,
    "tt.int_to_ptr": _same, "tt.ptr_to_int": _same,
    "tt.extern_elementwise": _external, "ttg.convert_layout": _same, "amdg.in_thread_transpose": _same,
}  # fmt: skip
