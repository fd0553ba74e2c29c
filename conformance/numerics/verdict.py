"""The decision about one output of one fill: bitwise for exact fills, a rigorous interval for all others.

There is no tolerance here. The interval ``RN(C - e) <= out <= RN(C + e)`` is rigorous because rounding is monotone:
a computed value within e of C cannot be rounded outside it.
"""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, bits, round_to
from conformance.problems import DTYPES, Problem


@dataclass(frozen=True)
class FillVerdict:
    """What one fill says of one output.

    ``wrong`` of ``total`` elements are wrong. The ``first`` of them (its index) holds ``got``. ``want`` is the rounded
    value of an exact fill, or the fp64 value of another fill, which allows ``low`` to ``high``.
    ``worst_ratio`` is telemetry, never a verdict: the largest share of the bound that was used. Half a unit of the
    output format, for its rounding, does not count as used. ``bad`` marks the wrong elements, None if there are none.
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
    bad: Tensor | None = dataclasses.field(default=None, compare=False, repr=False)

    def to_dict(self) -> dict[str, Any]:
        """The fields but ``bad``, ready for JSON: NaN and infinities as the strings "nan", "inf" and "-inf"."""
        names = (field.name for field in dataclasses.fields(self) if field.name != "bad")
        return {name: _plain(getattr(self, name)) for name in names}


@dataclass(frozen=True)
class _Interval:
    """Limits on one device: ``low <= out <= high``, or NaN where ``nan`` holds (None: nowhere)."""

    low: Tensor
    high: Tensor
    nan: Tensor | None
    value: Tensor
    slack: Tensor  # half a unit of the output at the value
    weight: Tensor  # 1 / error; 0 where the value is not finite or past the largest finite output


def judge(problem: Problem, contract: Contract, fill: Fill, out: Tensor, output: str | None = None) -> FillVerdict:
    """Whether ``out`` is what ``fill`` asks for: equal bit by bit, or within the bound.

    ``out`` is the problem's ``output`` (the first unless named), of its shape and dtype; strides and device are free.
    -0 and 0 are equal. Where the contract flushes subnormals, a zero may stand for one. Raises ValueError for an output
    of the wrong shape or dtype: that is an error of the harness, not of a kernel.
    """
    if output is not None and output != problem.output.name:
        contract = dataclasses.replace(contract, out_dtype=problem.operand(output).dtype)
        fill = fill.of(output)
    shape = problem.operand(output or problem.output.name).shape
    if tuple(out.shape) != shape or out.dtype != DTYPES[contract.out_dtype]:
        actual, wanted = f"{tuple(out.shape)} {out.dtype}", f"{shape} {DTYPES[contract.out_dtype]}"
        raise ValueError(f"{problem.id}: the output {output or ''} to judge is {actual}, it must be {wanted}")
    if fill.method == "exact":
        return _judge_exact(contract, fill, out)
    return _judge_within(contract, fill, out)


def _judge_exact(contract: Contract, fill: Fill, out: Tensor) -> FillVerdict:
    key = ("exact", contract, out.device)
    if key not in fill.cache:
        wanted = round_to(fill.expected.to(out.device), contract.out_dtype, overflow=contract.overflow)
        fill.cache[key] = wanted, _without_negative_zero(wanted)
    wanted, wanted_bits = fill.cache[key]
    out_bits = _without_negative_zero(out)
    if torch.equal(out_bits, wanted_bits):
        return _verdict(contract, fill, out, None)
    bad = out_bits != wanted_bits
    if contract.flushes_subnormals:
        small = wanted.double().abs() < FORMATS[contract.out_dtype].smallest_normal
        bad &= ~(small & (out_bits == 0))
    return _verdict(contract, fill, out, bad, wanted=wanted)


def _judge_within(contract: Contract, fill: Fill, out: Tensor) -> FillVerdict:
    key = ("interval", contract, out.device)
    if key not in fill.cache:
        fill.cache[key] = interval(contract, fill, out.device)
    limits: _Interval = fill.cache[key]
    values = out.double() if out.dtype == torch.float64 else out.float()
    good = (values >= limits.low) & (values <= limits.high)
    if limits.nan is not None:
        good |= limits.nan & values.isnan()
    ratio = None
    if out.numel():
        used = float((((values - limits.value).abs_() - limits.slack) * limits.weight).max())
        ratio = max(used, 0.0) if math.isfinite(used) else None
    if bool(good.all()):
        return _verdict(contract, fill, out, None, ratio=ratio)
    return _verdict(contract, fill, out, ~good, ratio=ratio, limits=limits)


def interval(contract: Contract, fill: Fill, device: torch.device) -> _Interval:
    """The values that ``fill`` allows, on ``device``, for an output of ``contract.out_dtype``.

    Raises ValueError for a fill without a bound.
    """
    if fill.error is None:
        raise ValueError(f"fill {fill.name!r} has method {fill.method!r} and no error bound: it needs one")
    form = FORMATS[contract.out_dtype]
    value = fill.expected.to(device)
    finite = value.isfinite()
    error = torch.where(finite, fill.error.to(device), 0.0)
    compared = torch.float64 if contract.out_dtype == "fp64" else torch.float32
    ends = []
    for end, outward, inward in ((value - error, -form.largest, math.inf), (value + error, form.largest, -math.inf)):
        rounded = round_to(end, contract.out_dtype, overflow=contract.overflow).to(compared)
        # where overflow gives NaN: an end beyond its own side stops at the largest finite value, beyond the other side
        # it leaves no finite value at all
        beyond = torch.where((end > 0) == (outward > 0), outward, inward).to(compared)
        ends.append((torch.where(rounded.isnan(), beyond, rounded), rounded.isnan()))
    (low, low_nan), (high, high_nan) = ends
    low = torch.where(value.isnan(), math.inf, low)  # nothing but NaN
    nan = low_nan | high_nan
    exponent = torch.frexp(value)[1] - 1
    slack = torch.exp2(exponent.clamp(min=form.emin).double() - form.significand)
    within = finite & (value.abs() <= form.largest)
    weight = torch.where(within, 1 / error, 0.0)
    return _Interval(low, high, nan if bool(nan.any()) else None, torch.where(within, value, 0.0), slack, weight)


def _without_negative_zero(t: Tensor) -> Tensor:
    if not t.dtype.is_floating_point:
        return t
    pattern = bits(t)
    return torch.where(pattern == torch.iinfo(pattern.dtype).min, 0, pattern)


def _verdict(
    contract: Contract,
    fill: Fill,
    out: Tensor,
    bad: Tensor | None,
    *,
    wanted: Tensor | None = None,
    limits: _Interval | None = None,
    ratio: float | None = None,
) -> FillVerdict:
    wrong = 0 if bad is None else int(bad.sum())
    label = f"{fill.method}/{fill.name} seed {fill.seed}"
    assumed = " (contract assumed)" if contract.accumulator.assumed and fill.method != "exact" else ""
    if not wrong or bad is None:
        text = f"PASS {label}{assumed}: {out.numel()} elements"
        return FillVerdict(fill.name, fill.method, fill.seed, True, 0, out.numel(), worst_ratio=ratio, text=text)
    position = int(bad.flatten().to(torch.uint8).argmax())
    first = tuple(int(i) for i in torch.unravel_index(torch.tensor(position), out.shape))
    got = float(out[first].double())
    low = high = None
    if limits is not None:
        low, high = float(limits.low[first]), float(limits.high[first])
        want = float(fill.expected[first])
        need = "NaN" if low > high else f"{want:.9g}, allowed {low:.9g} to {high:.9g}"
    else:
        assert wanted is not None
        want = float(wanted[first].double())
        need = f"{want:.9g}"
    text = f"FAIL {label}{assumed}: {wrong}/{out.numel()} wrong, first {list(first)} got {got:.9g} want {need}"
    return FillVerdict(
        fill.name, fill.method, fill.seed, False, wrong, out.numel(), first, got, want, low, high, ratio, text, bad
    )


def _plain(entry: Any) -> Any:
    if isinstance(entry, float) and not math.isfinite(entry):
        return "nan" if math.isnan(entry) else ("inf" if entry > 0 else "-inf")
    return list(entry) if isinstance(entry, tuple) else entry
