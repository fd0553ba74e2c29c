"""The sums of a tensor core, bit for bit.

One step adds ``products`` products to the running fp32 sum (MMA-Sim, arXiv 2511.10909; Khattak and Mikaitis, arXiv
2512.07004):

1. A product has the exponent that its operands' exponents add up to; that of a subnormal operand is the smallest of
   its format. A zero is no term. The running sum is a term with its own exponent, -126 or more.
2. Every term is cut towards zero to ``alignment_bits`` fraction bits relative to the largest exponent of the step.
3. The cut terms are added exactly, and the sum is cut to ``result_bits`` fraction bits of its own exponent.

The arithmetic here is fp64 and exact. A product of two operands has at most 22 significant bits, and its exponent lies
between -300 and 300. A cut term is an integer below 2**(alignment_bits + 2) in units of the last bit kept, so the sum
of a step stays below 2**53. :class:`Unit` refuses figures for which that does not hold. Powers of two multiply exactly.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.numerics.rounding import FORMATS
from conformance.numerics.sum_order import Unit

#: Significant bits that a product may have.
PRODUCT_BITS = 22
#: Smallest exponent of a normal fp32 number, and of its last subnormal bit.
EMIN, LAST_BIT = -126, -149
#: Exponent of a zero operand, below every sum of two exponents even when the other operand's is added.
NO_TERM = -10_000
#: Products that are held at once, by the type of the device: a cache's worth, and what fills a GPU.
AT_ONCE = {"cpu": 1 << 16, "cuda": 1 << 23}


@dataclass(frozen=True)
class Factors:
    """Two matrices as a unit sees them: ``a`` (rows, k) and ``b`` (k, columns), fp64. Their values are those of both
    formats (keys of ``FORMATS``)."""

    a: Tensor
    b: Tensor
    form_a: str
    form_b: str

    @property
    def depth(self) -> int:
        """Returns the number of k."""
        return int(self.a.shape[1])

    def part(self, first: int, last: int) -> Factors:
        """Returns the factors of the products from k ``first`` up to ``last``."""
        return Factors(self.a[:, first:last], self.b[first:last], self.form_a, self.form_b)


def sum_products(unit: Unit, factors: Factors, total: Tensor | None = None) -> Tensor:
    """``total`` (rows, columns; None: zeros) plus A @ B as ``unit`` sums it, fp64 values that fp32 holds.

    Steps begin at the first k. Past fp32's largest value the result goes on growing: the caller must not use it.
    Operands must be finite.
    """
    for form in (factors.form_a, factors.form_b):
        if FORMATS[form].significand > PRODUCT_BITS // 2:
            raise ValueError(f"operands of {form}: a tensor core multiplies {PRODUCT_BITS // 2} significant bits")
    factors = _interleaved(unit, factors) if unit.interleaved else factors
    (rows, depth), columns = factors.a.shape, factors.b.shape[1]
    device = factors.a.device
    total = torch.zeros(rows, columns, dtype=torch.float64, device=device) if total is None else total
    if not rows or not columns:
        return total
    a, b = factors.a.t().contiguous().unsqueeze(2), factors.b.contiguous().unsqueeze(1)  # (k, rows, 1), (k, 1, columns)
    exponents_a, exponents_b = _exponents(a, factors.form_a), _exponents(b, factors.form_b)
    at_once = max(1, AT_ONCE.get(device.type, AT_ONCE["cpu"]) // (rows * columns))
    for first in range(0, depth, unit.products):
        step = [slice(k, min(k + at_once, first + unit.products, depth)) for k in _starts(first, unit, depth, at_once)]
        largest = _exponents(total, "fp32")
        for part in step:
            largest = torch.maximum(largest, (exponents_a[part] + exponents_b[part]).amax(0))
        largest = torch.where(largest < NO_TERM // 2, 0, largest).long()
        scale = _power(unit.alignment_bits - largest)
        exact = (total * scale).trunc_()
        for part in step:
            exact += ((a[part] * b[part]).mul_(scale)).trunc_().sum(0)
        total = _kept(unit, exact).mul_(_power(largest - unit.alignment_bits))
        total = _in_range(unit, total)
    return total


def _interleaved(unit: Unit, factors: Factors) -> Factors:
    """Returns the same products in the order of two steps that share their k, as :class:`Unit` says; zeros fill the
    last."""
    together = 2 * unit.products
    missing = -factors.depth % together
    a = torch.nn.functional.pad(factors.a, (0, missing))
    b = torch.nn.functional.pad(factors.b, (0, 0, 0, missing))
    k = torch.arange(together)
    order = torch.cat([k[k % 4 < 2], k[k % 4 >= 2]])
    order = (torch.arange(0, factors.depth + missing, together)[:, None] + order).flatten().to(a.device)
    return Factors(a[:, order], b[order], factors.form_a, factors.form_b)


def _starts(first: int, unit: Unit, depth: int, at_once: int) -> range:
    return range(first, min(first + unit.products, depth), at_once)


def _exponents(values: Tensor, form: str) -> Tensor:
    """Returns the exponent of each value, int16: the format's smallest for a subnormal, NO_TERM for zero."""
    exponents = ((values.contiguous().view(torch.int64) >> 52) & 0x7FF) - 1023
    return torch.where(values == 0, NO_TERM, exponents.clamp_(min=FORMATS[form].emin)).to(torch.int16)


def _power(exponents: Tensor) -> Tensor:
    """Returns ``2.0 ** exponents`` (int64 in, fp64 out)."""
    return ((exponents + 1023) << 52).view(torch.float64)


def _kept(unit: Unit, exact: Tensor) -> Tensor:
    """``exact`` with ``result_bits`` fraction bits of its own exponent."""
    spare = 52 - unit.result_bits
    pattern = exact.view(torch.int64)
    if not unit.truncates:
        pattern = pattern + ((1 << (spare - 1)) - 1) + ((pattern >> spare) & 1)
    return (pattern >> spare << spare).view(torch.float64)


def _in_range(unit: Unit, total: Tensor) -> Tensor:
    """``total`` without bits below fp32's last: one that a narrow unit keeps is larger."""
    units = total * 2.0**-LAST_BIT
    units = units.trunc() if unit.truncates else units.round()
    return torch.where(total.abs() < 2.0**EMIN, units * 2.0**LAST_BIT, total)


def fused_multiply_add(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    """``a * b + c`` of fp32 tensors that broadcast, rounded once to fp32. Subnormal products below 2**-1022 do not
    occur: a product of two fp32 numbers is exact in fp64."""
    product, addend = a.double() * b.double(), c.double()
    product, addend = torch.broadcast_tensors(product, addend)
    total = product + addend
    # the error of that sum, exactly (Knuth); rounding the sum to odd keeps the second rounding, to fp32, right
    addend_part = total - product
    error = (product - (total - addend_part)) + (addend - addend_part)
    pattern = total.contiguous().view(torch.int64)
    towards = torch.where((error > 0) == (total > 0), 1, -1)
    odd = torch.where((error != 0) & error.isfinite() & (pattern & 1 == 0), pattern + towards, pattern)
    return odd.view(torch.float64).float()
