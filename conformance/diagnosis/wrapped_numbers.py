"""Numbers that are right but for a multiple of 2**32, or of another power of two: an integer overflowed."""

from __future__ import annotations

import torch
from torch import Tensor

from conformance.numerics.alterations import ENOUGH, as_stored

#: Widths of integers that may overflow, the widest first.
WIDTHS = (32, 16, 8)


def wrapped(values: Tensor, bits: int, *, signed: bool = True) -> Tensor:
    """Returns whole numbers (fp64) as an integer of so many ``bits`` holds them.

    >>> wrapped(torch.tensor([200.0, -129.0, 5.0]), 8).tolist()
    [-56.0, 127.0, 5.0]
    """
    half = 2.0 ** (bits - 1) if signed else 0.0
    return torch.remainder(values + half, 2.0**bits) - half


def overflow_words(bits: int) -> str:
    """Returns the words of a cause: what overflowed."""
    return f"right modulo 2**{bits}: an integer of {bits} bits overflowed"


def overflow_cause(expected: Tensor, out: Tensor, bad: Tensor, dtype: str, overflow: str) -> str:
    """Returns the cause if ``out`` holds ``expected`` (fp64), wrapped at a power of two, in every element; else "". The
    elements that are ``bad`` are enough to prove it, and each differs from the right one by a multiple of that power.
    ``dtype`` and ``overflow`` say how the output holds numbers."""
    whole = bool(expected.isfinite().all()) and bool((expected == expected.round()).all())
    if int(bad.sum()) < ENOUGH or not whole:
        return ""
    held = out.double()
    for bits in WIDTHS:
        for signed in (True, False):
            if torch.equal(as_stored(wrapped(expected, bits, signed=signed), dtype, overflow), held):
                return overflow_words(bits)
    return ""
