"""Small kernels for the tests of the interpreter's numbers, with what a device gives, by arithmetic of the tests' own.

A process that interprets imports this module and returns what is wrong; see tests/kernels/interpreter_runs.py.
"""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from conformance.numerics.rounding import FORMATS, bits, round_to
from conformance.problems import DTYPES

SIZE = 64
SPECIAL = [0.0, -0.0, 1.0, -1.0, 2.0**-126, -(2.0**-133), 3e38, -3e38, math.inf, -math.inf, math.nan, 448.0, 464.0, 7e4]


@triton.jit
def unary(x, out, SIZE: tl.constexpr, WHAT: tl.constexpr):
    at = tl.arange(0, SIZE)
    v = tl.load(x + at)
    kind: tl.constexpr = out.dtype.element_ty
    if WHAT == "nearest":
        tl.store(out + at, v.to(kind))
    elif WHAT == "zero":
        tl.store(out + at, v.to(kind, fp_downcast_rounding="rtz"))
    elif WHAT == "constant":
        tl.store(out + at, (v * 3.3 - 0.7) / 1.1)
    elif WHAT == "full":
        tl.store(out + at, tl.full((SIZE,), 3.3, kind))
    elif WHAT == "minus":
        tl.store(out + at, -v)
    elif WHAT == "absolute":
        tl.store(out + at, tl.abs(v))
    elif WHAT == "bool":
        tl.store(out + at, v > 0.5)
    elif WHAT == "bitcast":
        tl.store(out + at, v.to(tl.int16, bitcast=True).to(kind, bitcast=True))
    elif WHAT == "sum":
        tl.store(out + at, tl.zeros((SIZE,), kind) + tl.sum(v, 0))
    elif WHAT == "sum of rows":
        tl.store(out + tl.arange(0, 4), tl.sum(tl.reshape(v, (4, SIZE // 4)), 1))
    elif WHAT == "maximum of all":
        tl.store(out + at, tl.zeros((SIZE,), tl.float32) + tl.max(v, 0))
    elif WHAT == "clamp":
        tl.store(out + at, tl.clamp(v, -0.75, 2.0))
    elif WHAT == "clamp NaN":
        tl.store(out + at, tl.clamp(v, -0.75, 2.0, propagate_nan=tl.PropagateNan.ALL))
    elif WHAT == "inverted":
        tl.store(out + at, ~v)


@triton.jit
def binary(x, y, out, SIZE: tl.constexpr, WHAT: tl.constexpr):
    at = tl.arange(0, SIZE)
    a, b = tl.load(x + at), tl.load(y + at)
    if WHAT == "add":
        tl.store(out + at, a + b)
    elif WHAT == "mul":
        tl.store(out + at, a * b)
    elif WHAT == "div":
        tl.store(out + at, a / b)
    elif WHAT == "less":
        tl.store(out + at, (a < b).to(out.dtype.element_ty))
    elif WHAT == "where":
        tl.store(out + at, tl.where(a < b, a, 3.0))
    elif WHAT == "max":
        tl.store(out + at, tl.maximum(a, b))
    elif WHAT == "min":
        tl.store(out + at, tl.minimum(a, b))
    elif WHAT == "max NaN":
        tl.store(out + at, tl.maximum(a, b, propagate_nan=tl.PropagateNan.ALL))
    elif WHAT == "min NaN":
        tl.store(out + at, tl.minimum(a, b, propagate_nan=tl.PropagateNan.ALL))
    elif WHAT == "fma":
        tl.store(out + at, tl.fma(a, b, a))
    elif WHAT == "atomic":
        tl.atomic_add(out + at // 4, a, mask=a == a)
    elif WHAT == "bits":
        tl.store(out + at, (a > b) + (a == a))


def special(name: str) -> Tensor:
    """64 numbers of ``name``: specials, then ones with full significands."""
    form = FORMATS[name]
    significands = 1 + torch.arange(SIZE - len(SPECIAL), dtype=torch.float64) * 2.0 ** (1 - form.significand) * 3
    signs = torch.tensor([1.0, -1.0] * SIZE, dtype=torch.float64)[: len(significands)]
    return round_to(torch.cat([torch.tensor(SPECIAL, dtype=torch.float64), significands * signs]), name)


def ties(name: str, source: str) -> Tensor:
    """Numbers of ``source`` next to ties and at the ends of ``name``: each as it is, one down and one up."""
    form = FORMATS[name]
    unit = 2.0 ** (1 - form.significand)
    numbers = [1 + unit * k / 2 for k in range(5)] + [form.largest * f for f in (1, 1 + unit / 8, 1 + unit / 2, 2)]
    numbers += [form.smallest_subnormal * k / 4 for k in (1, 2, 3, 6)] + [form.smallest_normal * (1 - unit / 4)]
    values = torch.tensor([*numbers, math.inf, math.nan], dtype=torch.float64).to(DTYPES[source])
    steps = [values, *(torch.nextafter(values, torch.full_like(values, end)) for end in (0.0, math.inf))]
    signed = torch.cat(steps)
    return torch.cat([signed, -signed])[: SIZE * 2]


def towards_zero(x: float, name: str) -> float:
    """The value of the format ``name`` next to ``x`` from zero's side, by exact division; infinities stay."""
    form = FORMATS[name]
    if not math.isfinite(x):
        return x
    size = min(abs(x), form.largest)
    exponent = max(math.frexp(size)[1] - 1, form.emin) if size else form.emin
    unit = Fraction(2) ** (exponent - form.significand + 1)
    return math.copysign(float(Fraction(size) // unit * unit), x)


def launched(kernel: Any, executor: Any, out: Tensor, what: str, **tensors: Tensor) -> Tensor:
    from conformance.kernels.launch import Launch

    executor.run(Launch(kernel, (1,), {**tensors, "out": out, "SIZE": len(tensors["x"]), "WHAT": what}))
    return out


def differing(actual: Tensor, expected: Tensor, what: str) -> list[str]:
    """Returns the differences of ``actual`` from ``expected``; a NaN may have any bits."""
    same = (bits(actual) == bits(expected)) | (actual.double().isnan() & expected.double().isnan())
    if bool(same.all()):
        return []
    at = int((~same).nonzero()[0])
    return [f"{what}: element {at} is {actual[at].item()}, {expected[at].item()} is right"]


def conversions() -> list[str]:
    """Each conversion that a compiler knows, near ties, at overflow and among subnormals."""
    from conformance.execution.interpreter.executor import InterpreterExecutor

    executor, wrong = InterpreterExecutor(), []
    for source, name, modes in [
        ("fp32", "bf16", ("nearest", "zero")),
        ("fp32", "fp16", ("nearest", "zero")),
        ("fp32", "e4m3", ("nearest",)),
        ("fp32", "e5m2", ("nearest", "zero")),
        ("fp64", "bf16", ("nearest",)),
        ("fp64", "fp16", ("nearest",)),
        ("fp64", "fp32", ("nearest",)),
        ("bf16", "e4m3", ("nearest",)),
        ("fp16", "e5m2", ("nearest",)),
        ("fp16", "bf16", ("nearest",)),
    ]:
        x = ties(name, source)[:SIZE]
        for mode in modes:
            actual = launched(unary, executor, torch.zeros(len(x), dtype=DTYPES[name]), mode, x=x)
            if mode == "nearest":
                overflow = "saturate" if name in ("e4m3", "e5m2") else "ieee"
                expected = round_to(x.double(), name, overflow=overflow)
            else:
                cut = torch.tensor([towards_zero(value, name) for value in x.tolist()], dtype=torch.float64)
                expected = round_to(cut, name)
            wrong += differing(actual, expected, f"{source} to {name}, {mode}")
    whole = torch.tensor([0, 1, -1, 255, 257, 2**24 + 1, 2**25 + 2**17 + 1, -(2**31) + 1] * 8, dtype=torch.int32)
    actual = launched(unary, executor, torch.zeros(SIZE, dtype=torch.bfloat16), "nearest", x=whole)
    wrong += differing(actual, round_to(whole.double(), "bf16"), "int32 to bf16")
    x = special("bf16").nan_to_num(0.0, 5.0, -5.0).clamp(-1000, 1000)
    actual = launched(unary, executor, torch.zeros(SIZE, dtype=torch.int32), "nearest", x=x)
    wrong += [] if torch.equal(actual, x.double().trunc().int()) else ["bf16 to int32"]
    return wrong


def arithmetic() -> list[str]:
    """bf16 and fp16 (and where rules of NaN are concerned fp32): each operation rounds once."""
    from conformance.execution.interpreter.executor import InterpreterExecutor

    executor, wrong = InterpreterExecutor(), []

    def judge(kernel: Any, name: str, what: str, exact: Tensor, **tensors: Tensor) -> None:
        actual = launched(kernel, executor, torch.zeros(SIZE, dtype=DTYPES[name]), what, **tensors)
        actual = actual + 0 if what == "minus" else actual  # 0 - x, or the other sign since Triton 3.9
        wrong.extend(differing(actual, round_to(exact, name), f"{name} {what}"))

    for name in ("bf16", "fp16", "fp32"):
        x = special(name)
        y = x.flip(0)
        a, b = x.double(), y.double()
        half = name != "fp32"

        def r(values: Tensor, name: str = name) -> Tensor:
            return round_to(values, name).double()

        factor, term = (r(torch.tensor(value, dtype=torch.float64)) for value in (3.3, 0.7))
        divisor = torch.tensor(1.1).double()  # a quotient by a number is one of fp32
        if half:
            judge(unary, name, "constant", r(r(a * factor) - term) / divisor, x=x)
            judge(unary, name, "full", torch.full((SIZE,), 3.3, dtype=torch.float64), x=x)
            judge(binary, name, "add", a + b, x=x, y=y)
            judge(binary, name, "mul", a * b, x=x, y=y)
            judge(binary, name, "div", a / b, x=x, y=y)
        judge(unary, name, "minus", 0 - a, x=x)
        judge(unary, name, "absolute", a.abs(), x=x)
        judge(unary, name, "bool", (a > 0.5).double(), x=x)
        judge(binary, name, "less", (a < b).double(), x=x, y=y)
        judge(binary, name, "where", torch.where(a < b, a, 3.0), x=x, y=y)
        larger, smaller = torch.maximum(a, b), torch.minimum(a, b)
        zeros = (a == 0) & (b == 0)
        larger = torch.where(zeros, torch.where(a.signbit() & b.signbit(), -0.0, 0.0).double(), larger)
        smaller = torch.where(zeros, torch.where(a.signbit() | b.signbit(), -0.0, 0.0).double(), smaller)
        judge(binary, name, "max NaN", larger, x=x, y=y)
        judge(binary, name, "min NaN", smaller, x=x, y=y)
        dropped = torch.where(a.isnan(), b, a)
        judge(binary, name, "max", torch.where(larger.isnan(), dropped, larger), x=x, y=y)
        judge(binary, name, "min", torch.where(smaller.isnan(), dropped, smaller), x=x, y=y)
        inside = torch.where(a.isnan(), -0.75, a.clamp(-0.75, 2.0))
        judge(unary, name, "clamp", inside, x=x)
        judge(unary, name, "clamp NaN", a.clamp(-0.75, 2.0), x=x)
        finite = torch.where(x.double().isfinite() & (x.double().abs() < 1e4), x, 1.0).to(x.dtype)
        other = torch.where(finite == 0, finite.new_tensor(-3.0), finite).flip(0)
        exact = [to_odd(p, q) for p, q in zip(finite.tolist(), other.tolist(), strict=True)]
        judge(binary, name, "fma", torch.tensor(exact, dtype=torch.float64), x=finite, y=other)
    return wrong


def to_odd(p: float, q: float) -> float:
    """p * q + p in fp64 rounded to odd, so that to round it once more is to round once."""
    exact, near = Fraction(p) * Fraction(q) + Fraction(p), p * q + p
    if Fraction(near) == exact or int(torch.tensor(near, dtype=torch.float64).view(torch.int64)) & 1:
        return near
    return math.nextafter(near, math.inf if exact > Fraction(near) else -math.inf)


def reductions() -> list[str]:
    """Sums of bf16 and fp16 round each sum of two; atomics add one after the other; a maximum of all drops NaN."""
    from conformance.execution.interpreter.executor import InterpreterExecutor

    executor, wrong = InterpreterExecutor(), []
    for name, large in (("bf16", 256.0), ("fp16", 2048.0)):
        x = torch.zeros(SIZE)
        x[::16] = torch.tensor([large, 1.0, 1.0, 1.0])  # large + 1 is a tie, and is large
        x = x.to(DTYPES[name])
        # any tree adds at least one of the ones to the large number alone: 3 more never come out
        actual = launched(unary, executor, torch.zeros(SIZE, dtype=DTYPES[name]), "sum", x=x)
        if not set(actual.tolist()) <= {large, large + 2}:
            wrong.append(f"{name} sum is {actual[0].item()}")
        ones = torch.ones(SIZE, dtype=DTYPES[name])
        actual = launched(unary, executor, torch.zeros(4, dtype=DTYPES[name]), "sum of rows", x=ones)
        wrong += [] if actual.tolist() == [16.0] * 4 else [f"{name} sums of rows are {actual.tolist()}"]
        actual = launched(unary, executor, torch.zeros(SIZE), "maximum of all", x=special(name))
        wrong += [] if actual[0].item() == math.inf else [f"{name} maximum of all is {actual[0].item()}"]
    x = torch.tensor([256.0, 1.0, math.nan, 1.0] + [1.0078125, 2.0**-9, 0.5, -1.0] * 15).bfloat16()
    out = torch.zeros(SIZE, dtype=torch.bfloat16)
    actual = launched(binary, executor, out, "atomic", x=x, y=x)
    rest = round_to(torch.tensor(1.0078125 + 2.0**-9, dtype=torch.float64), "bf16").double()
    rest = round_to(round_to(rest + 0.5, "bf16").double() - 1, "bf16").item()
    expected = torch.tensor([256.0] + [rest] * 15 + [0.0] * 48).bfloat16()
    wrong += differing(actual, expected, "bf16 atomic")
    x = torch.arange(SIZE, dtype=torch.int32).to(torch.uint8)
    actual = launched(unary, executor, torch.zeros(SIZE, dtype=torch.uint8), "inverted", x=x)
    wrong += [] if torch.equal(actual, ~x) else ["inverted uint8"]
    return wrong
