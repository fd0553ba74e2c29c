"""The decision about one output of one fill: bitwise for exact fills, a rigorous interval for all others.

There is no tolerance here. The interval ``RN(C - e) <= out <= RN(C + e)`` is rigorous because rounding is monotone:
a computed value within e of C cannot be rounded outside it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, bits, round_to
from conformance.problems import DTYPES, Problem


@dataclass(frozen=True)
class FillVerdict:
    """The verdict of one fill on one output.

    ``wrong`` of ``total`` elements are wrong. The ``first`` of them (its index) holds ``got``. ``want`` is the rounded
    value of an exact fill, or the fp64 value of another fill, which allows ``low`` to ``high``.
    ``worst_ratio`` is telemetry, never a verdict: the largest share of the bound that was used. Half a unit of the
    output format, for its rounding, does not count as used. ``bad`` marks the wrong elements, None if there are none.
    ``other_bits``: elements whose bits are not those of the tensor core's model; None where no model was asked.
    """

    fill: str
    method: str
    seed: int
    passed: bool
    wrong: int
    total: int
    first: tuple[int, ...] | None = None
    got: float | None = None
    want: float | None = None
    low: float | None = None
    high: float | None = None
    worst_ratio: float | None = None
    text: str = ""
    other_bits: int | None = None
    bad: Tensor | None = dataclasses.field(default=None, compare=False, repr=False)

    @property
    def bits_only(self) -> bool:
        """True if it fails although every element is within the bound."""
        return not self.passed and self.method == "bounded" and self.low is None

    def to_dict(self) -> dict[str, Any]:
        """Returns the fields but ``bad``, ready for JSON: NaN and infinities as the strings "nan", "inf" and "-inf"."""
        names = (field.name for field in fields(self) if field.name != "bad")
        return {name: _plain(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class _ValueInterval:
    """Limits on one device: ``low <= out <= high``, or NaN where ``nan`` holds (None: nowhere)."""

    low: Tensor
    high: Tensor
    nan: Tensor | None
    value: Tensor
    slack: Tensor  # half a unit of the output at the value
    weight: Tensor  # 1 / error; 0 where the value is not finite or past the largest finite output
    zero: Tensor | None = None  # where the value is exactly zero, and the contract says its sign


def judge(problem: Problem, contract: Contract, fill: Fill, out: Tensor, output: str | None = None) -> FillVerdict:
    """Compares ``out`` with what ``fill`` asks for: equal bit by bit, or within the bound.

    ``out`` is the problem's ``output`` (the first unless named), of its shape and dtype; strides and device are free.
    -0 and 0 are equal unless the contract says the sign of zero. Where the contract flushes subnormals, a zero may
    stand for one. Raises ValueError for an output of the wrong shape or dtype: that is an error of the harness, not of
    a kernel.
    """
    contract, fill = _of_output(problem, contract, fill, output)
    shape = problem.operand(output or problem.output.name).shape
    if tuple(out.shape) != shape or out.dtype != DTYPES[contract.out_dtype]:
        actual, required = f"{tuple(out.shape)} {out.dtype}", f"{shape} {DTYPES[contract.out_dtype]}"
        raise ValueError(f"{problem.id}: the output {output or ''} to judge is {actual}, it must be {required}")
    if fill.method == "exact":
        return _judge_exact(contract, fill, out)
    return _judge_within(contract, fill, out)


def right(problem: Problem, contract: Contract, fill: Fill, output: str, used: float) -> FillVerdict:
    """Returns the verdict on an ``output`` of ``fill`` that :class:`AllowedValues` found right; it ``used`` this share
    of the bound."""
    contract, fill = _of_output(problem, contract, fill, output)
    return _passed(contract, fill, math.prod(problem.operand(output).shape), _worst(used))


def _of_output(problem: Problem, contract: Contract, fill: Fill, output: str | None) -> tuple[Contract, Fill]:
    """Returns the contract and the fill of one output."""
    if output is None or output == problem.output.name:
        return contract, fill
    return dataclasses.replace(contract, out_dtype=problem.operand(output).dtype), fill.of(output)


def _right_values(contract: Contract, value: Tensor) -> tuple[Tensor, Tensor]:
    """Returns the output that an exact fill with this ``value`` asks for, and its bits as :func:`_compared` has
    them."""
    right = round_to(value, contract.out_dtype, overflow=contract.overflow)
    return right, _compared(right, contract.zero_sign)


def _judge_exact(contract: Contract, fill: Fill, out: Tensor) -> FillVerdict:
    key = ("exact", contract, out.device)
    if key not in fill.cache:
        fill.cache[key] = _right_values(contract, fill.expected.to(out.device))
    right, right_bits = fill.cache[key]
    out_bits = _compared(out, contract.zero_sign)
    if torch.equal(out_bits, right_bits):
        return _verdict(contract, fill, out, None)
    bad = out_bits != right_bits
    if contract.flushes_subnormals:
        small = right.double().abs() < FORMATS[contract.out_dtype].smallest_normal
        bad &= ~(small & (_compared(out, "any") == 0))
    return _verdict(contract, fill, out, bad, right=right)


def _judge_within(contract: Contract, fill: Fill, out: Tensor) -> FillVerdict:
    key = ("interval", contract, out.device)
    if key not in fill.cache:
        fill.cache[key] = interval(contract, fill, out.device)
    limits: _ValueInterval = fill.cache[key]
    good = _allowed(limits, out)
    ratio = _worst(float(_used(limits, out).max())) if out.numel() else None
    if bool(good.all()):
        return _verdict(contract, fill, out, None, ratio=ratio)
    return _verdict(contract, fill, out, ~good, ratio=ratio, limits=limits)


@dataclass(frozen=True)
class AllowedValues:
    """The values that several fills of one problem allow one of its outputs to have, one after the other on a device.

    A device decides as the CPU does. Every operation from the value and its bound to the decision works on bits,
    compares, or rounds in the one way of IEEE 754. Tensors are (fills, 1, *shape); ``exact`` and ``bounded`` hold the
    numbers of the fills.
    """

    dtype: torch.dtype
    exact: Tensor
    right: Tensor | None  # bits
    bounded: Tensor
    interval: _ValueInterval | None
    zero_sign: str = "any"

    @classmethod
    def of(
        cls,
        problem: Problem,
        contract: Contract,
        fills: Sequence[Fill],
        output: str,
        move: Callable[[Tensor], Tensor] = lambda tensor: tensor,
    ) -> AllowedValues:
        """Returns the limits of ``output`` on the device to which ``move`` takes tensors. Raises ValueError for a fill
        without a bound."""
        contract = _of_output(problem, contract, fills[0], output)[0]
        fills = [_of_output(problem, contract, fill, output)[1] for fill in fills]
        exact = [number for number, fill in enumerate(fills) if fill.method == "exact"]
        bounded = [number for number, fill in enumerate(fills) if fill.method != "exact"]
        right = limits = None
        if exact:
            values = torch.stack([fills[number].expected for number in exact]).unsqueeze(1)
            integers = FORMATS[contract.out_dtype].lowest is not None  # to round to them asks whether each value fits
            right = _right_values(contract, values if integers else move(values))[1]
            right = move(right) if integers else right
        if bounded:
            pairs = [(fills[number].expected, _bound(fills[number])) for number in bounded]
            value, error = (move(torch.stack(tensors).unsqueeze(1)) for tensors in zip(*pairs, strict=True))
            masks, open_to_nan = [fills[number].or_nan for number in bounded], None
            if any(mask is not None for mask in masks):
                nowhere = torch.zeros_like(pairs[0][0], dtype=torch.bool)
                open_to_nan = move(torch.stack([nowhere if mask is None else mask for mask in masks]).unsqueeze(1))
            limits = _interval(contract, value, error, open_to_nan)
        exact_numbers, bounded_numbers = (move(torch.tensor(side, dtype=torch.int64)) for side in (exact, bounded))
        return cls(DTYPES[contract.out_dtype], exact_numbers, right, bounded_numbers, limits, contract.zero_sign)

    @property
    def nbytes(self) -> int:
        """Bytes of all tensors."""
        of_interval = [] if self.interval is None else [getattr(self.interval, f.name) for f in fields(self.interval)]
        return sum(int(tensor.nbytes) for tensor in (self.right, *of_interval) if tensor is not None)

    def judge(self, out: Tensor) -> tuple[Tensor, Tensor]:
        """Returns a mask (bool; fills, runs) of the runs that may be wrong, and the share of its bound that the first
        run of each fill uses (fp64; fills), NaN for exact fills.

        ``out`` holds the bits of the runs' outputs, (fills, runs, *shape), on the device of the limits. Only where the
        contract flushes subnormals may a run be right after all.
        """
        wrong = torch.zeros(out.shape[:2], dtype=torch.bool, device=out.device)
        used = torch.full(out.shape[:1], math.nan, dtype=torch.float64, device=out.device)
        if not out.numel():
            return wrong, used
        if self.right is not None:
            differs = _compared(out.index_select(0, self.exact).view(self.dtype), self.zero_sign) != self.right
            wrong.index_copy_(0, self.exact, _rows(differs).any(2))
        if self.interval is not None:
            values = out.index_select(0, self.bounded).view(self.dtype)
            wrong.index_copy_(0, self.bounded, ~_rows(_allowed(self.interval, values)).all(2))
            used.index_copy_(0, self.bounded, _rows(_used(self.interval, values[:, :1])).amax((1, 2)))
        return wrong, used


def _rows(of_runs: Tensor) -> Tensor:
    """(fills, runs, *shape) as (fills, runs, elements)."""
    return of_runs.reshape(*of_runs.shape[:2], math.prod(of_runs.shape[2:]))


def _allowed(limits: _ValueInterval, out: Tensor) -> Tensor:
    """Returns a mask of the elements of ``out`` that are within the limits."""
    values = out.double() if out.dtype == torch.float64 else out.float()
    good = (values >= limits.low) & (values <= limits.high)
    if limits.nan is not None:
        good |= limits.nan & values.isnan()
    if limits.zero is not None:
        good &= ~limits.zero | values.isnan() | (values.signbit() == limits.value.signbit())
    return good


def _used(limits: _ValueInterval, out: Tensor) -> Tensor:
    """Returns the share of the bound that each element of ``out`` uses."""
    values = out.double() if out.dtype == torch.float64 else out.float()
    return ((values - limits.value).abs_() - limits.slack) * limits.weight


def interval(contract: Contract, fill: Fill, device: torch.device) -> _ValueInterval:
    """Returns the values that ``fill`` allows, on ``device``, for an output of ``contract.out_dtype``.

    Raises ValueError for a fill without a bound.
    """
    or_nan = None if fill.or_nan is None else fill.or_nan.to(device)
    limits = _interval(contract, fill.expected.to(device), _bound(fill).to(device), or_nan)
    return limits if limits.nan is not None and limits.nan.any() else dataclasses.replace(limits, nan=None)


def _bound(fill: Fill) -> Tensor:
    if fill.error is None:
        raise ValueError(f"fill {fill.name!r} has method {fill.method!r} and no error bound: it needs one")
    return fill.error


def _interval(contract: Contract, value: Tensor, error: Tensor, or_nan: Tensor | None) -> _ValueInterval:
    form = FORMATS[contract.out_dtype]
    finite = value.isfinite()
    error = torch.where(finite, error, 0.0)
    compared = torch.float64 if contract.out_dtype == "fp64" else torch.float32
    ends = []
    for end, outward, inward in ((value - error, -form.largest, math.inf), (value + error, form.largest, -math.inf)):
        # the ends of a bound may lie past the integers that there are
        stored = end if form.lowest is None else end.clamp(form.lowest, form.largest)
        rounded = round_to(stored, contract.out_dtype, overflow=contract.overflow).to(compared)
        # Overflow may give NaN. Then an end beyond its own side stops at the largest finite value. Beyond the other
        # side it leaves no finite value at all.
        beyond = torch.where((end > 0) == (outward > 0), torch.full_like(end, outward), inward).to(compared)
        ends.append((torch.where(rounded.isnan(), beyond, rounded), rounded.isnan()))
    (low, low_nan), (high, high_nan) = ends
    low = torch.where(value.isnan(), math.inf, low)  # nothing but NaN
    within = finite & (value.abs() <= form.largest)
    weight = torch.where(within, 1 / error, 0.0)
    zero = None if contract.zero_sign == "any" else (value == 0) & (error == 0)
    value = torch.where(within, value, 0.0)
    # the power of two from its exponent's bits: no device rounds it
    exponent = ((bits(value) >> 52) & 0x7FF).clamp_(min=form.emin + 1023).masked_fill_(value == 0, 1022)
    slack = exponent.bitwise_left_shift_(52).view(torch.float64) * 2.0**-form.significand
    nan = low_nan | high_nan
    return _ValueInterval(low, high, nan if or_nan is None else nan | or_nan, value, slack, weight, zero)


def _compared(t: Tensor, zero_sign: str) -> Tensor:
    """The bits of ``t``, with 0 for -0 if its sign may be "any"."""
    if not t.dtype.is_floating_point:
        return t
    pattern = bits(t)
    if zero_sign != "any":
        return pattern
    return torch.where(pattern == torch.iinfo(pattern.dtype).min, 0, pattern)


def _verdict(
    contract: Contract,
    fill: Fill,
    out: Tensor,
    bad: Tensor | None,
    *,
    right: Tensor | None = None,
    limits: _ValueInterval | None = None,
    ratio: float | None = None,
) -> FillVerdict:
    wrong = 0 if bad is None else int(bad.sum())
    if not wrong or bad is None:
        return _passed(contract, fill, out.numel(), ratio)
    position = int(bad.flatten().to(torch.uint8).argmax())
    first = tuple(int(i) for i in np.unravel_index(position, out.shape))
    got = float(out[first].double())
    low = high = None
    if limits is not None:
        low, high = float(limits.low[first]), float(limits.high[first])
        want = float(fill.expected[first])
        need = "NaN" if low > high else f"{want:.9g}, allowed {low:.9g} to {high:.9g}"
        need += " or NaN" if low <= high and limits.nan is not None and bool(limits.nan[first]) else ""
    else:
        assert right is not None
        want = float(right[first].double())
        need = f"{want:.9g}"
    name = label(contract, fill.method, fill.name, fill.seed)
    text = f"FAIL {name}: {wrong}/{out.numel()} wrong, first {list(first)} got {got:.9g} want {need}"
    return FillVerdict(
        fill.name, fill.method, fill.seed, False, wrong, out.numel(), first, got, want, low, high, ratio, text, bad=bad
    )


def _passed(contract: Contract, fill: Fill, total: int, ratio: float | None) -> FillVerdict:
    text = f"PASS {label(contract, fill.method, fill.name, fill.seed)}: {total} elements"
    return FillVerdict(fill.name, fill.method, fill.seed, True, 0, total, worst_ratio=ratio, text=text)


def label(contract: Contract, method: str, fill: str, seed: int) -> str:
    """Returns the name in verdicts of a fill that is judged by ``method``. An exact one depends on the accumulator,
    too: that fixes how large its integers may be."""
    assumed = " (contract assumed)" if contract.accumulator.assumed else ""
    return f"{method}/{fill} seed {seed}{assumed}"


def _worst(used: float) -> float | None:
    """The largest share of the bound as telemetry: none below 0, and None where it cannot be said."""
    return max(used, 0.0) + 0.0 if math.isfinite(used) else None  # + 0.0: which of -0 and 0 is larger, no device says


def _plain(entry: Any) -> Any:
    if isinstance(entry, float) and not math.isfinite(entry):
        return "nan" if math.isnan(entry) else ("inf" if entry > 0 else "-inf")
    return list(entry) if isinstance(entry, tuple) else entry
