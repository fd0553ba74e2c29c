"""Dropout with a seed: Triton's ``tl.rand`` decides, which is replayed bit by bit.

The random number of an element is that of its place in the matrix, row by row. An element is kept, and divided by
1 - p, if the number is p at least. All others are 0, whatever x is, NaN included. So p = 0 keeps all, and p = 1 none.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conformance.families.rows.functions import OUT, Compute, Quantities, X, changed
from conformance.families.rows.problem import Arrays, Axis, Part, RowFunction, RowProblem
from conformance.inputs.fills import Draws
from conformance.numerics.error_bounds import Computed, either

ONE = Axis("one", lambda problem: 1)
SEED, P = Part("seed", "s", "int32"), Part("p", "s", "fp32")
#: Philox-4x32 of Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3": multipliers and steps of the keys.
MULTIPLIERS, KEY_STEPS, ROUNDS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85), 10
#: The float32 by which tl.rand multiplies an integer below 2**31.
SCALE = np.float32(4.6566127342e-10)
_LOW = np.uint64(0xFFFFFFFF)


def philox(seed: int, offsets: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """Returns the 32-bit words of ``tl.randint(seed, offsets)`` for offsets below 2**64.

    >>> philox(0, np.array([0], np.uint64)).tolist()
    [1713891541]
    """
    key = [seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF]
    words = [offsets & _LOW, offsets >> np.uint64(32), np.zeros_like(offsets), np.zeros_like(offsets)]
    for _ in range(ROUNDS):
        a, b = (words[place] * np.uint64(factor) for place, factor in zip((0, 2), MULTIPLIERS, strict=True))
        high_a, high_b = a >> np.uint64(32), b >> np.uint64(32)
        words = [high_b ^ words[1] ^ np.uint64(key[0]), b & _LOW, high_a ^ words[3] ^ np.uint64(key[1]), a & _LOW]
        key = [(part + step) & 0xFFFFFFFF for part, step in zip(key, KEY_STEPS, strict=True)]
    first: NDArray[np.uint64] = words[0]
    return first


def uniform(seed: int, offsets: NDArray[np.uint64]) -> NDArray[np.float32]:
    """Returns the float32 numbers of ``tl.rand(seed, offsets)``, from 0 to below 1."""
    words = philox(seed, offsets).astype(np.uint32).view(np.int32)
    numbers: NDArray[np.float32] = np.where(words < 0, ~words, words).astype(np.float32) * SCALE
    return numbers


def _kept(problem: RowProblem, q: Quantities, columns_first: bool = False) -> Tensor:
    """Returns where elements are kept."""
    rows, columns = problem.rows, problem.columns
    offsets = np.arange(rows * columns, dtype=np.uint64)
    places = offsets.reshape(columns, rows).T if columns_first else offsets.reshape(rows, columns)
    seed, p = int(q["seed"].value[0]), float(q["p"].value[0])
    kept = uniform(seed, places.ravel()).reshape(rows, columns) >= np.float32(p)
    return torch.from_numpy(np.ascontiguousarray(kept)).to(q["x"].value.device)


def _scaled(q: Quantities) -> Computed:
    left = 1.0 - q["p"]
    return either(q["x"] / left, q["x"] * (1.0 / left)) if float(left.value[0]) else q["x"]


def dropout(problem: RowProblem, q: Quantities) -> Quantities:
    """``out = x / (1 - p)`` where an element is kept, else 0."""
    return {"out": _scaled(q).where(_kept(problem, q), 0.0)}


def _with(choices: tuple[float, ...], nan: float = 0.0) -> Callable[[RowProblem, Draws], Arrays]:
    """Returns x of 8 bits, a share ``nan`` of it NaN, a seed of 31 bits, and one of ``choices`` as p."""

    def draw(problem: RowProblem, draws: Draws) -> Arrays:
        shape = (problem.rows, problem.columns)
        x = np.where(draws.chance(nan, shape), np.nan, draws.nonzero(128, shape) / 16)
        seed = np.asarray(draws.below(2**31 - 1, (1,)), np.float64)
        return {"x": x, "seed": seed, "p": np.asarray(choices)[draws.below(len(choices), (1,))]}

    return draw


def _inverted(problem: RowProblem, q: Quantities) -> Quantities:
    return {"out": _scaled(q).where(~_kept(problem, q), 0.0)}


def _not_scaled(problem: RowProblem, q: Quantities) -> Quantities:
    return {"out": q["x"].where(_kept(problem, q), 0.0)}


def _columns_first(problem: RowProblem, q: Quantities) -> Quantities:
    return {"out": _scaled(q).where(_kept(problem, q, columns_first=True), 0.0)}


def _next_seed(compute: Compute) -> Compute:
    return changed("seed", lambda seed: seed.moved(lambda t: t + 1), compute)


DROPOUT = RowFunction(
    "dropout", (X, SEED, P), (OUT,), dropout, _with((0.0, 0.5, 0.75)), _with((0.9, 1.0), 0.25), steps=True,
    usual=_with((0.1, 0.3)), axes={"s": ONE},
    faults=(
        ("what is kept is dropped, and the other way round", _inverted),
        ("what is kept is not divided by 1 - p", _not_scaled),
        ("elements are counted column by column", _columns_first),
        ("the seed is one more", _next_seed(dropout)),
    ),
)  # fmt: skip
