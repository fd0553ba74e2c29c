"""Rotary embedding: pairs of columns are turned by angles of their own, of which cosine and sine are operands.

A pair is one column of each half of the row, or two neighbours. A last column without a partner stays as it is.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from conformance.families.rows.functions import OUT, Compute, Quantities, X, changed
from conformance.families.rows.problem import Arrays, Axis, Part, RowFunction, RowProblem
from conformance.inputs.fills import Draws, Floats
from conformance.numerics.error_bounds import Computed, joined

PAIR = Axis("pair", lambda problem: problem.columns // 2)
COS, SIN = Part("cos", "rp"), Part("sin", "rp")


def _turned(first: Computed, second: Computed, q: Quantities) -> tuple[Computed, Computed]:
    return first * q["cos"] - second * q["sin"], second * q["cos"] + first * q["sin"]


def by_halves(problem: RowProblem, q: Quantities) -> Quantities:
    """``out[i] = x[i] * cos[i] - x[i + half] * sin[i]``, ``out[i + half] = x[i + half] * cos[i] + x[i] * sin[i]``."""
    x, half = q["x"], problem.columns // 2
    parts = _turned(x.moved(lambda t: t[:, :half]), x.moved(lambda t: t[:, half : 2 * half]), q)
    return {"out": joined([*parts, x.moved(lambda t: t[:, 2 * half :])], 1)}


def by_neighbours(problem: RowProblem, q: Quantities) -> Quantities:
    """``out[2 * i] = x[2 * i] * cos[i] - x[2 * i + 1] * sin[i]``, and likewise its neighbour."""
    x, even = q["x"], problem.columns // 2 * 2
    first, second = _turned(x.moved(lambda t: t[:, :even:2]), x.moved(lambda t: t[:, 1:even:2]), q)
    pairs = joined([part.moved(lambda t: t[:, :, None]) for part in (first, second)], 2)
    return {"out": joined([pairs.moved(lambda t: t.reshape(t.shape[0], even)), x.moved(lambda t: t[:, even:])], 1)}


def _eighths(problem: RowProblem, draws: Draws) -> Arrays:
    """Integers below 16 as x, eighths up to 1 as cosine and sine: products and sums have eight bits."""
    x = draws.below(31, (problem.rows, problem.columns)) - 15
    cos, sin = (draws.below(17, (problem.rows, problem.columns // 2)) - 8 for _ in range(2))
    return {"x": np.asarray(x, np.float64), "cos": cos / 8, "sin": sin / 8}


def _on_circle(problem: RowProblem, draws: Draws) -> tuple[Floats, Floats]:
    """Returns points of the circle, from the tangents of half their angles: no library's sine is asked."""
    half = 2 * draws.normal((problem.rows, problem.columns // 2))
    return (1 - half**2) / (1 + half**2), 2 * half / (1 + half**2)


def _angles(spread: bool) -> Callable[[RowProblem, Draws], Arrays]:
    """Returns near-normal x and random angles. With ``spread`` each row of x has a magnitude of its own."""

    def draw(problem: RowProblem, draws: Draws) -> Arrays:
        size = np.ldexp(1.0, draws.below(16, (problem.rows, 1)) - 8) if spread else 1.0
        cos, sin = _on_circle(problem, draws)
        return {"x": size * draws.normal((problem.rows, problem.columns)), "cos": cos, "sin": sin}

    return draw


def _exchanged(compute: Compute) -> Compute:
    return lambda problem, q: compute(problem, {**q, "cos": q["sin"], "sin": q["cos"]})


def _rotation(name: str, compute: Compute, other: Compute, pairs: str) -> RowFunction:
    """``other``: the same with the other pairs, and its cause."""
    return RowFunction(
        name, (X, COS, SIN), (OUT,), compute, _eighths, _angles(True), steps=True, usual=_angles(False),
        axes={"p": PAIR},
        faults=(
            ("the sine has the other sign", changed("sin", lambda sin: -sin, compute)),
            ("cosine and sine are exchanged", _exchanged(compute)),
            (pairs, other),
            ("x is stored as it is", lambda problem, q: {"out": q["x"]}),
        ),
    )  # fmt: skip


ROTARY = _rotation("rotary", by_halves, by_neighbours, "neighbours are turned, not columns of both halves")
ROTARY_NEIGHBOURS = _rotation(
    "rotary_neighbours", by_neighbours, by_halves, "columns of both halves are turned, not neighbours"
)
ROTATIONS = (ROTARY, ROTARY_NEIGHBOURS)
