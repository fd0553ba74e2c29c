"""Queries and keys whose scores lie far from zero on both sides, and rise or fall over the keys.

All values are few multiples of one unit, so every sum of q k^T is exact, in any order. What follows is judged by its
own error: the scale, a soft cap's tanh, the maximum, exp. One coordinate adds about 200 to the scores of a row, or
takes as much away: exp of that is infinite or 0 in fp32. A second coordinate makes them rise or fall from the first key
to the last. So the running maximum grows in every block of keys or in none. Under a soft cap, which would make all
scores alike, the first coordinate is a share of the cap instead.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from conformance.families.attention.operands import format_of, rounded
from conformance.families.attention.problem import Attention
from conformance.inputs.draws import Draws, Floats
from conformance.inputs.fill_set import FillError
from conformance.numerics.contract import Contract
from conformance.numerics.rounding import FORMATS

#: How far from zero scores lie, and by how much those of a row rise or fall.
FAR, RISE = 200.0, 24.0
#: The same under a soft cap, as shares of the cap: where tanh bends, and where it is nearly flat.
CAPPED = (0.4, 1.2)
#: Values are multiples of 2**-FRACTION; the ramp of the keys ends at RAMP.
FRACTION, RAMP = 4, 6
#: Near-normal values are below this.
NORMAL = 5.0


@dataclass(frozen=True)
class Far:
    """``unit``: the scale of scores once q is multiplied by ``2**exponent``, which makes it about 1 / sqrt(head_dim).
    ``constant``: the value of k that moves scores; ``sizes``: the values of q that meet it; ``slope``: the value of q
    that meets the ramp of k."""

    unit: float
    exponent: int
    constant: int
    sizes: tuple[int, ...]
    slope: int


def plan(problem: Attention, contract: Contract) -> Far | None:
    """Returns the values for ``problem``; None if it has too few or too many dims, or an extreme scale."""
    scale, dims, form = abs(problem.softmax_scale), problem.head_dim, FORMATS[format_of(problem, contract)]
    if dims < 3 or not scale > 0:
        return None
    exponent = -round(math.log2(scale * math.sqrt(dims)))
    unit = math.ldexp(scale, exponent)
    cap = problem.score.cap
    wanted = [min(share * cap, FAR) for share in CAPPED] if cap else [FAR]
    constant = 2 ** max(0, math.ceil(math.log2(max(wanted) / unit) / 2))
    sizes = tuple(max(1, round(far / unit / constant)) for far in wanted)
    slope = max(1, round(min(RISE, cap or RISE) / unit / RAMP))
    largest = max(*sizes, slope, NORMAL)
    fits = largest < 2**form.significand and constant < 2**form.significand
    fits = fits and largest * 2.0**exponent <= form.largest and 2.0 ** (exponent - FRACTION) >= form.smallest_normal
    sums = max(sizes) * constant + slope * RAMP + dims * NORMAL**2
    return Far(unit, exponent, constant, sizes, slope) if fits and sums * 4.0**FRACTION < _room(contract) else None


def far_scores(problem: Attention, contract: Contract, draws: Draws) -> dict[str, Tensor]:
    """q and k. Raises FillError if a sum of theirs is not exact."""
    chosen = plan(problem, contract)
    assert chosen is not None
    q, k = (_multiples(draws.normal(problem.operand(name).shape)) for name in "qk")
    rows = q.shape[:-1]
    sizes = np.asarray(chosen.sizes)[draws.below(len(chosen.sizes), rows)]
    sizes = sizes - draws.below(2**20, rows) * (1 + sizes // 8) // 2**20  # each row has a size of its own
    far, ramp = draws.permutation(problem.head_dim)[:2]
    q[..., far], k[..., far] = np.maximum(sizes, 1) * draws.signs(rows), chosen.constant
    q[..., ramp] = chosen.slope * (draws.below(3, rows) - 1)
    steps = np.arange(problem.keys) / max(problem.keys - 1, 1)
    k[..., ramp] = _multiples(RAMP * steps)
    largest = max(float((np.abs(a) @ np.abs(b).swapaxes(-1, -2)).max()) for a, b in _pairs(problem, q, k))
    if largest * 4.0**FRACTION >= _room(contract):
        raise FillError(
            f"{problem.id}: sums of {largest:g} are {largest * 4.0**FRACTION / _room(contract):g} too large"
        )
    form = format_of(problem, contract)
    inputs = {"q": rounded(q, form, chosen.exponent), "k": rounded(k, form)}
    if not torch.equal(inputs["q"].double(), torch.from_numpy(np.ldexp(q, chosen.exponent))):
        raise FillError(f"{problem.id}: queries with scores far from zero are not representable in {form}")
    return inputs


def _room(contract: Contract) -> float:
    return 2.0**contract.accumulator.exact_bits


def _multiples(values: Floats) -> Floats:
    return np.rint(values * 2.0**FRACTION) * 2.0**-FRACTION


def _pairs(problem: Attention, q: Floats, k: Floats) -> list[tuple[Floats, Floats]]:
    """Returns the matrices of q and of k that meet."""
    group = problem.heads // problem.key_heads
    return [
        (q[batch, head], k[batch % problem.key_batch, head // group])
        for batch in range(problem.batch)
        for head in range(problem.heads)
    ]
