"""Cross entropy of rows of logits and a target column each, with and without label smoothing, and its gradient.

A row whose target is :data:`IGNORED` has the loss 0 and the gradient 0, whatever its logits. The weight of the target
is 1 - SMOOTHING, and SMOOTHING is spread evenly over all columns. Losses are fp32.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from conformance.families.rows.functions import (
    APART,
    OUT,
    Quantities,
    X,
    changed,
    in_base_two,
    one_or_several,
    shifted_rows,
    weights_of,
)
from conformance.families.rows.problem import Arrays, Part, RowFunction, RowProblem, normal_values
from conformance.inputs.fills import Draws, Floats
from conformance.numerics.error_bounds import Computed, either, exp, log

TARGET, LSE, GRAD = Part("target", "r", "int32"), Part("lse", "r", "fp32"), Part("grad", "r", "fp32")
LOSS = Part("loss", "r", "fp32")
#: The target of a row that does not count.
IGNORED = -100
#: Spread over all columns by a smoothed loss. A power of two, which every format holds.
SMOOTHING = 2.0**-3


def _target(q: Quantities) -> tuple[Tensor, Tensor]:
    """Returns the column of each row's target, 0 for an ignored row, and which rows are ignored; both (rows, 1)."""
    target = q["target"].value[:, None].long()
    return target.clamp(min=0), target == IGNORED


def _logits(q: Quantities) -> tuple[Computed, Computed]:
    """Returns the logarithm of the sum of the exponentials of each row, -infinity if all logits are, and the logit of
    its target."""
    x, (column, _) = q["x"], _target(q)
    top = x.max(-1)
    lse = (top + log(weights_of(x)[2])).where(top.value != -math.inf, -math.inf)
    return lse, x.moved(lambda t: t.gather(1, column))


def cross_entropy(problem: RowProblem, q: Quantities) -> Quantities:
    """``lse = log(sum(exp(x)))`` and ``loss = lse - x[target]``, 0 for an ignored row."""
    lse, logit = _logits(q)
    return {"loss": (lse - logit).where(~_target(q)[1], 0.0), "lse": lse}


def cross_entropy_smoothed(problem: RowProblem, q: Quantities) -> Quantities:
    """``loss = lse - (1 - s) * x[target] - s * mean(x)``, by this sum or by one of two losses, 0 for an ignored row."""
    (lse, logit), mean = _logits(q), q["x"].mean(-1)
    one = (lse - logit * (1 - SMOOTHING)) - mean * SMOOTHING
    two = (lse - logit) * (1 - SMOOTHING) + (lse - mean) * SMOOTHING
    return {"loss": either(one, two).where(~_target(q)[1], 0.0), "lse": lse}


def _gradient(smoothing: float) -> Callable[[RowProblem, Quantities], Quantities]:
    """Returns the computation ``out = (exp(x - lse) - weight) * grad``, where the weight is 1 - s + s / columns at the
    target, else s / columns; 0 in an ignored row."""

    def compute(problem: RowProblem, q: Quantities) -> Quantities:
        column, ignored = _target(q)
        lse, grad = (q[name].moved(lambda t: t[:, None]) for name in ("lse", "grad"))
        probability = exp(q["x"] - lse)
        here = torch.arange(problem.columns, device=column.device)[None, :] == column
        one, two = probability - (1 - smoothing), probability
        if smoothing:
            even = smoothing / problem.columns
            one = either(one - even, (probability - even) - (1 - smoothing))
            two = probability - even
        difference = one.where(here, two)
        return {"out": (difference * grad).where(~ignored, 0.0)}

    return compute


def _targets(problem: RowProblem, draws: Draws) -> Floats:
    """Returns a column for each row: ignored, the first, the last, and then any of them or another one."""
    last, kinds = problem.columns - 1, draws.below(5, (problem.rows,))
    kinds[:3] = np.arange(3)[: problem.rows] if problem.rows > 2 else kinds[:3]
    columns = np.choose(kinds.clip(max=3), [IGNORED, 0, last, draws.below(last + 1, (problem.rows,))])
    return np.asarray(columns if problem.columns else np.full(problem.rows, IGNORED), np.float64)


def _with_targets(draw: Callable[[RowProblem, Draws], Arrays]) -> Callable[[RowProblem, Draws], Arrays]:
    return lambda problem, draws: {**draw(problem, draws), "target": _targets(problem, draws)}


def _one_top(problem: RowProblem, draws: Draws) -> Arrays:
    """Rows with one top, or with several tops of which all others are far below; lse is the top, gradients are powers
    of two."""
    x = one_or_several(lambda most: most)(problem, draws)["x"]
    top = x.max(1, initial=-np.inf)
    grad = np.ldexp(1.0, draws.below(7, (problem.rows,)) - 3) * draws.signs((problem.rows,))
    return {"x": x, "target": _targets(problem, draws), "lse": top, "grad": grad}


def _near(spread: float) -> Callable[[RowProblem, Draws], Arrays]:
    """Returns near-normal logits times ``spread``, and lse that are about those of such rows."""

    def draw(problem: RowProblem, draws: Draws) -> Arrays:
        arrays = normal_values(problem, draws)
        lse = spread * (3 + draws.uniform((problem.rows,)))
        return {**arrays, "x": spread * arrays["x"], "lse": lse, "target": _targets(problem, draws)}

    return draw


def _no_target(problem: RowProblem, q: Quantities) -> Quantities:
    outputs = problem.function.compute(problem, q)
    return {**outputs, "loss": outputs["lse"].where(~_target(q)[1], 0.0)}


def _apart(problem: RowProblem, draws: Draws) -> Arrays:
    """Rows with one top; others are at multiples of APART below it, never at -infinity, of which there is no mean."""
    arrays = one_or_several(lambda most: 0)(problem, draws)
    return {"x": np.maximum(arrays["x"], -16 * APART), "target": _targets(problem, draws)}


def _loss(name: str, compute: Callable[[RowProblem, Quantities], Quantities], smoothed: bool) -> RowFunction:
    other = ("no label is smoothed", cross_entropy) if smoothed else ("labels are smoothed", cross_entropy_smoothed)
    exact = _apart if smoothed else _with_targets(one_or_several(lambda most: 0))
    return RowFunction(
        name, (X, TARGET), (LOSS, LSE), compute, exact, _with_targets(shifted_rows),
        steps=("lse",) if smoothed else True, usual=_with_targets(normal_values), infinity=np.nan,
        of_nothing=lambda problem: {"lse": -math.inf},
        faults=(in_base_two(compute), ("the logit of the target is not subtracted", _no_target), other),
    )  # fmt: skip


def _loss_gradient(name: str, smoothing: float, other: tuple[str, float]) -> RowFunction:
    compute = _gradient(smoothing)
    return RowFunction(
        name, (X, TARGET, LSE, GRAD), (OUT,), compute, _one_top, _near(8.0), steps=not smoothing, usual=_near(1.0),
        infinity=np.nan,
        faults=(
            in_base_two(compute),
            ("grad is left out", changed("grad", lambda t: t.moved(torch.ones_like), compute)),
            (other[0], _gradient(other[1])),
            ("the target's weight is not subtracted", _gradient(1.0)),
        ),
    )  # fmt: skip


CROSS_ENTROPY = _loss("cross_entropy", cross_entropy, False)
CROSS_ENTROPY_SMOOTHED = _loss("cross_entropy_smoothed", cross_entropy_smoothed, True)
CROSS_ENTROPY_BACKWARD = _loss_gradient("cross_entropy_backward", 0.0, ("labels are smoothed", SMOOTHING))
CROSS_ENTROPY_SMOOTHED_BACKWARD = _loss_gradient(
    "cross_entropy_smoothed_backward", SMOOTHING, ("no label is smoothed", 0.0)
)
LOSSES = (CROSS_ENTROPY, CROSS_ENTROPY_SMOOTHED, CROSS_ENTROPY_BACKWARD, CROSS_ENTROPY_SMOOTHED_BACKWARD)
