"""Sorted rows, and the largest elements of each row, with their columns.

Sorting rises, the largest come first. Both are stable: of equal elements the first column comes first. NaN is larger
than every number, and -0 equals 0. A kernel that leaves the order of equals open registers a function of the values
alone.
"""

from __future__ import annotations

import numpy as np
import torch

from conformance.families.rows.functions import OUT, Quantities, X
from conformance.families.rows.problem import Arrays, Axis, Part, RowFunction, RowProblem
from conformance.inputs.fills import Draws
from conformance.numerics.error_bounds import operand

#: How many elements the largest are, or all columns.
K = 4
PLACE = Axis("place", lambda problem: min(K, problem.columns))


def _ordered(q: Quantities, *, descending: bool, places: int | None = None, stable: bool = True) -> Quantities:
    x = q["x"].value
    backwards = torch.arange(x.shape[1] - 1, -1, -1, device=x.device)
    keys = (x if stable else x[:, backwards]) + 0.0  # -0 becomes 0, which torch.sort takes for another value
    index = torch.sort(keys, dim=1, descending=descending, stable=True).indices[:, :places]
    index = index if stable else backwards[index]
    return {"out": operand(x.gather(1, index)), "index": operand(index)}


def sort(problem: RowProblem, q: Quantities) -> Quantities:
    """``out`` has the elements of each row in rising order, ``index`` their columns."""
    return _ordered(q, descending=False)


def top_k(problem: RowProblem, q: Quantities) -> Quantities:
    """``out`` has the K largest elements of each row, the largest first, ``index`` their columns."""
    return _ordered(q, descending=True, places=K)


def _few_values(problem: RowProblem, draws: Draws) -> Arrays:
    """Few values, zeros of both signs among them, so that each comes up several times; some are infinite."""
    shape = (problem.rows, problem.columns)
    values = np.array([-3.0, -1.0, -0.0, 0.0, 1.0, 2.5, 8.0, np.inf, -np.inf])
    return {"x": values[draws.below(len(values), shape)]}


def _with_nan(problem: RowProblem, draws: Draws) -> Arrays:
    """Values of all sizes below zero, every eighth of them NaN: what stands for no column must not be stored."""
    shape = (problem.rows, problem.columns)
    values = -np.ldexp(1 + draws.uniform(shape), draws.below(24, shape) - 12)
    return {"x": np.where(draws.chance(1 / 8, shape), np.nan, values)}


def _falling(problem: RowProblem, q: Quantities) -> Quantities:
    return _ordered(q, descending=True)


def _last_of_equals(problem: RowProblem, q: Quantities) -> Quantities:
    return _ordered(q, descending=False, stable=False)


def _smallest(problem: RowProblem, q: Quantities) -> Quantities:
    return _ordered(q, descending=False, places=K)


def _last_of_equal_tops(problem: RowProblem, q: Quantities) -> Quantities:
    return _ordered(q, descending=True, places=K, stable=False)


_BACKWARDS = "of equal elements the last column comes first"
SORT = RowFunction(
    "sort", (X,), (OUT, Part("index", "rc", "int32")), sort, _few_values, _with_nan, steps=True,
    faults=(("the order falls", _falling), (_BACKWARDS, _last_of_equals)),
)  # fmt: skip
TOP_K = RowFunction(
    "top_k", (X,), (Part("out", "rk"), Part("index", "rk", "int32")), top_k, _few_values, _with_nan, steps=True,
    axes={"k": PLACE}, faults=(("the smallest elements are taken", _smallest), (_BACKWARDS, _last_of_equal_tops)),
)  # fmt: skip
ORDERS = (SORT, TOP_K)
