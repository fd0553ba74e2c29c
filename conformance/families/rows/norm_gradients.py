"""Gradients of layer norm and RMS norm: of x by rows, and of weight and bias by columns, in fp32.

The mean and ``rstd``, the reciprocal root, are operands, as forward kernels keep them. With ``y = (x - mean) * rstd``
and ``g = grad * weight``, both fp32, the gradient of x is ``(g - y * mean(y * g) - mean(g)) * rstd``. RMS norm has no
mean. The gradient of the weight is the sum of ``grad * y`` over the rows, that of the bias the sum of ``grad``.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from conformance.families.rows.functions import OUT, WEIGHT, Compute, Quantities, X, another, changed, constant
from conformance.families.rows.problem import Arrays, Part, RowFunction, RowProblem, normal_values
from conformance.inputs.fills import Draws, Floats
from conformance.numerics.error_bounds import Computed, either

GRAD, MEAN, RSTD = Part("grad"), Part("mean", "r", "fp32"), Part("rstd", "r", "fp32")
GRAD_WEIGHT, GRAD_BIAS = Part("grad_weight", "c", "fp32"), Part("grad_bias", "c", "fp32")


def _column(part: Computed) -> Computed:
    return part.moved(lambda t: t[:, None])


def _scaled(q: Quantities) -> tuple[Computed, Computed]:
    """Returns the normalised x and the gradient times the weight."""
    x = q["x"] - _column(q["mean"]) if "mean" in q else q["x"]
    return x * _column(q["rstd"]), q["grad"] * q["weight"]


def layer_norm_backward(problem: RowProblem, q: Quantities) -> Quantities:
    """``out = (g - y * mean(y * g) - mean(g)) * rstd``, with the differences in either order, and both sums."""
    (y, g), rstd = _scaled(q), _column(q["rstd"])
    along, even = y * (y * g).mean(-1), g.mean(-1)
    out = either((g - along) - even, either(g - (along + even), (g - even) - along)) * rstd
    return {"out": out, "grad_weight": (q["grad"] * y).sum(0), "grad_bias": q["grad"].sum(0)}


def rms_norm_backward(problem: RowProblem, q: Quantities) -> Quantities:
    """``out = (g - y * mean(y * g)) * rstd``, and the sum for the weight."""
    y, g = _scaled(q)
    out = (g - y * (y * g).mean(-1)) * _column(q["rstd"])
    return {"out": out, "grad_weight": (q["grad"] * y).sum(0)}


def _with_sum(size: int, total: int) -> Floats:
    """Returns ``size`` integers that are not 0 and whose sum is ``total``, 0 or 1; of a single one 0 if it has to be.

    >>> _with_sum(3, 0).tolist(), _with_sum(4, 1).tolist()
    ([2.0, -1.0, -1.0], [2.0, -1.0, 1.0, -1.0])
    """
    values = np.where(np.arange(size) % 2, -1.0, 1.0)
    if size and size % 2 != total:
        values[:1] = 2.0
        values[2:] *= -1 if total == 0 else 1
    return values if size != 1 else np.array([float(total)])


def _orthogonal(centred: bool) -> Callable[[RowProblem, Draws], Arrays]:
    """Returns operands of which the gradient of x has few bits.

    Half of each row's y is 1, half is -1, and y is 0 in a last column without a partner. g is a + b * y + z, where the
    sums of z and of z * y are 0. So the mean of g is a, that of y * g is b, and what is left is z. An odd row has
    b = 0; without ``centred`` a is 0.
    """

    def draw(problem: RowProblem, draws: Draws) -> Arrays:
        rows, columns = problem.rows, problem.columns
        half, odd = columns // 2, columns % 2
        place = np.argsort(draws.words((rows, columns)), axis=1, kind="stable")
        y = np.concatenate([np.ones(half), -np.ones(half), np.zeros(odd)])[place]
        z = np.concatenate([_with_sum(half, odd), _with_sum(half, odd), -2.0 * np.ones(odd)])[place]
        rest = z * np.ldexp(1.0, draws.below(3, (rows, 1)))
        along = (draws.below(7, (rows, 1)) - 3) * (1 - odd)
        even = (draws.below(7, (rows, 1)) - 3) * centred
        weight: Floats = np.ldexp(1.0, draws.below(3, (columns,)) - 1) * draws.signs((columns,))
        root = draws.below(5, (rows,)) - 2
        mean = np.asarray(2 * (draws.below(9, (rows,)) - 4) * centred, np.float64)
        arrays: Arrays = {"x": y * np.ldexp(1.0, -root)[:, None] + mean[:, None], "weight": weight}
        arrays |= {"grad": (even + along * y + rest) / weight, "mean": mean, "rstd": np.ldexp(1.0, root)}
        return arrays if centred else {name: array for name, array in arrays.items() if name != "mean"}

    return draw


def _normal(spread: bool) -> Callable[[RowProblem, Draws], Arrays]:
    """Returns near-normal operands and positive rstd; ``spread``: rows whose sizes differ, with the rstd of each."""

    def draw(problem: RowProblem, draws: Draws) -> Arrays:
        power = draws.below(9, (problem.rows,)) - 4 if spread else np.zeros(problem.rows, np.int64)
        arrays = normal_values(problem, draws)
        arrays["rstd"] = np.ldexp(0.5 + draws.uniform((problem.rows,)), -power)
        for name in ("x", "mean"):
            if name in arrays:
                arrays[name] = (arrays[name].T * np.ldexp(1.0, power)).T
        return arrays

    return draw


def _without(dropped: str) -> Compute:
    """Returns the gradient without one of its means."""

    def compute(problem: RowProblem, q: Quantities) -> Quantities:
        (y, g), rstd = _scaled(q), _column(q["rstd"])
        even = 0.0 if dropped == "even" or "mean" not in q else g.mean(-1)
        along = 0.0 if dropped == "along" else y * (y * g).mean(-1)
        return {**problem.function.compute(problem, q), "out": (g - along - even) * rstd}

    return compute


def _faults(compute: Compute) -> tuple[tuple[str, Compute], ...]:
    def unweighted(problem: RowProblem, q: Quantities) -> Quantities:
        plain = constant("weight", 1.0, "")(compute)[1]
        return {**compute(problem, q), "out": plain(problem, q)["out"]}

    def not_scaled(problem: RowProblem, q: Quantities) -> Quantities:
        outputs = compute(problem, q)
        return {**outputs, "out": outputs["out"] / _column(q["rstd"])}

    def of_grad_alone(problem: RowProblem, q: Quantities) -> Quantities:
        return {**compute(problem, q), "grad_weight": q["grad"].sum(0)}

    return (
        ("the weight is left out", unweighted),
        another("weight", -1)(compute),
        another("weight", 1)(compute),
        ("the mean of y * g is not subtracted", _without("along")),
        ("the gradient of x is not multiplied by rstd", not_scaled),
        ("the gradient of the weight is the sum of grad alone", of_grad_alone),
    )


LAYER_NORM_BACKWARD = RowFunction(
    "layer_norm_backward", (X, GRAD, WEIGHT, MEAN, RSTD), (OUT, GRAD_WEIGHT, GRAD_BIAS), layer_norm_backward,
    _orthogonal(True), _normal(True), steps=("grad_weight", "grad_bias"), usual=_normal(False),
    faults=(
        *_faults(layer_norm_backward),
        ("the mean of g is not subtracted", _without("even")),
        ("the mean of x is not subtracted", changed("mean", lambda mean: mean * 0.0, layer_norm_backward)),
    ),
)  # fmt: skip
RMS_NORM_BACKWARD = RowFunction(
    "rms_norm_backward", (X, GRAD, WEIGHT, RSTD), (OUT, GRAD_WEIGHT), rms_norm_backward, _orthogonal(False),
    _normal(True), steps=("grad_weight",), usual=_normal(False), faults=_faults(rms_norm_backward),
)  # fmt: skip
NORM_GRADIENTS = (LAYER_NORM_BACKWARD, RMS_NORM_BACKWARD)
