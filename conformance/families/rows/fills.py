"""Fills of functions of rows."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch
from torch import Tensor

from conformance.families.rows.problem import RowProblem
from conformance.families.rows.reference import evaluated
from conformance.inputs.fills import FillKind, FillRequest, FillSet
from conformance.numerics.contract import Contract
from conformance.numerics.error_bounds import Computed
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, bits, round_to

EXACT = FillKind(
    "exact-rows",
    True,
    "rows whose results have few bits: equal largest elements, squares with a mean of 4**e, two values as often as "
    "each other. fp32 norms of them are judged by a bound, since devices differ in the last bits of a root",
    "a wrong row, column or count; an element that is left out or comes twice; a maximum that is not subtracted",
)
RANDN = FillKind("randn", False, "near-normal values", "errors past the bound")
SPREAD = FillKind(
    "spread",
    False,
    "rows of unlike sizes, or far from zero",
    "eps that is left out, added twice or after the root; exponentials that overflow",
)
SPECIAL = FillKind(
    "special",
    False,
    "near-normal values; NaN in the first row and infinity in the second",
    "NaN or infinity that vanishes, or that reaches another row",
)
#: Rows that the fill "special" needs: one of them has no special value.
LEAST_ROWS = 3


def applicable(problem: RowProblem, contract: Contract) -> tuple[str, ...]:
    """All of them; without an element the first alone, and without three rows no "special"."""
    if not problem.operands[0].numel:
        return (EXACT.name,)
    return FILLS.names if problem.rows >= LEAST_ROWS and problem.function.special else FILLS.names[:3]


def build(request: FillRequest[RowProblem]) -> Fill:
    """Returns the fill that ``request`` names; see :class:`FillSet`."""
    problem, draws, function = request.problem, request.draws(), request.problem.function
    draw = {EXACT.name: function.exact, SPREAD.name: function.spread}.get(request.name, function.usual)
    arrays = draw(problem, draws)
    if request.name == SPECIAL.name:
        places = draws.below(problem.columns, (2,))
        first = arrays[function.operands[0].name]
        first[0, places[0]], first[1, places[1]] = np.nan, function.infinity
    inputs = {
        part.name: round_to(torch.from_numpy(np.ascontiguousarray(arrays[part.name], np.float64)), part.dtype)
        for part in problem.operands
    }
    outputs = evaluated(problem, inputs, device=request.device or "cpu")
    fills = {name: _of_output(request, inputs, name, part) for name, part in outputs.items()}
    main = fills.pop(problem.output.name)
    return dataclasses.replace(main, parts=fills)


def _of_output(request: FillRequest[RowProblem], inputs: dict[str, Tensor], name: str, part: Computed) -> Fill:
    """Returns the fill of one output: bit by bit if every value in its interval rounds alike."""
    dtype = request.problem.operand(name).dtype
    if request.name == SPECIAL.name:
        return request.fill("special", inputs, part.value, error_of(part, dtype))
    if request.name == EXACT.name and (request.problem.function.exact_steps(name) or rounds_alike(part, dtype)):
        return request.fill("exact", inputs, part.value, None)
    return request.bounded_fill("bounded", inputs, part.value, error_of(part, dtype))


def error_of(part: Computed, dtype: str) -> Tensor:
    """Returns the bound of ``part``, which is an integer if ``dtype`` is one."""
    error = part.error()
    return error if FORMATS[dtype].lowest is None else error.round()


def rounds_alike(part: Computed, dtype: str) -> bool:
    """True if all values that a kernel may compute for ``part`` are the same number in ``dtype``."""
    if FORMATS[dtype].lowest is not None:
        return not bool(error_of(part, dtype).any())
    if FORMATS[dtype].significand >= FORMATS["fp32"].significand:
        return False
    low, high = (round_to(part.value + side * part.error(), dtype) for side in (-1, 1))
    return bool((bits(low) == bits(high)).all() | (low == high).all())


FILLS = FillSet((EXACT, RANDN, SPREAD, SPECIAL), applicable, build)
