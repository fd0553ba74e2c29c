"""The functions of rows: softmax and log-softmax, RMS norm, layer norm and L2 norm, in fp32 between load and store.

Each is the computation that the bound follows, the operands of its exact fill, and its likely faults. A maximum is
subtracted before any exponential. A softmax may keep a running maximum, which it updates after 16 columns or more. A
layer norm subtracts the mean before it squares.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Mapping

import numpy as np
import torch

from conformance.families.rows.problem import Arrays, Part, RowFunction, RowProblem
from conformance.inputs.fills import Draws, Floats
from conformance.numerics.error_bounds import ULP, ULPS, Computed, U, either, exp, log, rsqrt

Quantities = Mapping[str, Computed]
Compute = Callable[[RowProblem, Quantities], Quantities]

X, OUT, WEIGHT, BIAS = Part("x"), Part("out"), Part("weight", "c"), Part("bias", "c")
RESIDUAL, ADDED = Part("residual"), Part("added")
#: The fewest columns between two updates of a running maximum.
BLOCK = 16
#: Exact operands of a softmax are multiples of this, so that exponentials of their differences are 1 or 0 in fp32.
APART = 128.0


# Softmax


def weights_of(x: Computed) -> tuple[Computed, Computed, Computed]:
    """Returns x minus the maximum of its row, the exponentials of these differences, and their sum.

    A running sum is multiplied by an exponential at each update of the maximum, which passes an error of 4 ulp and a
    rounding. The arguments of these exponentials sum up to the range of the row at most.
    """
    shifted = x - x.max(-1)
    weights = exp(shifted)
    finite = torch.where(shifted.value.isfinite(), shifted.value, 0.0)
    updates = math.ceil(x.value.shape[-1] / BLOCK)
    roundings = updates * (ULPS["exp"] * ULP / U + 1) + 2.001 * float(-finite.min())
    return shifted, weights, weights.sum(-1, roundings)


def softmax(problem: RowProblem, q: Quantities) -> Quantities:
    """``out = exp(x - max) / sum(exp(x - max))`` along each row."""
    _, weights, total = weights_of(q["x"])
    return {"out": weights / total}


def log_softmax(problem: RowProblem, q: Quantities) -> Quantities:
    """``out = x - max - log(sum(exp(x - max)))``, or x minus the sum of the maximum and the logarithm."""
    shifted, _, total = weights_of(q["x"])
    return {"out": either(shifted - log(total), q["x"] - (q["x"].max(-1) + log(total)))}


def one_or_several(most: Callable[[int], int]) -> Callable[[RowProblem, Draws], Arrays]:
    """Returns rows whose largest lanes are 2**k equal ones, k up to ``most(log2(columns))``; others are far below, each
    at a distance of its own, or -infinity."""

    def draw(problem: RowProblem, draws: Draws) -> Arrays:
        shape = (problem.rows, problem.columns)
        top = APART / 2 * (draws.below(5, (problem.rows, 1)) - 2)
        count = 2 ** draws.below(most(int(math.log2(max(problem.columns, 1)))) + 1, (problem.rows, 1))
        place = np.argsort(draws.words(shape), axis=1, kind="stable")
        x = top - APART * (1 + draws.below(15, shape))
        x[draws.chance(0.25, shape)] = -np.inf
        return {"x": np.where(place < count, top, x)}

    return draw


def shifted_rows(problem: RowProblem, draws: Draws) -> Arrays:
    """Rows of a few binades, far from zero: without the maximum their exponentials are infinite or zero."""
    shape = (problem.rows, problem.columns)
    return {"x": 4 * draws.normal(shape) + 100.0 * draws.signs((problem.rows, 1))}


def changed(name: str, change: Callable[[Computed], Computed], compute: Compute) -> Compute:
    """Returns ``compute`` with one operand changed."""
    return lambda problem, q: compute(problem, {**q, name: change(q[name])})


def _unscaled(problem: RowProblem, q: Quantities) -> Quantities:
    _, weights, _ = weights_of(q["x"])
    return {"out": weights}


def _no_logarithm(problem: RowProblem, q: Quantities) -> Quantities:
    return {"out": q["x"] - q["x"].max(-1)}


def in_base_two(compute: Compute) -> tuple[str, Compute]:
    return "the exponentials have base 2, not e", changed("x", lambda x: x * math.log(2), compute)


# Norms


def rms_norm(problem: RowProblem, q: Quantities) -> Quantities:
    """``out = x / sqrt(mean(x**2) + eps) * weight``."""
    x = q["x"]
    return {"out": x * rsqrt(x.square().mean(-1) + problem.eps) * q["weight"]}


def add_rms_norm(problem: RowProblem, q: Quantities) -> Quantities:
    """``added = x + residual``, and the RMS norm of that sum before it is rounded to the dtype of ``added``."""
    added = q["x"] + q["residual"]
    return {**rms_norm(problem, {"x": added, "weight": q["weight"]}), "added": added}


def layer_norm(problem: RowProblem, q: Quantities) -> Quantities:
    """``out = (x - mean) / sqrt(mean((x - mean)**2) + eps) * weight + bias``."""
    centred = q["x"] - q["x"].mean(-1)
    scaled = centred * rsqrt(centred.square().mean(-1) + problem.eps)
    return {"out": scaled * q["weight"] + q["bias"]}


def l2_norm(problem: RowProblem, q: Quantities) -> Quantities:
    """``out = x / sqrt(sum(x**2) + eps)``."""
    x = q["x"]
    return {"out": x * rsqrt(x.square().sum(-1) + problem.eps)}


def _odd(draws: Draws, columns: int, limit: int) -> Floats:
    """Returns odd integers below ``limit`` of both signs."""
    return np.asarray((2 * draws.below(limit // 2, (columns,)) + 1) * draws.signs((columns,)), np.float64)


def _one_size(problem: RowProblem, draws: Draws) -> Arrays:
    """Rows of +-2**e: the mean of their squares is 4**e."""
    shape = (problem.rows, problem.columns)
    size = np.ldexp(1.0, draws.below(7, (problem.rows, 1)))
    return {"x": size * draws.signs(shape), "weight": _odd(draws, problem.columns, 128)}


def _split_in_two(problem: RowProblem, draws: Draws) -> Arrays:
    """x and a residual whose sum is a row of +-2**e; each of them is twice as large, or absent."""
    arrays = _one_size(problem, draws)
    shape = arrays["x"].shape
    part = arrays["x"] * draws.below(3, shape)
    return {**arrays, "x": arrays["x"] - part, "residual": part}


def _two_values(problem: RowProblem, draws: Draws) -> Arrays:
    """Rows of two values, m + s and m - s, as often as each other: the variance is s**2. A row of odd length has one m
    more, and is not exact."""
    rows, columns = problem.rows, problem.columns
    order = np.argsort(draws.words((rows, columns)), axis=1, kind="stable")
    side = np.where(order < columns // 2, 1, np.where(order < columns // 2 * 2, -1, 0))
    size = np.ldexp(1.0, draws.below(4, (rows, 1)) + 1)
    bias = 2.0 * (draws.below(17, (columns,)) - 8)
    x = np.asarray(size * (side + draws.below(5, (rows, 1)) - 2), np.float64)
    return {"x": x, "weight": _odd(draws, columns, 8), "bias": np.asarray(bias, np.float64)}


def _power_of_four(problem: RowProblem, draws: Draws) -> Arrays:
    """Rows in which 4**j elements are +-2**e and all others 0: the root of the sum of squares is 2**(e + j)."""
    rows, columns = problem.rows, problem.columns
    most = int(math.log2(max(columns, 1))) // 2
    count = 4 ** draws.below(most + 1, (rows, 1))
    order = np.argsort(draws.words((rows, columns)), axis=1, kind="stable")
    size = np.ldexp(1.0, draws.below(7, (rows, 1)))
    return {"x": np.where(order < count, size * draws.signs((rows, columns)), 0.0)}


def unlike_rows(*more: str) -> Callable[[RowProblem, Draws], Arrays]:
    """Returns near-normal rows times 2**-12 to 2**3: in the smallest eps is most of what the root is taken of."""

    def draw(problem: RowProblem, draws: Draws) -> Arrays:
        shape = (problem.rows, problem.columns)
        size = np.ldexp(1.0, draws.below(16, (problem.rows, 1)) - 12)
        arrays: Arrays = {name: size * draws.normal(shape) for name in ("x", "residual") if name in ("x", *more)}
        return arrays | {name: draws.normal((problem.columns,)) for name in more if name != "residual"}

    return draw


def another(name: str, shift: int) -> Callable[[Compute], tuple[str, Compute]]:
    def fault(compute: Compute) -> tuple[str, Compute]:
        cause = f"the {name} of the {'next' if shift < 0 else 'previous'} column is used"
        return cause, changed(name, lambda part: part.moved(lambda t: torch.roll(t, shift, -1)), compute)

    return fault


def constant(name: str, value: float, cause: str) -> Callable[[Compute], tuple[str, Compute]]:
    def change(part: Computed) -> Computed:
        return part.moved(lambda tensor: torch.full_like(tensor, value))

    return lambda compute: (cause, changed(name, change, compute))


def _no_eps(compute: Compute) -> tuple[str, Compute]:
    return "eps is not added", lambda problem, q: compute(dataclasses.replace(problem, eps=2.0**-140), q)


def _times_n(compute: Compute, by: Callable[[int], float], cause: str) -> tuple[str, Compute]:
    """Returns the norm whose squares are divided by another number: x is scaled, and the result scaled back."""

    def fault(problem: RowProblem, q: Quantities) -> Quantities:
        factor = math.sqrt(by(problem.columns))
        scaled = dataclasses.replace(problem, eps=problem.eps / factor**2)
        outputs = compute(scaled, q)
        return {**outputs, "out": outputs["out"] * (1 / factor)}

    return cause, fault


_SUM_OF_SQUARES = "the squares are summed, not averaged"
SOFTMAX = RowFunction(
    "softmax", (X,), (OUT,), softmax, one_or_several(lambda most: most), shifted_rows, steps=True,
    faults=(in_base_two(softmax), ("the sum of the exponentials is not divided by", _unscaled)),
)  # fmt: skip
LOG_SOFTMAX = RowFunction(
    "log_softmax", (X,), (OUT,), log_softmax, one_or_several(lambda most: 0), shifted_rows, steps=True,
    faults=(("the logarithm of the sum is not subtracted", _no_logarithm),),
)  # fmt: skip
_OF_WEIGHT = (constant("weight", 1.0, "the weight is left out"), another("weight", -1), another("weight", 1))
RMS_NORM = RowFunction(
    "rms_norm", (X, WEIGHT), (OUT,), rms_norm, _one_size, unlike_rows("weight"),
    faults=(
        *(fault(rms_norm) for fault in _OF_WEIGHT),
        _no_eps(rms_norm),
        _times_n(rms_norm, lambda n: n, _SUM_OF_SQUARES),
    ),
)  # fmt: skip
ADD_RMS_NORM = RowFunction(
    "add_rms_norm", (X, RESIDUAL, WEIGHT), (OUT, ADDED), add_rms_norm, _split_in_two,
    unlike_rows("residual", "weight"),
    faults=(
        constant("residual", 0.0, "the residual is left out")(add_rms_norm),
        *(fault(add_rms_norm) for fault in _OF_WEIGHT),
        _no_eps(add_rms_norm),
        _times_n(add_rms_norm, lambda n: n, _SUM_OF_SQUARES),
    ),
)  # fmt: skip
LAYER_NORM = RowFunction(
    "layer_norm", (X, WEIGHT, BIAS), (OUT,), layer_norm, _two_values, unlike_rows("weight", "bias"),
    faults=(
        *(fault(layer_norm) for fault in _OF_WEIGHT),
        constant("bias", 0.0, "the bias is left out")(layer_norm),
        another("bias", -1)(layer_norm),
        another("bias", 1)(layer_norm),
        _no_eps(layer_norm),
    ),
)  # fmt: skip
L2_NORM = RowFunction(
    "l2_norm", (X,), (OUT,), l2_norm, _power_of_four, unlike_rows(),
    faults=(_no_eps(l2_norm), _times_n(l2_norm, lambda n: 1 / max(n, 1), "the squares are averaged, not summed")),
)  # fmt: skip
NORMALISATIONS = (SOFTMAX, LOG_SOFTMAX, RMS_NORM, ADD_RMS_NORM, LAYER_NORM, L2_NORM)
