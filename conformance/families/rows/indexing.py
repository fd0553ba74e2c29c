"""Rows by their numbers: an embedding's gather, and its gradient, which adds rows to the entries that they came from.

There are half as many entries again as rows. Numbers may repeat; each is one of an entry. Gathered rows are copies.
Added rows are fp32 sums in any order, and an entry that no row names is 0.
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
import torch
from torch import Tensor

from conformance.families.family import Needed, chosen, every
from conformance.families.rows.functions import OUT, Quantities, X
from conformance.families.rows.problem import Arrays, Axis, Part, RowFunction, RowProblem
from conformance.inputs.fills import Draws, Floats
from conformance.numerics.error_bounds import TINY, UP, Computed, U

ENTRY = Axis("entry", lambda problem: problem.rows + problem.rows // 2)
TABLE, INDEX = Part("table", "vc"), Part("index", "r", "int32")
SUMS = Part("out", "vc", "fp32")


def gather(problem: RowProblem, q: Quantities) -> Quantities:
    """``out[r] = table[index[r]]``."""
    index = q["index"].value.long()
    return {"out": q["table"].moved(lambda t: t[index])}


def scatter_add(problem: RowProblem, q: Quantities) -> Quantities:
    """``out[e] = sum(x[r] for the rows r of which index[r] == e)``: n rounded additions at most, in any order."""
    x, index = q["x"].value, q["index"].value.long()
    shape = (ENTRY.extent(problem), problem.columns)
    sums, sizes = (x.new_zeros(shape).index_add(0, index, t) for t in (x, x.abs()))
    count = torch.bincount(index, minlength=shape[0]).double()[:, None]
    error = sizes * (torch.expm1(count * math.log1p(U)) * UP) + count * TINY
    return {"out": Computed(sums, sums - error, sums + error)}


def _numbers(problem: RowProblem, draws: Draws) -> Floats:
    """Returns an entry for each row: a third of them is one of two entries, the last one among them."""
    entries = max(ENTRY.extent(problem), 1)
    often = (entries - 1) * draws.below(2, (problem.rows,))
    numbers = np.where(draws.chance(1 / 3, (problem.rows,)), often, draws.below(entries, (problem.rows,)))
    return np.asarray(numbers, np.float64)


def _integers(problem: RowProblem, draws: Draws) -> Arrays:
    """Integers up to 128: no sum of 131,072 of them is rounded."""
    first = problem.function.operands[0]
    values = draws.nonzero(128, problem.extents(first))
    return {first.name: np.asarray(values, np.float64), "index": _numbers(problem, draws)}


def _normal(problem: RowProblem, draws: Draws) -> Arrays:
    first = problem.function.operands[0]
    return {first.name: draws.normal(problem.extents(first)), "index": _numbers(problem, draws)}


def _unlike(problem: RowProblem, draws: Draws) -> Arrays:
    """Rows of unlike sizes, so that sums depend on their order."""
    arrays = _normal(problem, draws)
    first = problem.function.operands[0].name
    size = np.ldexp(1.0, draws.below(24, (len(arrays[first]), 1)) - 12)
    return {**arrays, first: size * arrays[first]}


def _of_gather(problem: RowProblem, inputs: Mapping[str, Tensor], along: Mapping[str, Tensor]) -> Needed:
    """Returns the entries of the rows that were stored, in their columns."""
    entries = chosen(ENTRY.extent(problem), inputs["index"][along["r"]].long())
    return {"table": (entries, along["c"]), "index": (along["r"],)}


def _of_scatter(problem: RowProblem, inputs: Mapping[str, Tensor], along: Mapping[str, Tensor]) -> Needed:
    """Returns the rows that name an entry that was stored, in its columns, and all numbers."""
    return {"x": (along["v"][inputs["index"].long()], along["c"]), "index": (every(problem.rows),)}


def _in_order(problem: RowProblem, q: Quantities) -> Quantities:
    return {"out": q["table"].moved(lambda t: t[: problem.rows])}


def _last_alone(problem: RowProblem, q: Quantities) -> Quantities:
    x, index = q["x"].value, q["index"].value.long()
    out = x.new_zeros((ENTRY.extent(problem), problem.columns))
    for row, entry in enumerate(index.tolist()):
        out[entry] = x[row]
    return {"out": Computed(out, out, out)}


GATHER = RowFunction(
    "gather", (TABLE, INDEX), (OUT,), gather, _integers, _unlike, steps=True, usual=_normal, axes={"v": ENTRY},
    needs=_of_gather, faults=(("rows are copied in order, whatever the index", _in_order),),
)  # fmt: skip
SCATTER_ADD = RowFunction(
    "scatter_add", (X, INDEX), (SUMS,), scatter_add, _integers, _unlike, steps=True, usual=_normal, axes={"v": ENTRY},
    needs=_of_scatter, faults=(("of the rows of one entry the last is stored, not their sum", _last_alone),),
)  # fmt: skip
INDEXED = (GATHER, SCATTER_ADD)
