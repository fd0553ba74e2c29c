"""``tl.dot_scaled`` for Triton's interpreter, which has none up to 3.7, and in 3.8 takes the scale byte 0 for zero.

The operands are decoded to fp32, which holds codes times scales exactly, and multiplied in fp32, as the interpreter's
other products are.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from conformance.execution.interpreter.numbers import as_numbers
from conformance.execution.interpreter.savings import Replacements

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


def scaled_dot_methods(interpreter: Any) -> dict[str, Any]:
    """Returns the builder's method for ``tl.dot_scaled``."""
    handle, tl = interpreter.TensorHandle, interpreter.tl

    def numbers(tensor: Any) -> np.ndarray:
        return np.asarray(as_numbers(tensor.data, tensor.dtype.scalar.name), np.float32)

    def operand(codes: Any, scale: Any, axis: int, packed_axis: int) -> np.ndarray:
        """Codes times scales. k is the ``axis`` of the codes and the last one of the scales."""
        integers = codes.dtype.scalar.is_int()
        values = four_bit_numbers(codes.data, packed_axis) if integers else numbers(codes)
        if scale is None:
            return values
        integers = scale.dtype.scalar.is_int()
        of_blocks = exponents_as_numbers(scale.data) if integers else numbers(scale)
        each = np.repeat(of_blocks, values.shape[axis] // of_blocks.shape[-1], axis=-1)
        return np.asarray(values * (each if axis == -1 else np.swapaxes(each, -1, -2)))

    def create_dot_scaled(
        self: Any, a: Any, a_scale: Any, _a: Any, b: Any, b_scale: Any, _b: Any, fast: Any, a_k: Any, b_k: Any, acc: Any
    ) -> Any:
        product = np.matmul(operand(a, a_scale, -1, -1 if a_k else -2), operand(b, b_scale, -2, -2 if b_k else -1))
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
