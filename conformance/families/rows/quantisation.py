"""Quantised rows: int8 and e4m3 with a scale for a row or for a block of columns, and back.

What a kernel must do, for finite operands:

* A scale is ``max(amax / limit, eps)`` in fp32: amax is the largest size of its row or of its :data:`GROUP` columns,
  the limit 127 or 448. So a row of zeros has the scale eps, and zeros.
* An element is divided by its scale, or multiplied by the reciprocal. It is rounded to the nearest integer or e4m3
  number, ties to even. A static scale is an operand. What is past -128 to 127, or 448 in size, becomes that limit.
* NaN becomes NaN in e4m3 with a static scale, and infinity 448. No other fill has NaN or infinity: int8 has neither,
  and libraries differ in what the scale becomes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from conformance.families.rows.functions import Compute, Quantities, X, changed
from conformance.families.rows.problem import Arrays, Axis, Part, RowFunction, RowProblem, normal_values
from conformance.inputs.fills import Draws, Floats
from conformance.numerics.error_bounds import Computed, either
from conformance.numerics.rounding import round_to

#: Columns that share a scale where a block of them has one.
GROUP = 32
BLOCK = Axis("block", lambda problem: -(-problem.columns // GROUP))
#: The largest sizes of quantised elements, by dtype.
LIMITS = {"int8": 127.0, "e4m3": 448.0}
#: The significant bits of an e4m3 number.
E4M3_BITS = 4


def per_column(t: Tensor, columns: int, size: int = GROUP) -> Tensor:
    """Returns a value for each column of ``t``, which has one for each block of ``size`` columns."""
    return t.repeat_interleave(size, 1)[:, :columns]


def in_blocks(t: Tensor, size: int = GROUP) -> Tensor:
    """Returns (rows, blocks, ``size``) elements of the matrix ``t``; zeros fill the last block."""
    padded = torch.nn.functional.pad(t, (0, -t.shape[1] % size))
    return padded.reshape(t.shape[0], padded.shape[1] // size, size)


def eps_of(problem: RowProblem) -> float:
    """Returns eps as kernels have it, in fp32."""
    return float(np.float32(problem.eps))


def size_of(x: Computed) -> Computed:
    """Returns the absolute value of an operand, which has no error."""
    return x.moved(torch.abs)


def scale_of(problem: RowProblem, amax: Computed, limit: float) -> Computed:
    """Returns ``max(amax / limit, eps)``."""
    return (amax / limit).moved(lambda t: t.clamp(min=eps_of(problem)))


def divided(x: Computed, scale: Computed) -> Computed:
    """Returns x divided by the scale, or multiplied by the reciprocal."""
    return either(x / scale, x * (1.0 / scale))


def _nearest(dtype: str) -> Callable[[Tensor], Tensor]:
    """Returns the function that rounds to the nearest value of ``dtype`` and saturates, which no kernel does
    otherwise."""
    if dtype == "int8":
        return lambda t: t.round().clamp(-128, 127)
    return lambda t: round_to(t.clamp(-LIMITS[dtype], LIMITS[dtype]), dtype).double()


def _dynamic(dtype: str, blocks: bool) -> Compute:
    def compute(problem: RowProblem, q: Quantities) -> Quantities:
        x, columns = q["x"], problem.columns
        sizes = size_of(x)
        amax = sizes.moved(lambda t: in_blocks(t).amax(2)) if blocks else sizes.max(-1)
        scale = scale_of(problem, amax, LIMITS[dtype])
        each = scale.moved(lambda t: per_column(t, columns)) if blocks else scale
        return {"out": divided(x, each).moved(_nearest(dtype)), "scale": scale}

    return compute


def _static(dtype: str) -> Compute:
    """The computation with a scale per row that is an operand."""

    def compute(problem: RowProblem, q: Quantities) -> Quantities:
        scale = q["scale"].moved(lambda t: t[:, None])
        return {"out": divided(q["x"], scale).moved(_nearest(dtype))}

    return compute


def _back(blocks: bool) -> Compute:
    def compute(problem: RowProblem, q: Quantities) -> Quantities:
        scale = q["scale"].moved(lambda t: per_column(t, problem.columns) if blocks else t[:, None])
        return {"out": q["codes"] * scale}

    return compute


def _numbers(dtype: str, problem: RowProblem, draws: Draws) -> Floats:
    """Returns numbers of ``dtype`` and others a quarter of a unit away: every kernel rounds them alike. The largest
    size of each row and block is the limit."""
    shape = (problem.rows, problem.columns)
    if dtype == "int8":
        size = draws.below(63, shape) + np.array([0.0, 0.25, 0.75])[draws.below(3, shape)]
    else:
        step = 2 ** (E4M3_BITS - 1) + draws.below(2 ** (E4M3_BITS - 1) - 1, shape)
        size = (step + np.array([0.0, 0.25, 0.75])[draws.below(3, shape)]) * np.ldexp(1.0, draws.below(9, shape) - 4)
    place = GROUP * (np.arange(problem.columns) // GROUP) + draws.below(GROUP, (problem.columns,))
    size[:, place[place < problem.columns]] = LIMITS[dtype]
    size[:, problem.columns // GROUP * GROUP : problem.columns // GROUP * GROUP + 1] = LIMITS[dtype]
    return np.asarray(size * draws.signs(shape), np.float64)


def _to_the_limit(dtype: str) -> Callable[[RowProblem, Draws], Arrays]:
    """Returns rows whose scale is a power of two, and rows of zeros; a number is never half-way between two codes."""

    def draw(problem: RowProblem, draws: Draws) -> Arrays:
        size = np.ldexp(1.0, draws.below(7, (problem.rows, 1)) - 3)
        size[np.arange(problem.rows) % 4 == 1] = 0.0
        return {"x": size * _numbers(dtype, problem, draws)}

    return draw


def _half_way(dtype: str) -> Callable[[RowProblem, Draws], Arrays]:
    """Returns values that are half-way between two codes, codes, and some past the limit; scales are powers of two."""

    def draw(problem: RowProblem, draws: Draws) -> Arrays:
        shape = (problem.rows, problem.columns)
        if dtype == "int8":
            values = draws.below(127, shape) + 0.5
        else:
            step = 2**E4M3_BITS + draws.below(2**E4M3_BITS, shape)
            values = np.asarray(step * np.ldexp(1.0, draws.below(16, shape) - 12), np.float64)
            values[draws.chance(0.1, shape)] = 2.0**-10  # half of the smallest subnormal
        values = np.where(draws.chance(0.2, shape), LIMITS[dtype] * (1 + draws.below(8, shape)), values)
        power = draws.below(7, (problem.rows,)) - 3
        x = values * draws.signs(shape) * np.ldexp(1.0, power)[:, None]
        return {"x": np.asarray(x, np.float64), "scale": np.ldexp(1.0, power)}

    return draw


def _unlike(problem: RowProblem, draws: Draws) -> Arrays:
    """Near-normal rows times 2**-20 to 2**11, and every fourth column 2**10 times smaller: eps is some scales."""
    shape = (problem.rows, problem.columns)
    power = draws.below(32, (problem.rows, 1)) - 20 - 10 * (np.arange(problem.columns) % 4 == 3)
    scale = np.ldexp(1 + draws.uniform((problem.rows,)), power[:, 0] - 6)
    return {"x": np.ldexp(draws.normal(shape), power), "scale": scale}


def _usual(problem: RowProblem, draws: Draws) -> Arrays:
    """Near-normal values, and scales that leave some of them past the limit."""
    arrays = normal_values(problem, draws)
    limit = LIMITS[problem.function.outputs[0].dtype or ""]
    return {**arrays, "scale": (1 + draws.uniform((problem.rows,))) / limit}


def _codes(powers: bool) -> Callable[[RowProblem, Draws], Arrays]:
    """Returns codes of the whole range, and scales: powers of two, or any of several binades."""

    def draw(problem: RowProblem, draws: Draws) -> Arrays:
        first, scale = problem.function.operands[:2]
        shape, scales = problem.extents(first), problem.extents(scale)
        codes = draws.below(256, shape) - 128.0
        if first.dtype == "e4m3":
            codes = np.ldexp(8.0 + draws.below(7, shape), draws.below(15, shape) - 9) * draws.signs(shape)
        size = np.ones(scales) if powers else 1 + draws.uniform(scales)
        return {"codes": np.asarray(codes, np.float64), "scale": np.ldexp(size, draws.below(17, scales) - 8)}

    return draw


def _truncated(dtype: str, compute: Compute) -> Compute:
    """Returns the computation that cuts the quotient off, instead of rounding it."""

    def fault(problem: RowProblem, q: Quantities) -> Quantities:
        scale = compute(problem, q)["scale"] if "scale" not in q else q["scale"].moved(lambda t: t[:, None])
        each = scale if scale.value.shape[1] == 1 else scale.moved(lambda t: per_column(t, problem.columns))
        return {**compute(problem, q), "out": divided(q["x"], each).moved(lambda t: t.trunc().clamp(-128, 127))}

    return fault


_NOT_SCALED = "the codes are not multiplied by the scale"


def _quantised(dtype: str, blocks: bool) -> RowFunction:
    compute = _dynamic(dtype, blocks)
    other = _dynamic(dtype, not blocks)

    def one_scale(problem: RowProblem, q: Quantities) -> Quantities:
        """The codes with a scale for the row in place of one for a block."""
        return {**compute(problem, q), "out": other(problem, q)["out"]}

    faults: list[tuple[str, Compute]] = [("the row has one scale, not each block", one_scale)] if blocks else []
    faults += [("quotients are cut off, not rounded", _truncated(dtype, compute))] if dtype == "int8" else []
    return RowFunction(
        f"quantize_{dtype}_block" if blocks else f"quantize_{dtype}", (X,),
        (Part("out", "rc", dtype), Part("scale", "rb" if blocks else "r", "fp32")), compute, _to_the_limit(dtype),
        _unlike, special=False, of_nothing=lambda problem: {"scale": eps_of(problem)}, faults=tuple(faults),
        axes={"b": BLOCK},
    )  # fmt: skip


def _quantised_static(dtype: str) -> RowFunction:
    compute = _static(dtype)
    faults = [("the scale is left out", changed("scale", lambda t: t.moved(torch.ones_like), compute))]
    faults += [("quotients are cut off, not rounded", _truncated(dtype, compute))] if dtype == "int8" else []
    return RowFunction(
        f"quantize_{dtype}_static", (X, Part("scale", "r", "fp32")), (Part("out", "rc", dtype),), compute,
        _half_way(dtype), _unlike, steps=True, usual=_usual, special=dtype != "int8", faults=tuple(faults),
    )  # fmt: skip


def _dequantised(dtype: str, blocks: bool) -> RowFunction:
    compute = _back(blocks)
    return RowFunction(
        f"dequantize_{dtype}_block" if blocks else f"dequantize_{dtype}",
        (Part("codes", "rc", dtype), Part("scale", "rb" if blocks else "r", "fp32")), (Part("out"),), compute,
        _codes(True), _codes(False), steps=True, usual=_codes(False), special=False, axes={"b": BLOCK},
        faults=((_NOT_SCALED, lambda problem, q: {"out": q["codes"]}),),
    )  # fmt: skip


_BOTH: Sequence[Any] = [(dtype, blocks) for dtype in LIMITS for blocks in (False, True)]
QUANTISED = tuple(_quantised(*each) for each in _BOTH)
STATIC = tuple(map(_quantised_static, LIMITS))
DEQUANTISED = tuple(_dequantised(*each) for each in _BOTH)
QUANTISATIONS = (*QUANTISED, *STATIC, *DEQUANTISED)
