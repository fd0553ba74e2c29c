"""Rounding from fp64 to an output format: once, to nearest even, on the bits, with a stated rule for overflow.

Framework conversions are not used: they differ between releases and devices, and some round twice. Integer formats
take integers in their range and nothing else: no operation here rounds to an integer.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.problems import DTYPES

OVERFLOWS = ("ieee", "saturate", "nan")

#: Of fp64: the bits but the sign, and those of infinity.
_NO_SIGN = 0x7FFF_FFFF_FFFF_FFFF
_INFINITY = 0x7FF << 52
#: Integer dtypes by their bytes: the bits of an element of any dtype are one of them.
INTEGERS_OF_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


@dataclass(frozen=True)
class Format:
    """A binary format: ``significand`` bits with the hidden one, the exponent ``emin`` of the smallest normal, and the
    ``largest`` finite value. It has the storage ``width`` in bits and the bit patterns at the top of the range.
    ``spare`` low bits of the storage are zero (tf32 is kept in fp32). ``infinity`` is None where the format has none.
    ``lowest`` is the lowest value of an integer format, whose ``significand`` is its bits without the sign and which
    has no NaN; None for floating point. Without ``signed_zero`` the code that would be -0 is the only NaN, and what
    rounds to a zero is +0.
    """

    significand: int
    emin: int
    largest: float
    width: int
    largest_code: int
    infinity: int | None
    nan: int | None
    spare: int = 0
    lowest: int | None = None
    signed_zero: bool = True

    @property
    def smallest_normal(self) -> float:
        return 2.0**self.emin

    @property
    def smallest_subnormal(self) -> float:
        return 2.0 ** (self.emin - self.significand + 1)

    @property
    def max_exponent(self) -> int:
        """Largest e with 2**e finite."""
        return math.frexp(self.largest)[1] - 1


def _ieee(exponent_bits: int, significand: int, spare: int = 0) -> Format:
    bias = 2 ** (exponent_bits - 1) - 1
    infinity = (2**exponent_bits - 1) << (significand - 1)
    largest = (2.0 - 2.0 ** (1 - significand)) * 2.0**bias
    nan = infinity | (1 << (significand - 2))
    width = exponent_bits + significand + spare
    return Format(significand, 1 - bias, largest, width, infinity - 1, infinity, nan, spare)


def _fnuz(exponent_bits: int, significand: int) -> Format:
    """8 bits, "finite, NaN, unsigned zero": every code but 0x80, which is NaN, is a number. AMD's CDNA3 ISA guide."""
    bias = 2 ** (exponent_bits - 1)
    largest = (2.0 - 2.0 ** (1 - significand)) * 2.0 ** (bias - 1)
    return Format(significand, 1 - bias, largest, 8, 0x7F, None, 0x80, signed_zero=False)


def _integer(width: int, *, signed: bool) -> Format:
    significand = width - 1 if signed else width
    code = 2**significand - 1
    lowest = -(2**significand) if signed else 0
    return Format(significand, 0, float(code), width, code, None, None, lowest=lowest)


#: Formats by the names of ``problems.DTYPES``, and "tf32" (11 significant bits, stored in fp32).
FORMATS: dict[str, Format] = {
    "fp64": _ieee(11, 53),
    "fp32": _ieee(8, 24),
    "tf32": _ieee(8, 11, spare=13),
    "fp16": _ieee(5, 11),
    "bf16": _ieee(8, 8),
    "e5m2": _ieee(5, 3),
    # OCP 8-bit floating point specification, "fn": no infinity, the all-ones code is NaN
    "e4m3": Format(significand=4, emin=-6, largest=448.0, width=8, largest_code=0x7E, infinity=None, nan=0x7F),
    "e4m3fnuz": _fnuz(4, 4),
    "e5m2fnuz": _fnuz(5, 3),
    "int8": _integer(8, signed=True),
    "uint8": _integer(8, signed=False),
    "int32": _integer(32, signed=True),
}


def bits(t: Tensor) -> Tensor:
    """Returns the bit patterns of ``t`` as signed integers of the same width and shape."""
    return t.view(INTEGERS_OF_SIZE[t.dtype.itemsize])


def round_to(x: Tensor, dtype: str, *, overflow: str = "ieee") -> Tensor:
    """``x`` (fp64, any shape and device) rounded once to nearest even in the format ``dtype``.

    ``dtype`` is a key of :data:`FORMATS`; the result has the torch dtype of that name (float32 for "tf32"). Subnormals
    and the sign of a zero are kept, the latter where the format has one, and NaN becomes the format's quiet NaN.
    ``overflow`` says what a value becomes that rounds past the largest finite one, infinity included. "ieee" gives
    infinity (NaN in a format without infinity), "saturate" the largest finite value, "nan" NaN. Raises TypeError unless
    x is fp64, ValueError for unknown names and, for an integer format, for values that are not integers in its range.
    """
    if x.dtype != torch.float64:
        raise TypeError(f"round_to got {x.dtype}: it rounds once and from fp64, so pass float64")
    if dtype not in FORMATS:
        raise ValueError(f"format {dtype!r} is unknown: use one of {', '.join(FORMATS)}")
    if overflow not in OVERFLOWS:
        raise ValueError(f"overflow rule {overflow!r} is unknown: use one of {', '.join(OVERFLOWS)}")
    if dtype == "fp64":
        return x.clone()
    form = FORMATS[dtype]
    if form.lowest is not None:
        return _to_integer(x, dtype, form.lowest, form.largest)
    assert form.nan is not None
    pattern = x.view(torch.int64)
    size = pattern & _NO_SIGN
    # The bits that the format has no room for are rounded off, ties to even. A carry out of the significand moves into
    # the exponent field by itself. The fp64 exponent becomes the format's by one subtraction.
    spare = 53 - form.significand
    rebias = ((1 << (spare - 1)) - 1) - ((1022 + form.emin) << 52)
    code = (size >> spare).bitwise_and_(1).add_(rebias).add_(size).bitwise_right_shift_(spare)
    # Below the smallest normal the unit is fixed. A sum with 2**52 units has room for no less, and their number is in
    # its last bits. There it is the larger of the two codes, and nowhere else.
    most, shifted = 2.0**52 * form.smallest_subnormal, size.clamp(max=(1023 + form.emin) << 52).view(torch.float64)
    units = shifted.add_(most).view(torch.int64).sub_((1023 + 52 + form.emin - form.significand + 1) << 52)
    past_largest = _overflow_code(form, overflow)
    code = torch.maximum(code, units)
    if past_largest <= form.largest_code + 1:
        code.clamp_(max=past_largest)
    else:
        code.masked_fill_(code > form.largest_code, past_largest)
    # -1 for NaN, which has come to the code of an overflow, else 0
    is_nan = (_INFINITY - size).bitwise_right_shift_(63)
    code.add_(is_nan.bitwise_and_(form.nan - past_largest))
    sign = (pattern >> 63).bitwise_left_shift_(form.width - 1)
    if not form.signed_zero:  # zero and NaN have one code each
        sign.masked_fill_((code == 0) | (code == form.nan), 0)
        code.masked_fill_(code == form.nan, form.nan - 2**form.width)  # as a signed integer
    code.bitwise_left_shift_(form.spare).add_(sign)
    return code.to(INTEGERS_OF_SIZE[form.width // 8]).view(torch.float32 if dtype == "tf32" else DTYPES[dtype])


def _to_integer(x: Tensor, dtype: str, lowest: int, largest: float) -> Tensor:
    fits = (x >= lowest) & (x <= largest) & (x == x.round())
    if not bool(fits.all()):
        raise ValueError(
            f"round_to {dtype} got {float(x[~fits][0]):.17g}: only integers from {lowest} to {largest:.0f} have a "
            "value there; a fill whose results leave them must not exist"
        )
    return x.to(DTYPES[dtype])


def _overflow_code(form: Format, overflow: str) -> int:
    assert form.nan is not None
    if overflow == "saturate":
        return form.largest_code
    return form.nan if overflow == "nan" or form.infinity is None else form.infinity
