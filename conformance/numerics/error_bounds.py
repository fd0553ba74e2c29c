"""Error bounds of fp32 computations: an author writes the computation once, and gets its value and a proven bound.

:class:`Computed` is a quantity of a kernel. ``value`` is what it would be without rounding. Every result that a kernel
may have for it lies between ``low`` and ``high``. All three are fp64 tensors. Arithmetic on these quantities follows
each rounding::

    x = operand(inputs["x"])
    weights = exp(x - x.max(-1))
    out = weights / weights.sum(-1)
    request.bounded_fill("bounded", inputs, out.value, out.error())

**Proof.** If the operands of a step lie in their intervals, so does its result. Addition, multiplication, division and
the functions here are monotone in each operand, or are bounded by their values at the ends. The exact result therefore
lies between the least and the largest of these values. The computed result differs from it by the rounding of the step,
by which the ends are moved outwards. By induction all computed quantities lie in their intervals.

A step rounds to nearest or errs by some ulps; an ulp of y is 2**-23 * |y| at most. A result below :data:`TINY`, the
least normal fp32 number, may become zero. A result past the largest finite number may become infinite. A multiplication
and an addition may be fused, which rounds once less and stays inside. The ends themselves are computed in fp64, whose
roundings are 2**-26 of those of fp32 or less; :data:`UP` covers them.

**Functions.** :data:`ULPS` has the largest error of each function in fp32 on all machines that run kernels. Vendors
state how far a result is from the correctly rounded one, so half an ulp is added.

* NVIDIA: "Mathematical Functions" of the CUDA C++ programming guide states 2 ulp for ``expf``, ``exp2f``, ``tanhf``,
  ``erff`` and ``rsqrtf``, and 1 for ``logf`` and ``log2f``. Without IEEE rounding a quotient has 2, and ``sqrtf`` 1, or
  3 on old devices. ``__expf`` has 2 + 1.173 * |x| ulp, and ``__logf`` an absolute error of 2**-21.41 near 1.
* PTX: section 9.7.3 of the PTX ISA 9.1 states 2 ulp for ``ex2.approx``, ``div.full`` and ``div.approx``. The relative
  error of ``sqrt.approx`` is 2**-23, that of ``rsqrt.approx`` 2**-22.9. ``lg2.approx`` has 2**-22, absolute from 0.5
  to 2 and relative elsewhere. Triton's ``exp`` is ``ex2.approx`` of a product, its ``log`` may be ``lg2.approx``.
* AMD: the HIP math API reference states 1 ulp for ``expf``, ``exp2f``, ``log2f``, ``sqrtf`` and ``rsqrtf``, 2 for
  ``logf`` and ``tanhf``, 4 for ``erff``. These are differences from functions of the host, which err by 1.
* The interpreter: NumPy's vectorised fp32 loops state 2.52 ulp for ``exp``, 3.83 for ``log`` and less than 4 for
  others. ``1 / sqrt(x)`` rounds twice.

Sine and cosine are missing: ``sin.approx`` errs by 2**-20.5 absolutely up to 2 pi, and no figure holds beyond 100 pi.
So no bound depends on the machine. It costs a factor of two where one machine is better than another.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import torch
from torch import Tensor

#: Half an ulp of 1 in fp32: the relative error of one rounding to nearest. An ulp is twice that.
U, ULP = 2.0**-24, 2.0**-23
#: Results below this may become zero.
TINY = 2.0**-126
#: The largest finite fp32 number.
LARGEST = (2.0 - 2.0**-23) * 2.0**127
#: Enlarges every error by more than its evaluation in fp64 loses.
UP = 1 + 2.0**-20
#: The largest error of each function in ulps; see above. "rsqrt" may also be a root and a division.
ULPS: Mapping[str, float] = MappingProxyType(
    {"divide": 2.5, "exp": 4, "exp2": 4, "log": 4, "log2": 4, "sqrt": 3.5, "rsqrt": 6, "erf": 5, "mean": 2.5}
)
#: Absolute errors of logarithms near 1, and of a tanh that is computed by an exponential.
LOG_NEAR_ONE, LOG2_NEAR_ONE, TANH = 2.0**-21.41, 2.0**-22, 20 * U
#: Where fp32 exponentials of lower arguments are zero, and of higher ones infinite.
EXP_REACH = 200.0


#: What stands for a step in its place: it gets the step, and what the step gets.
Change = Callable[..., "Computed"]
#: The changes in use, by the name of the step.
_CHANGES: dict[str, Change] = {}


@contextlib.contextmanager
def changed_steps(**changes: Change) -> Iterator[None]:
    """Inside, a step of these names is what its change returns: ``change(step, *arguments)``. It replays a computation
    as a faulty kernel would do it. The steps are ``max``, ``sum``, ``mean``, ``square`` and the functions of this
    module.

    >>> with changed_steps(square=lambda square, x: x):
    ...     float(operand(torch.tensor([3.0])).square().value)
    3.0
    """
    before = dict(_CHANGES)
    _CHANGES.update(changes)
    try:
        yield
    finally:
        _CHANGES.clear()
        _CHANGES.update(before)


def _step(compute: Callable[..., Computed]) -> Callable[..., Computed]:
    """Lets :func:`changed_steps` change ``compute``."""

    @functools.wraps(compute)
    def changeable(*arguments: Any, **named: Any) -> Computed:
        change = _CHANGES.get(compute.__name__)
        return compute(*arguments, **named) if change is None else change(compute, *arguments, **named)

    return changeable


@dataclass(frozen=True, eq=False)
class Computed:
    """A quantity of a kernel: its exact ``value``, and the ends ``low`` and ``high`` of what a kernel may have for it.

    :func:`operand` makes one. A Python number in arithmetic is a constant of the kernel, rounded to fp32 if it has to
    be.
    """

    value: Tensor
    low: Tensor
    high: Tensor

    def __add__(self, other: Computed | float) -> Computed:
        """Returns the sum, rounded."""
        other = _quantity(other, self)
        return rounded(self.value + other.value, self.low + other.low, self.high + other.high)

    __radd__ = __add__

    def __neg__(self) -> Computed:
        """Returns the negative, which no kernel rounds."""
        return Computed(-self.value, -self.high, -self.low)

    def __sub__(self, other: Computed | float) -> Computed:
        """Returns the difference, rounded."""
        return self + -_quantity(other, self)

    def __rsub__(self, other: float) -> Computed:
        """Returns ``other - self``, rounded."""
        return -self + other

    def __mul__(self, other: Computed | float) -> Computed:
        """Returns the product, rounded."""
        other = _quantity(other, self)
        ends = [a * b for a in (self.low, self.high) for b in (other.low, other.high)]
        return rounded(self.value * other.value, *_outermost(ends))

    __rmul__ = __mul__

    def __truediv__(self, other: Computed | float) -> Computed:
        """Returns the quotient, which errs by 2.5 ulps at most. NaN where the divisor may be zero."""
        other = _quantity(other, self)
        ends = [a / b for a in (self.low, self.high) for b in (other.low, other.high)]
        low, high = _outermost(ends)
        unsafe = (other.low <= 0) & (other.high >= 0)
        low, high = (torch.where(unsafe, math.nan, end) for end in (low, high))
        return rounded(self.value / other.value, low, high, ULPS["divide"])

    def __rtruediv__(self, other: float) -> Computed:
        """Returns ``other / self``; see :meth:`__truediv__`."""
        return _quantity(other, self) / self

    @_step
    def square(self) -> Computed:
        """Returns the square, rounded: never below 0, unlike a product of two quantities."""
        product = self * self
        crosses = (self.low <= 0) & (self.high >= 0)
        return Computed(product.value, torch.where(crosses, 0.0, product.low.clamp(min=0.0)), product.high)

    @_step
    def max(self, dim: int) -> Computed:
        """Returns the largest along ``dim``, which stays with extent 1. No kernel rounds it."""
        return Computed(*(part.amax(dim, keepdim=True) for part in (self.value, self.low, self.high)))

    @_step
    def sum(self, dim: int, roundings: float = 0.0) -> Computed:
        """Returns the sum along ``dim``, which stays with extent 1: n terms in any order, by n - 1 rounded additions.

        Each term passes n - 1 additions at most, so each errs by ``(1 + U)**(n - 1) - 1`` of itself; Higham, "Accuracy
        and Stability of Numerical Algorithms", section 4.2. ``roundings``: how many more roundings a term may pass on
        its way, such as those of a running sum that is rescaled.
        """
        count = self.value.shape[dim]
        growth = math.expm1((max(count - 1, 0) + roundings) * math.log1p(U)) * UP
        size = torch.maximum(self.low.abs(), self.high.abs()).sum(dim, keepdim=True) * growth + count * TINY
        low, high = (end.sum(dim, keepdim=True) for end in (self.low, self.high))
        return _in_range(self.value.sum(dim, keepdim=True), low - size, high + size)

    @_step
    def mean(self, dim: int, roundings: float = 0.0) -> Computed:
        """Returns the sum divided by the number of terms, or multiplied by the rounded reciprocal of it."""
        total, count = self.sum(dim, roundings), self.value.shape[dim]
        return rounded(total.value / count, total.low / count, total.high / count, ULPS["mean"])

    def moved(self, change: Callable[[Tensor], Tensor]) -> Computed:
        """Returns the quantity whose elements ``change`` selects or puts elsewhere, such as ``lambda x: x[:, ::2]``. Of
        arithmetic only a rising function without an error will do, such as ``torch.round``: nothing is rounded."""
        return Computed(change(self.value), change(self.low), change(self.high))

    def where(self, mask: Tensor, other: Computed | float) -> Computed:
        """Returns this quantity where ``mask`` is True, else ``other``."""
        other = _quantity(other, self)
        pairs = ((self.value, other.value), (self.low, other.low), (self.high, other.high))
        return Computed(*(torch.where(mask, a, b) for a, b in pairs))

    def error(self) -> Tensor:
        """Returns the bound of |computed - value| as fp64; 0 where the value is NaN or infinite.

        Raises ValueError if a kernel may compute NaN where the value is finite: then no bound says anything.
        """
        error = torch.maximum(self.value - self.low, self.high - self.value).mul_(UP)
        error = torch.where(self.value.isfinite(), error, 0.0)
        if bool(error.isnan().any()):
            place = tuple(error.isnan().nonzero()[0].tolist())
            raise ValueError(
                f"the element {list(place)} is {float(self.value[place]):g}, but a kernel may compute NaN for it. Use "
                "inputs for which no divisor may be zero and no two infinities meet"
            )
        return error.clamp_(min=0.0)


def operand(tensor: Tensor, device: torch.device | str | None = None) -> Computed:
    """Returns the quantity that a kernel reads: ``tensor``, of any dtype, as it is. fp64 values live on ``device``, by
    default where the tensor is."""
    value = tensor.to(tensor.device if device is None else device).double()
    return Computed(value, value, value)


def joined(parts: Sequence[Computed], dim: int) -> Computed:
    """Returns ``parts`` one after the other along ``dim``."""
    return Computed(*(torch.cat([getattr(part, end) for part in parts], dim) for end in ("value", "low", "high")))


def either(first: Computed, second: Computed) -> Computed:
    """Returns a quantity that a kernel may compute in two ways. ``value`` is that of the first."""
    return Computed(first.value, torch.minimum(first.low, second.low), torch.maximum(first.high, second.high))


def _quantity(other: Computed | float, like: Computed) -> Computed:
    if isinstance(other, Computed):
        return other
    value = torch.tensor(float(other), dtype=torch.float64, device=like.value.device)
    if float(value.float()) == other or not math.isfinite(other):
        return Computed(value, value, value)
    slack = abs(float(other)) * U * UP + TINY
    return Computed(value, value - slack, value + slack)


def _outermost(ends: list[Tensor]) -> tuple[Tensor, Tensor]:
    """Returns the least and the largest of ``ends``; NaN where one of them is NaN."""
    low = high = ends[0]
    for end in ends[1:]:
        low, high = torch.minimum(low, end), torch.maximum(high, end)
    return low, high


def _in_range(value: Tensor, low: Tensor, high: Tensor) -> Computed:
    """Returns the interval, of which an end past the largest finite number may be that number or infinity."""
    low = torch.where(low < -LARGEST, -math.inf, low.clamp(max=LARGEST)).where(~low.isnan(), low)
    high = torch.where(high > LARGEST, math.inf, high.clamp(min=-LARGEST)).where(~high.isnan(), high)
    infinite = value.isinf()
    return Computed(value, torch.where(infinite, value, low), torch.where(infinite, value, high))


def rounded(value: Tensor, low: Tensor, high: Tensor, ulps: float = 0.5, absolute: float = 0.0) -> Computed:
    """Returns a quantity whose exact result is between ``low`` and ``high``, and that errs by ``ulps`` of itself and by
    ``absolute``. By default it is rounded to nearest. Without an absolute error its sign stays, and 0 stays 0."""
    relative, slack = ulps * ULP * UP, absolute * UP + TINY
    below, above = low - low.abs() * relative - slack, high + high.abs() * relative + slack
    if not absolute:
        below = torch.where(low >= 0, below.clamp(min=0.0), below)
        above = torch.where(high <= 0, above.clamp(max=0.0), above)
    return _in_range(value, below, above)


def function(
    x: Computed, evaluate: Callable[[Tensor], Tensor], ulps: float, absolute: float = 0.0, *, rising: bool = True
) -> Computed:
    """Returns a monotone function of ``x`` that errs by ``ulps`` and ``absolute`` in fp32.

    ``evaluate`` computes it in fp64. ``rising``: it grows with x; otherwise it falls.

    >>> x = operand(torch.tensor([1.0]))
    >>> root = function(x + 1.0, torch.sqrt, ulps=3)
    >>> float(root.error()) < 4 * 2**-23 * 2**0.5
    True
    """
    low, high = (x.low, x.high) if rising else (x.high, x.low)
    return rounded(evaluate(x.value), evaluate(low), evaluate(high), ulps, absolute)


@_step
def exp(x: Computed) -> Computed:
    """Returns e**x. The base may be changed to 2 first: log2(e) and its product with x are rounded, which errs by 2 U
    |x| in the exponent. Never below 0."""

    def slack(end: Tensor) -> Tensor:
        return torch.expm1(end.abs().clamp(max=EXP_REACH) * (2.001 * U)) + ULPS["exp"] * ULP * UP

    low, high = torch.exp(x.low), torch.exp(x.high)
    low = (low - low * slack(x.low) - TINY).clamp(min=0.0)
    return _in_range(torch.exp(x.value), low, high + high * slack(x.high) + TINY)


@_step
def log(x: Computed) -> Computed:
    """Returns the natural logarithm."""
    return function(x, torch.log, ULPS["log"], LOG_NEAR_ONE)


@_step
def exp2(x: Computed) -> Computed:
    """Returns 2**x. Never below 0."""
    return function(x, torch.exp2, ULPS["exp2"])


@_step
def log2(x: Computed) -> Computed:
    """Returns the logarithm to base 2."""
    return function(x, torch.log2, ULPS["log2"], LOG2_NEAR_ONE)


@_step
def sqrt(x: Computed) -> Computed:
    """Returns the square root."""
    return function(x, torch.sqrt, ULPS["sqrt"])


@_step
def rsqrt(x: Computed) -> Computed:
    """Returns 1 / sqrt(x), by one function or by a root and a division."""
    return function(x, torch.rsqrt, ULPS["rsqrt"], rising=False)


@_step
def erf(x: Computed) -> Computed:
    """Returns the error function."""
    return function(x, torch.erf, ULPS["erf"])


@_step
def tanh(x: Computed) -> Computed:
    """Returns tanh(x), by a function or by an exponential: ``q - 1`` with ``q = 2 / (1 + e)`` and ``e = exp(-2 x)``.

    The form errs by 20 U absolutely. An error d of e moves q by ``q * e / (1 + e) * d``, which is d / 2 at most. So the
    8 U of the exponential become 4 U, and the 4 U |x| of its argument 2 U. The sum adds 2 U, the quotient, which is
    below 2, 10 U, and the difference U."""
    return function(x, torch.tanh, ulps=0.0, absolute=TANH)


@_step
def sigmoid(x: Computed) -> Computed:
    """Returns ``1 / (1 + exp(-x))``."""
    return 1.0 / (exp(-x) + 1.0)
