"""Reductions of rows: the sum in fp32, and the maximum with its column.

Of equal maxima the first counts. A row with NaN has the maximum NaN, and the column of the first NaN. A row without an
element has the sum 0, the maximum -infinity and the column 0.
"""

from __future__ import annotations

import math

import numpy as np
import torch

from conformance.families.rows.functions import Quantities, X
from conformance.families.rows.problem import Arrays, Part, RowFunction, RowProblem
from conformance.inputs.fills import Draws
from conformance.numerics.error_bounds import Computed, operand

SUM, LARGEST, INDEX = Part("out", "r", "fp32"), Part("out", "r"), Part("index", "r", "int32")


def row_sum(problem: RowProblem, q: Quantities) -> Quantities:
    """``out = sum(x)`` along each row, in any order."""
    return {"out": q["x"].sum(-1)}


def row_max(problem: RowProblem, q: Quantities) -> Quantities:
    """``out = max(x)`` and ``index``, the first column that has it."""
    return _extreme(q["x"], first=True)


def _extreme(x: Computed, *, first: bool) -> Quantities:
    largest = x.max(-1)
    here = (x.value == largest.value) | x.value.isnan()
    columns = torch.arange(x.value.shape[-1], device=here.device).expand(here.shape)
    index = torch.where(here, columns, math.inf).amin(-1) if first else torch.where(here, columns, -1).amax(-1)
    return {"out": largest, "index": operand(index)}


def _integers(problem: RowProblem, draws: Draws) -> Arrays:
    """Integers up to 128 of both signs: fp32 holds every partial sum of 131,072 of them."""
    return {"x": np.asarray(draws.nonzero(128, (problem.rows, problem.columns)), np.float64)}


def _cancelling(problem: RowProblem, draws: Draws) -> Arrays:
    """Rows in which large values cancel, and small ones are left."""
    shape = (problem.rows, problem.columns)
    size = np.ldexp(1.0, draws.below(13, shape))
    large = np.where(np.arange(problem.columns) < problem.columns // 2 * 2, size * draws.normal(shape), 0.0)
    large[:, 1 : large.shape[1] // 2 * 2 : 2] = -large[:, 0 : large.shape[1] // 2 * 2 : 2]
    return {"x": np.where(draws.chance(0.25, shape), draws.normal(shape), large)}


def _ties(problem: RowProblem, draws: Draws) -> Arrays:
    """Few values, so that most rows have their largest several times; some rows are -infinity throughout."""
    rows, columns = problem.rows, problem.columns
    x = np.asarray(draws.below(4, (rows, columns)) - draws.below(64, (rows, 1)), np.float64)
    x[draws.chance(0.25, (rows,))] = -np.inf
    return {"x": x}


def _negative(problem: RowProblem, draws: Draws) -> Arrays:
    """Rows below zero of all sizes: what stands for columns that do not exist must not win. Four kinds of rows take
    turns. The first has NaN in the last column and in another one. The largest is in the last column of the second
    kind, in the first column of the third, and anywhere in the fourth."""
    rows, columns = problem.rows, problem.columns
    x = -np.ldexp(1.0, draws.below(24, (rows, 1)) - 12) * (1 + draws.uniform((rows, columns)))
    kind = np.arange(rows) % 4
    x[kind == 0, draws.below(columns, (rows,))[kind == 0]] = np.nan
    x[kind == 0, -1] = np.nan
    x[kind == 1, -1] = x[kind == 2, 0] = -(2.0**-14)
    return {"x": x}


def _average(problem: RowProblem, q: Quantities) -> Quantities:
    return {"out": q["x"].mean(-1)}


def _last_of_equals(problem: RowProblem, q: Quantities) -> Quantities:
    return _extreme(q["x"], first=False)


def _smallest(problem: RowProblem, q: Quantities) -> Quantities:
    outputs = _extreme(-q["x"], first=True)
    return {**outputs, "out": -outputs["out"]}


ROW_SUM = RowFunction(
    "row_sum", (X,), (SUM,), row_sum, _integers, _cancelling, steps=True,
    faults=(("the row is averaged, not summed", _average),),
)  # fmt: skip
ROW_MAX = RowFunction(
    "row_max", (X,), (LARGEST, INDEX), row_max, _ties, _negative, steps=True,
    of_nothing=lambda problem: {"out": -math.inf},
    faults=(
        ("the last of equal maxima is taken", _last_of_equals),
        ("the smallest element is taken", _smallest),
    ),
)  # fmt: skip
REDUCTIONS = (ROW_SUM, ROW_MAX)
