"""Arithmetic of the formats that NumPy has not, over the bits in which the interpreter keeps them, and fused products.

Each function rounds once, as one instruction of a device does.

``tl.dot_scaled``, which the interpreter has not or has with other scales, is here too. Its operands are decoded to
fp32, which holds codes times scales exactly, and multiplied in fp32, as the interpreter's other products are.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import torch

from conformance.execution.interpreter.savings import Replacements

#: Formats whose elements the interpreter keeps as bits: Triton's name -> (torch dtype, NumPy dtype of the bits).
STORED_AS_BITS = {
    "bf16": (torch.bfloat16, np.uint16),
    "fp8e4nv": (torch.float8_e4m3fn, np.uint8),
    "fp8e5": (torch.float8_e5m2, np.uint8),
}
#: The same of formats to which only what fits is rounded: what AMD's devices make of an overflow depends on the device.
WITHIN_RANGE = {
    "fp8e4b8": (torch.float8_e4m3fnuz, np.uint8),
    "fp8e5b16": (torch.float8_e5m2fnuz, np.uint8),
}
NUMPY_FLOATS = {"fp16": np.float16, "fp32": np.float32, "fp64": np.float64}


def widen(data: np.ndarray, name: str) -> np.ndarray:
    """Values of an array that holds the bits of format ``name``, as fp32."""
    dtype, stored = (STORED_AS_BITS | WITHIN_RANGE)[name]
    bits = torch.from_numpy(np.ascontiguousarray(data).view(np.int16 if stored is np.uint16 else np.uint8))
    return bits.view(dtype).to(torch.float32).numpy().reshape(data.shape)


def as_numbers(data: np.ndarray, name: str) -> np.ndarray:
    """``data`` of Triton's type ``name`` in a NumPy dtype that has its values."""
    return widen(data, name) if name in STORED_AS_BITS or name in WITHIN_RANGE else data


def narrow(values: np.ndarray, name: str, *, towards_zero: bool = False) -> np.ndarray:
    """Returns ``values``, of any number dtype, in format ``name``, a key of STORED_AS_BITS or of NUMPY_FLOATS. Values
    that :func:`fits` may also have a key of WITHIN_RANGE, and then the result holds its bits. They are rounded once, to
    nearest even or cut. fp8 saturates, as the instruction of NVIDIA's devices does; only the infinities of e5m2 stay
    when rounded towards zero, which they do by cutting fp16."""
    if name == "fp64":
        return values.astype(np.float64)
    if name == "fp32" or (name == "fp16" and not towards_zero and values.dtype.kind == "f"):
        exact, rounded = values, values.astype(NUMPY_FLOATS[name])
    else:
        no_wider = values.dtype.kind == "f" and values.itemsize <= 4
        exact = values.astype(np.float32, copy=False) if no_wider else _to_odd_fp32(values)
        rounded = exact.astype(np.float16) if name == "fp16" else _nearest(exact, name, cut=towards_zero)
    if towards_zero:
        further = np.abs(as_numbers(rounded, name)) > np.abs(exact)
        bits = rounded.view(np.dtype(f"u{rounded.itemsize}"))
        rounded = (bits - further.astype(bits.dtype)).view(rounded.dtype)
    return rounded


def fits(values: np.ndarray, name: str) -> bool:
    """True if no number among ``values`` lies past the largest of format ``name``, a key of WITHIN_RANGE."""
    return not bool((np.abs(values.astype(np.float64)) > torch.finfo(WITHIN_RANGE[name][0]).max).any())


def _nearest(values: np.ndarray, name: str, *, cut: bool) -> np.ndarray:
    """The bits of fp32 ``values`` rounded to nearest even in format ``name``; e5m2 that is ``cut`` later overflows."""
    dtype, stored = (STORED_AS_BITS | WITHIN_RANGE)[name]
    tensor = torch.from_numpy(np.ascontiguousarray(values))
    if stored is np.uint8 and not (cut and name == "fp8e5"):
        largest = torch.finfo(dtype).max
        tensor = tensor.clamp(-largest, largest)  # NaN stays NaN
    bits = tensor.to(dtype).view(torch.int16 if stored is np.uint16 else torch.uint8)
    return bits.numpy().view(stored).reshape(values.shape)


def _to_odd_fp32(values: np.ndarray) -> np.ndarray:
    """Returns ``values`` in fp32, rounded to odd: a value between two neighbours becomes the one with an odd last bit.
    To round the result again to 22 bits or fewer gives what one rounding would."""
    if values.dtype.kind in "iu" and values.itemsize == 8:
        cut = values & ~values.dtype.type(0xFFF)  # fp64 has 53 bits
        values = np.where(
            np.abs(values.astype(np.float64)) < 2.0**53, values, cut | (0x1000 * (values != cut)).astype(cut.dtype)
        )
    exact = values.astype(np.float64)
    rounded = exact.astype(np.float32)
    return _odd(rounded, np.where(np.isfinite(exact), np.abs(exact) - np.abs(rounded.astype(np.float64)), 0))


def _odd(rounded: np.ndarray, missing: np.ndarray) -> np.ndarray:
    """``rounded`` to nearest, rounded to odd instead: ``missing`` has the sign of what its magnitude lacks."""
    bits = rounded.view(np.dtype(f"i{rounded.itemsize}"))
    step = np.sign(missing).astype(bits.dtype)
    return np.where(bits & 1, bits, bits + step).view(rounded.dtype)


def fused(x: np.ndarray, y: np.ndarray, z: np.ndarray, name: str) -> np.ndarray:
    """x * y + z in format ``name``, as the interpreter keeps it, rounded once to nearest even."""
    if name == "fp64":
        return np.asarray(_fused_fp64(x, y, z))
    product, addend = (as_numbers(factor, name).astype(np.float64) for factor in (x, z))
    product = product * as_numbers(y, name).astype(np.float64)  # exact: 48 bits
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    exact = np.where(np.isfinite(total), error * np.sign(total), 0)
    return narrow(_odd(total, exact), name)


def _one_fused_fp64(x: float, y: float, z: float) -> float:
    if not all(map(math.isfinite, (x, y, z))):
        return float(np.float64(x) * np.float64(y) + np.float64(z))
    total = Fraction(x) * Fraction(y) + Fraction(z)
    try:
        return float(total) if total else x * y + z  # the sign of a zero
    except OverflowError:
        return math.copysign(math.inf, total)


_fused_fp64 = np.vectorize(_one_fused_fp64, otypes=[np.float64])


def maximum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The larger, NaN if one is NaN; +0 is larger than -0."""
    return _signed_zeros(np.maximum(x, y), x, y)


def minimum(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """The smaller, NaN if one is NaN; -0 is smaller than +0."""
    return _signed_zeros(np.minimum(x, y), x, y, smaller=True)


def larger_number(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """As :func:`maximum`, but of NaN and a number the number."""
    return _signed_zeros(np.fmax(x, y), x, y)


def smaller_number(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """As :func:`minimum`, but of NaN and a number the number."""
    return _signed_zeros(np.fmin(x, y), x, y, smaller=True)


def _signed_zeros(result: np.ndarray, x: np.ndarray, y: np.ndarray, *, smaller: bool = False) -> np.ndarray:
    """Returns ``result`` with the right zero where ``x`` and ``y`` are zeros of unlike signs: +0, or -0 if ``smaller``.
    NumPy takes either."""
    both = (x == 0) & (y == 0)
    if not both.any():
        return result
    return np.where(both, -((-x) + (-y)) if smaller else x + y, result)


def halved(values: np.ndarray, axis: int, name: str) -> np.ndarray:
    """The sums along ``axis``, whose length is a power of two and becomes 1, of numbers in format ``name``. Each sum of
    two is rounded, as on a device, which adds in this format; the order is one of those that a device may choose."""
    while values.shape[axis] > 1:
        first, second = np.split(values, 2, axis)
        values = as_numbers(narrow(first + second, name), name)
    return values


def accumulated(operation: np.ufunc, values: np.ndarray, axis: int, name: str) -> np.ndarray:
    """Returns the running results of ``operation`` along ``axis``, each step rounded to ``name``."""
    results = np.moveaxis(values, axis, 0).copy()
    for index in range(1, len(results)):
        results[index] = as_numbers(narrow(operation(results[index - 1], results[index]), name), name)
    return np.moveaxis(results, 0, axis)


#: The values of e2m1's sixteen codes.
_FOUR_BITS = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], np.float32)


class _FormatName(str):
    """The name of a format that is a text and, as Triton up to 3.7 asks for, a compile-time constant."""

    @property
    def value(self) -> str:
        return str(self)


def exponents_as_numbers(scales: np.ndarray) -> np.ndarray:
    """Scale bytes (E8M0) as fp32: 2**(byte - 127), and NaN for 255."""
    codes = scales.view(np.uint8)
    numbers = np.ldexp(np.float32(1), codes.astype(np.int32) - 127)
    return np.asarray(np.where(codes == 255, np.float32(np.nan), numbers), np.float32)


def four_bit_numbers(pairs: np.ndarray, axis: int) -> np.ndarray:
    """Returns the values of pairs of four-bit codes, twice as many along ``axis``, the lower half of each byte
    first."""
    codes = pairs.view(np.uint8)
    both = np.stack([codes & 15, codes >> 4], axis=axis % codes.ndim + 1)
    shape = list(codes.shape)
    shape[axis] *= 2
    return np.asarray(_FOUR_BITS[both].reshape(shape))


def scaled_operand(codes: Any, scale: Any, axis: int, packed_axis: int) -> np.ndarray:
    """Returns codes times scales in fp32. k is the ``axis`` of the codes and the last one of the scales; ``scale`` is
    None for codes without one. Integers are pairs of four-bit codes, which lie side by side along ``packed_axis``."""
    values = four_bit_numbers(codes.data, packed_axis) if codes.dtype.scalar.is_int() else _as_fp32(codes)
    if scale is None:
        return values
    of_blocks = exponents_as_numbers(scale.data) if scale.dtype.scalar.is_int() else _as_fp32(scale)
    each = np.repeat(of_blocks, values.shape[axis] // of_blocks.shape[-1], axis=-1)
    return np.asarray(values * (each if axis == -1 else np.swapaxes(each, -1, -2)))


def _as_fp32(tensor: Any) -> np.ndarray:
    return np.asarray(as_numbers(tensor.data, tensor.dtype.scalar.name), np.float32)


def scaled_dot_methods(interpreter: Any) -> dict[str, Any]:
    """Returns the builder's method for ``tl.dot_scaled``."""
    handle, tl = interpreter.TensorHandle, interpreter.tl

    def create_dot_scaled(
        self: Any, a: Any, a_scale: Any, _a: Any, b: Any, b_scale: Any, _b: Any, fast: Any, a_k: Any, b_k: Any, acc: Any
    ) -> Any:
        left = scaled_operand(a, a_scale, -1, -1 if a_k else -2)
        right = scaled_operand(b, b_scale, -2, -2 if b_k else -1)
        product = np.matmul(left, right)
        return handle(product + acc.data, tl.float32)

    return {"create_dot_scaled": create_dot_scaled}


def scaled_dot_semantics(interpreter: Any) -> Replacements:
    """Returns a replacement that lets texts name the formats; nothing for a Triton whose interpreter has no
    semantics."""
    semantic = type(getattr(interpreter, "interpreter_semantic", None))
    original: Any = getattr(semantic, "dot_scaled", None)
    if original is None:
        return []

    def dot_scaled(
        self: Any, a: Any, a_scale: Any, a_format: Any, b: Any, b_scale: Any, b_format: Any, *rest: Any
    ) -> Any:
        first, second = (_FormatName(getattr(name, "value", name)) for name in (a_format, b_format))
        return original(self, a, a_scale, first, b, b_scale, second, *rest)

    return [(semantic, {"dot_scaled": dot_scaled})]


def add_atomically(native: Any, pointers: np.ndarray, values: np.ndarray, mask: np.ndarray, name: str) -> np.ndarray:
    """Adds ``values`` of format ``name``, kept as bits, to memory one after the other, where the ``mask`` is true. The
    result is what was there before each of them."""
    before = np.zeros_like(values)
    for index in np.argwhere(mask):
        place = tuple(slice(number, number + 1) for number in index)
        there = np.ones_like(mask[place])
        before[place] = native.load(pointers[place], there, before[place], values.dtype)
        total = narrow(widen(before[place], name) + widen(values[place], name), name)
        native.store(pointers[place], total, there)
    return before
