"""Scores of two levels, between which a weight is nearly a number of the fp8 format that weights are rounded to.

The number next to 1 in the format is 1 and an eighth, or 1 and a quarter. The lower level has a weight a little below
half of it. Rounded to nearest its error is small; a format with a bit less, or a cast that cuts, is off by much more.
That holds in whatever order a kernel takes the keys: where a block has only keys of one level their weights are
1. A maximum that lags behind gives the reciprocal, whose rounding :func:`unit` allows for, too. All values of a column
have one sign, so that such errors add up.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import torch
from torch import Tensor

from conformance.families.attention.operands import rounded
from conformance.families.attention.problem import Attention
from conformance.inputs.draws import Draws
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import EVERY_FP8

#: How far below its number the weight lies, relatively: at least; see :func:`_farthest`.
NEAREST = 2.0**-10
#: How many dims make the scores. Their sum has few bits, so that every unit holds it.
DIMS = (1, 3, 5, 7)
#: One key in this many has the higher score.
HIGH = 4


def _weight(problem: Attention) -> float:
    return 0.5 + 2.0 ** -FORMATS[problem.dtype].significand


def _farthest(problem: Attention) -> float:
    """Returns the largest relative distance by which the weight lies below its number: that of products of two fp8
    numbers."""
    return 2.0 ** (1 - 2 * FORMATS[problem.dtype].significand)


def plan(problem: Attention, gain: float) -> tuple[float, float, int] | None:
    """The values of q and k, and the number of dims with them, whose products give the lower level where scales
    multiply scores by ``gain``; None if there are none, or if no fp8 is multiplied."""
    scale = problem.softmax_scale * gain
    if problem.dtype not in EVERY_FP8 or not scale > 0:
        return None
    form = FORMATS[problem.dtype]
    integers = range(2 ** (form.significand - 1), 2**form.significand)
    dims = [count for count in DIMS if count <= problem.head_dim]
    for count, a, b in itertools.product(dims, integers, integers):
        product = count * a * b
        exponent = math.floor(math.log2(-math.log(_weight(problem)) / scale / product)) + 1
        value = math.ldexp(product, exponent) * scale
        if problem.score.kind == "soft-cap":
            value = problem.score.cap * math.tanh(value / problem.score.cap)
        below = 1 - math.exp(-value) / _weight(problem)
        parts = math.ldexp(a, exponent // 2), math.ldexp(b, exponent - exponent // 2)
        if NEAREST <= below <= _farthest(problem) and all(
            form.smallest_normal <= part <= form.largest for part in parts
        ):
            return *parts, count
    return None


def unit(problem: Attention) -> float:
    """Bound of the relative error of rounding the weight of the lower level, its reciprocal, or 1."""
    weight = _weight(problem)
    reciprocal = float(round_to(torch.tensor([1 / weight], dtype=torch.float64), problem.dtype).double())
    return abs(reciprocal * weight - 1) + 2 * _farthest(problem)


def levels(problem: Attention, gain: float, draws: Draws) -> dict[str, Tensor]:
    """q, k and v: a few dims of q and k make the scores."""
    chosen = plan(problem, gain)
    assert chosen is not None
    of_q, of_k, count = chosen
    low = draws.below(HIGH, problem.operand("k").shape[:-1]) > 0
    dims = draws.permutation(problem.head_dim)[:count]
    q, k = (np.zeros(problem.operand(name).shape) for name in "qk")
    q[..., dims], k[..., dims] = -of_q, of_k * low[..., None]
    shape = problem.operand("v").shape
    largest = 2 ** FORMATS[problem.dtype].significand - 1
    v = np.abs(draws.nonzero(largest, shape)) * draws.signs(shape[-1:])
    return {name: rounded(values, problem.dtype) for name, values in (("q", q), ("k", k), ("v", v))}
