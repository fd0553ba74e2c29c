"""Bounds of fp32 computations: random expressions, each step of which errs as far as it may, stay inside."""

from __future__ import annotations

import random

import mpmath
import numpy as np
import pytest
import torch

from conformance.numerics import error_bounds as eb
from conformance.numerics.error_bounds import operand

mpmath.mp.prec = 200
#: Steps of random expressions: (name, on quantities, exact, ulps, absolute error).
UNARY = [
    ("exp", eb.exp, mpmath.exp, eb.ULPS["exp"], 0),
    ("log", eb.log, mpmath.log, eb.ULPS["log"], eb.LOG_NEAR_ONE),
    ("exp2", eb.exp2, lambda x: mpmath.mpf(2) ** x, eb.ULPS["exp2"], 0),
    ("log2", eb.log2, lambda x: mpmath.log(x, 2), eb.ULPS["log2"], eb.LOG2_NEAR_ONE),
    ("sqrt", eb.sqrt, mpmath.sqrt, eb.ULPS["sqrt"], 0),
    ("rsqrt", eb.rsqrt, lambda x: 1 / mpmath.sqrt(x), eb.ULPS["rsqrt"], 0),
    ("erf", eb.erf, mpmath.erf, eb.ULPS["erf"], 0),
    ("tanh", eb.tanh, mpmath.tanh, 0, eb.TANH),
    ("square", lambda x: x.square(), lambda x: x * x, 0.5, 0),
]
BINARY = [
    ("+", lambda a, b: a + b, 0.5),
    ("-", lambda a, b: a - b, 0.5),
    ("*", lambda a, b: a * b, 0.5),
    ("/", lambda a, b: a / b, eb.ULPS["divide"]),
]
POSITIVE = ("log", "log2", "sqrt", "rsqrt")


def wrong(exact, ulps, absolute, source):
    """The computed result of a step: the exact one, moved by as much as the step may err."""
    side = source.choice((-1, -0.999, 0, 0.5, 1))
    return exact + side * (abs(exact) * mpmath.mpf(ulps) * mpmath.mpf(2) ** -23 + absolute)


def grown(source):
    """One random expression of up to nine steps: its quantity, its exact value, and what a kernel may compute."""
    leaves = [float(np.float32(source.uniform(0.1, 4) * source.choice((1, -1, 1e-3)))) for _ in range(4)]
    parts = [(operand(torch.tensor([leaf])), mpmath.mpf(leaf), mpmath.mpf(leaf)) for leaf in leaves]
    for _ in range(source.randint(2, 9)):
        quantity, exact, computed = source.choice(parts)
        if source.random() < 0.5:
            name, step, function, ulps, absolute = source.choice(UNARY)
            if (name in POSITIVE and float(quantity.low) <= 1e-6) or (name in ("exp", "exp2") and abs(exact) > 20):
                continue
            parts.append((step(quantity), function(exact), wrong(function(computed), ulps, absolute, source)))
        else:
            other, exact_other, computed_other = source.choice(parts)
            name, step, ulps = source.choice(BINARY)
            if name == "/" and float(other.low) * float(other.high) <= 0:
                continue
            result = wrong(step(computed, computed_other), ulps, 0, source)
            parts.append((step(quantity, other), step(exact, exact_other), result))
        if abs(parts[-1][1]) > 1e30:
            parts.pop()
    return parts[-1]


def test_random_expressions_stay_within_their_bounds():
    source, shares = random.Random(1), []
    for _ in range(600):
        quantity, exact, computed = grown(source)
        value, error = float(quantity.value), float(quantity.error())
        assert abs(exact - value) <= abs(exact) * mpmath.mpf(2) ** -30 + error, "fp64 knows the value"
        assert abs(computed - value) <= error
        assert float(quantity.low) <= computed <= float(quantity.high)
        shares += [float(abs(computed - exact)) / error] if error > 1e-30 else []
    assert len(shares) > 300
    assert max(shares) > 0.9, "some expressions use their bound up: it is not loose by a factor"


@pytest.mark.parametrize("order", ["forwards", "backwards", "tree"])
def test_a_sum_in_any_order(order):
    terms = np.float32(np.random.default_rng(3).normal(size=(20, 301)) * 100)
    quantity = operand(torch.from_numpy(terms)).sum(-1)
    if order == "tree":
        parts = list(terms.T)
        while len(parts) > 1:
            parts = [a + b for a, b in zip(parts[::2], parts[1::2], strict=False)] + parts[len(parts) // 2 * 2 :]
        total = parts[0]
    else:
        total = np.zeros(20, np.float32)
        for column in terms.T if order == "forwards" else terms.T[::-1]:
            total = total + column
    assert total.dtype == np.float32
    assert bool(((torch.from_numpy(total)[:, None].double() - quantity.value).abs() <= quantity.error()).all())


@pytest.mark.parametrize(
    ("name", "numpy", "bound", "low", "high"),
    [
        ("exp", np.exp, eb.exp, -100, 88),
        ("log", np.log, eb.log, 1e-6, 1e6),
        ("exp2", np.exp2, eb.exp2, -120, 120),
        ("log2", np.log2, eb.log2, 1e-6, 1e6),
        ("sqrt", np.sqrt, eb.sqrt, 0, 1e6),
        ("rsqrt", lambda x: 1 / np.sqrt(x), eb.rsqrt, 1e-6, 1e6),
        ("tanh", np.tanh, eb.tanh, -20, 20),
        ("tanh by exp", lambda x: 2 / (1 + np.exp(-2 * x)) - 1, eb.tanh, -40, 40),
        ("sigmoid", lambda x: 1 / (1 + np.exp(-x)), eb.sigmoid, -80, 80),
        ("erf", lambda x: torch.erf(torch.from_numpy(x)).numpy(), eb.erf, -5, 5),
    ],
)
def test_the_functions_of_the_interpreter_are_within_their_bounds(name, numpy, bound, low, high):
    x = np.linspace(low, high, 20_001).astype(np.float32)
    quantity = bound(operand(torch.from_numpy(x)))
    computed = torch.from_numpy(numpy(x))
    assert computed.dtype == torch.float32
    assert bool(((computed.double() - quantity.value).abs() <= quantity.error()).all())


def test_a_result_that_is_rounded_to_bf16_is_outside():
    x = operand(torch.linspace(0.1, 3, 100))
    quantity = eb.exp(x) * x
    narrow = quantity.value.bfloat16().double()
    assert float(((narrow - quantity.value).abs() > quantity.error()).double().mean()) > 0.9


def test_overflow_and_underflow_are_followed():
    x = operand(torch.tensor([90.0, -90.0, float("inf")]))
    powers, gate = eb.exp(x), x * eb.sigmoid(x)
    assert powers.high.tolist() == [float("inf"), pytest.approx(1.2587e-38, rel=1e-3), float("inf")]
    assert float(powers.low[0]) == eb.LARGEST
    assert gate.low[1] < -7.4e-38 < gate.high[1] <= 1e-37, "exp(90) is infinite in fp32, so silu(-90) may be 0"
    assert bool(gate.low[1] <= 0 <= gate.high[1])
    assert gate.error().isfinite().all()


def test_what_may_become_nan_is_refused():
    x = operand(torch.tensor([1.0, 1e38]))
    big = x.square()
    with pytest.raises(ValueError, match=r"the element \[1\] is .*, but a kernel may compute NaN"):
        (big / big).error()
    with pytest.raises(ValueError, match="Use inputs for which no divisor may be zero"):
        (x / (x - x + (x + 1e-9 - x))).error()


def test_numbers_are_constants_of_the_kernel():
    x = operand(torch.tensor([3.0]))
    assert float((x * 0.1).error()) > float((x * 0.125).error()) > 0, "0.1 is rounded to fp32 first"
    assert float((0.0 * x).error()) == 0
    assert float((1.0 - x).value) == -2
    assert float((2.0 / x).value) == pytest.approx(2 / 3)


def test_a_maximum_a_choice_and_a_mean():
    x = operand(torch.tensor([[1.0, 5.0, 3.0]]))
    assert (x.max(-1).value.tolist(), x.max(-1).error().tolist()) == ([[5.0]], [[0.0]])
    assert x.mean(-1).value.tolist() == [[3.0]]
    assert x.where(x.value > 2, 0.0).value.tolist() == [[0.0, 5.0, 3.0]]
    assert float(x.sum(-1, roundings=100).error()) > 20 * float(x.sum(-1).error())
