"""Exact fills of attention, whose probabilities are 1 and 0, or all equal; scores far from zero, and of two levels.

The backward pass takes out and lse as inputs, so exact fills choose them freely. lse 0 makes P exactly 1 where the
score is 0. Integers as out, v and grad_out make the gradients of scores integers.

All values are few multiples of one unit, so every sum of q k^T is exact, in any order. What follows is judged by its
own error: the scale, a soft cap's tanh, the maximum, exp. One coordinate adds about 200 to the scores of a row, or
takes as much away: exp of that is infinite or 0 in fp32. A second coordinate makes them rise or fall from the first key
to the last. So the running maximum grows in every block of keys or in none. Under a soft cap, which would make all
scores alike, the first coordinate is a share of the cap instead.

The number next to 1 in the format is 1 and an eighth, or 1 and a quarter. The lower level has a weight a little below
half of it. Rounded to nearest its error is small; a format with a bit less, or a cast that cuts, is off by much more.
That holds in whatever order a kernel takes the keys: where a block has only keys of one level their weights are
1. A maximum that lags behind gives the reciprocal, whose rounding :func:`unit` allows for, too. All values of a column
have one sign, so that such errors add up.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from conformance.families.attention import bounds as attention_bounds
from conformance.families.attention import reference as meaning
from conformance.families.attention.operands import apart, coded, format_of, one_fill, rounded, scales_of, slopes_of
from conformance.families.attention.problem import Attention
from conformance.families.gemm.reference import U, growth
from conformance.inputs.fills import Draws, FillError, FillRequest, Floats
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import EVERY_FP8

#: Keys that share a code, at most: forward two, whose average is exact, backward more.
TIED, TIED_BACKWARD = 2, 4
#: Integer gradients of scores have at most this many bits, however wide the format they are rounded to.
GRADIENT_BITS = 11
#: How often the integers of a backward fill are made smaller before it is given up.
ATTEMPTS = 24


def forward(request: FillRequest[Attention], draws: Draws, inputs: dict[str, Tensor]) -> Fill:
    name, problem, contract = request.name, request.problem, request.contract
    form = format_of(problem, contract)
    exact_bits = min(FORMATS[form].significand, contract.accumulator.exact_bits)
    if name == "uniform":
        apart(problem, draws, form, inputs)
        largest = max(1, min(2**exact_bits - 1, (2**contract.accumulator.exact_bits - 1) // problem.keys))
    else:
        tied = TIED if name == "tie" else 1
        coded(problem, contract, draws, inputs, tied)
        largest = 2**exact_bits // tied - 1
    inputs["v"] = rounded(draws.nonzero(largest, problem.operand("v").shape), form)
    inputs |= scales_of(problem, draws, (1, 2, -3))
    if problem.score.kind == "alibi":
        inputs["slopes"] = slopes_of(problem, draws, name)
    exact = meaning.forward(problem, inputs, device=request.device)
    _check_weights(name, problem, exact)
    return one_fill(request, inputs, exact.outputs, _structured_errors(name, problem, contract, exact))


def _check_weights(name: str, problem: Attention, exact: meaning.ForwardValues) -> None:
    """Raises FillError unless every query that sees a key selects one key, or up to TIED, or all that it sees."""
    weights, seen = exact.weights, exact.scores.visible.expand(exact.weights.shape)
    chosen = weights == 1.0
    leak = _leak(problem) if name != "uniform" and problem.score.kind == "soft-cap" else 0.0
    count = chosen.sum(-1)
    most = {"selector": torch.ones_like(count), "tie": torch.full_like(count, TIED), "uniform": seen.sum(-1)}[name]
    least = most if name == "uniform" else exact.live.to(count.dtype)
    wrong = {
        "no query sees a key": ~exact.live.any(),
        "a weight is neither 1 nor 0": ((weights > leak) & ~chosen).any(),
        "a query selects fewer keys than it should": (count < least).any(),
        "a query selects more keys than it should": (count > most).any(),
        "all outputs are 0": ~(exact.out != 0).any(),
    }
    for reason, broken in wrong.items():
        if bool(broken):
            raise FillError(f"{problem.id}: the fill {name!r} does not hold what it promises: {reason}")


def _structured_errors(
    name: str, problem: Attention, contract: Contract, exact: meaning.ForwardValues
) -> tuple[Tensor | None, Tensor | None]:
    """Bounds of out and lse where every weight is 1 or 0; None for an exact one.

    A division by 1 or 2 is exact, one by another count rounds. A capped score cannot go below -cap, so the weights of
    keys that are not selected do not vanish. Under alibi the score that "selector" selects is not 0. A kernel that
    fuses the subtraction of the maximum with the conversion to base 2 leaves a residual of it.
    """
    size, top = exact.out.abs(), exact.top
    log_total = torch.where(exact.live, torch.log(exact.total), 0.0)
    lse = attention_bounds.lse_error(top, log_total) + 8 * U * top.abs()
    relative = torch.full_like(top, attention_bounds.DIVISION).unsqueeze(-1)
    if name != "uniform" and problem.score.kind == "soft-cap":
        leak, sums = _leak(problem), growth(contract.accumulator, problem.keys)
        total = problem.keys * leak + (2 * problem.keys + 2) * U
        values = exact.scores.v.abs()
        error = sums * (exact.probabilities @ values) + (1 + sums) * leak * values.sum(-2, keepdim=True)
        error = (error + 2 * (relative + total) * (size + error)) * attention_bounds.UP
        lse = lse + total + attention_bounds.TANH * problem.score.cap
    elif name == "selector" and problem.score.kind == "alibi":
        truncated = attention_bounds.cast(contract).unit if contract.intermediate == "tf32" else 0.0
        error = size * (relative + truncated + 8 * U * (1 + top.abs().unsqueeze(-1))) * attention_bounds.UP
    elif name == "uniform":
        error = size * relative * attention_bounds.UP
        if contract.divides == "weights":  # equal shares are no longer 1, so that products and their sums are rounded
            rounds = 1 + attention_bounds.cast(contract).unit
            loose = rounds * (1 + attention_bounds.DIVISION) * (1 + growth(contract.accumulator, problem.keys)) - 1
            error = error + loose * (exact.probabilities @ exact.scores.v.abs()) * attention_bounds.UP
    else:
        return None, None if name == "selector" else torch.where(exact.live, lse * attention_bounds.UP, 0.0)
    live = exact.live.unsqueeze(-1)
    return torch.where(live, error, 0.0), torch.where(exact.live, lse * attention_bounds.UP, 0.0)


def backward(request: FillRequest[Attention], draws: Draws, inputs: dict[str, Tensor]) -> Fill:
    name, problem, contract = request.name, request.problem, request.contract
    form = format_of(problem, contract)
    if name == "uniform":
        apart(problem, draws, form, inputs)
    else:
        coded(problem, contract, draws, inputs, TIED_BACKWARD)
    if problem.score.kind == "alibi":
        inputs["slopes"] = slopes_of(problem, draws, name)
    seen = meaning.visible(problem, inputs).any(-1).expand(problem.batch, problem.heads, problem.queries)
    inputs["lse"] = torch.where(seen, 0.0, -math.inf).float()
    # what is drawn is a share of its largest size, which is made smaller until everything fits
    shares = {key: draws.uniform(problem.operand(key).shape) for key in ("v", "out", "grad_out")}
    signs = {key: draws.signs(problem.operand(key).shape) for key in shares}
    bits = GRADIENT_BITS if contract.intermediate is None else FORMATS[contract.intermediate].significand
    bits = min(GRADIENT_BITS, bits)
    # six deviations of the sum of value_dim products of +-1 and integers up to this size, twice
    largest = max(1.0, 2**bits / (6 * 0.6 * math.sqrt(2 * problem.values_dim)))
    density, excess = 1.0, 1.0
    for _ in range(ATTEMPTS):
        for key in ("v", "out"):
            values = np.ceil(shares[key] * math.floor(largest)) * signs[key]
            inputs[key] = rounded(values, form if key == "v" else problem.dtype)
        inputs["grad_out"] = rounded((shares["grad_out"] <= density) * signs["grad_out"], form)
        exact = meaning.backward(problem, inputs, device=request.device)
        _check_probabilities(name, problem, exact)
        excess = _excess(problem, contract, exact, bits)
        if excess <= 1:
            return one_fill(request, inputs, exact.outputs, _leaks(name, problem, contract, exact))
        if largest >= 2:
            largest = max(1.0, min(largest / excess, math.floor(largest) - 1))
        else:
            density /= 2
    raise FillError(f"{problem.id}: no exact backward fill {name!r} fits: sums are {excess:g} times too large")


def _check_probabilities(name: str, problem: Attention, exact: meaning.BackwardValues) -> None:
    """Raises FillError unless all probabilities are 1 or 0, and every query that sees a key has one of 1."""
    chosen = exact.probabilities == 1.0
    leak = _leak(problem) if name != "uniform" and problem.score.kind == "soft-cap" else 0.0
    live = exact.lse.isfinite()
    wrong = {
        "no query sees a key": ~live.any(),
        "a probability is neither 1 nor 0": ((exact.probabilities > leak) & ~chosen).any(),
        "a query selects no key": (live & ~chosen.any(-1)).any(),
    }
    for reason, broken in wrong.items():
        if bool(broken):
            raise FillError(f"{problem.id}: the fill {name!r} does not hold what it promises: {reason}")


def _excess(problem: Attention, contract: Contract, exact: meaning.BackwardValues, bits: int) -> float:
    """By which factor an exact backward fill is too large. Up to 1, nothing is rounded and nothing overflows before the
    output's own rounding."""
    room = 2.0**contract.accumulator.exact_bits
    gradients = exact.grad_scaled.abs()
    k, q = (_in_units(operand) for operand in (exact.scores.k, exact.scores.q))
    outputs = max(float(t.abs().max()) for t in (exact.grad_q, exact.grad_k, exact.grad_v))
    return max(
        float(gradients.max()) / 2.0**bits,
        float(gradients.sum(-1).max()) * k / room,
        float(meaning.gathered(problem, gradients.sum(-2)).max()) * q / room,
        float(meaning.gathered(problem, exact.probabilities.sum(-2)).max()) / room,
        float(exact.scores.v.abs().max()) * problem.values_dim / room,
        2 * outputs / FORMATS[contract.out_dtype].largest,
    )


def _in_units(operand: Tensor) -> float:
    """The largest value divided by the smallest nonzero one, of which all values are multiples."""
    size = operand.abs()
    largest = float(size.max())
    return largest / float(torch.where(size > 0, size, math.inf).min()) if largest else 0.0


def _leaks(
    name: str, problem: Attention, contract: Contract, exact: meaning.BackwardValues
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Bounds of the three gradients where every probability is 1 or 0; None for an exact one.

    Two things are inexact. One is the product with a scale that is no power of two. The other, under a soft cap, is the
    probabilities of keys that are not selected."""
    power = math.frexp(problem.softmax_scale)[0] == 0.5
    rounded = 0.0 if power else attention_bounds.CONVERSION
    if name == "uniform" or problem.score.kind != "soft-cap":
        error_q, error_k = (
            None if power else gradient.abs() * rounded * attention_bounds.UP
            for gradient in (exact.grad_q, exact.grad_k)
        )
        return error_q, error_k, None
    leak, unit = _leak(problem), attention_bounds.cast(contract).unit
    # the probability of a selected key: a capped 0 may err by TANH, and what is rounded may round otherwise
    loose = attention_bounds.TANH * problem.score.cap + 2 * attention_bounds.EXP2
    loose = loose + unit if loose > unit / 4 or contract.operand == "tf32" else loose
    seen = exact.scores.visible.double()
    shared = problem.heads // problem.key_heads * (problem.batch // problem.key_batch)
    over_keys = growth(contract.accumulator, problem.keys) + loose
    over_queries = growth(contract.accumulator, shared * (problem.queries + 8)) + loose
    slipped = 2 * leak * (exact.grad_probabilities - exact.delta.unsqueeze(-1)).abs() * seen
    gradients, scale = exact.grad_scaled.abs(), problem.softmax_scale
    q, k, grad_out = exact.scores.q.abs(), exact.scores.k.abs(), exact.grad_out.abs()
    grad_q = scale * ((over_keys * gradients + slipped) @ k)
    grad_k = scale * meaning.gathered(problem, (over_queries * gradients + slipped).transpose(-1, -2) @ q)
    weights = over_queries * exact.probabilities + leak * seen
    grad_v = meaning.gathered(problem, weights.transpose(-1, -2) @ grad_out)
    grad_q = grad_q + attention_bounds.CONVERSION * (exact.grad_q.abs() + grad_q)
    grad_k = grad_k + attention_bounds.CONVERSION * (exact.grad_k.abs() + grad_k)
    return grad_q * attention_bounds.UP, grad_k * attention_bounds.UP, grad_v * attention_bounds.UP


def _leak(problem: Attention) -> float:
    """Largest weight of a key that a soft cap keeps from vanishing, next to a selected one of 1."""
    return 2 * math.exp(-problem.score.cap)


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


def far_plan(problem: Attention, contract: Contract) -> Far | None:
    """Returns the values for ``problem``; None if it has too few or too many dims, or an extreme scale."""
    scale, dims, form = abs(problem.softmax_scale), problem.head_dim, FORMATS[format_of(problem, contract)]
    if dims < 3 or not scale > 0:
        return None
    exponent = -round(math.log2(scale * math.sqrt(dims)))
    unit = math.ldexp(scale, exponent)
    cap = problem.score.cap
    distances = [min(share * cap, FAR) for share in CAPPED] if cap else [FAR]
    constant = 2 ** max(0, math.ceil(math.log2(max(distances) / unit) / 2))
    sizes = tuple(max(1, round(far / unit / constant)) for far in distances)
    slope = max(1, round(min(RISE, cap or RISE) / unit / RAMP))
    largest = max(*sizes, slope, NORMAL)
    fits = largest < 2**form.significand and constant < 2**form.significand
    fits = fits and largest * 2.0**exponent <= form.largest and 2.0 ** (exponent - FRACTION) >= form.smallest_normal
    sums = max(sizes) * constant + slope * RAMP + dims * NORMAL**2
    return Far(unit, exponent, constant, sizes, slope) if fits and sums * 4.0**FRACTION < _room(contract) else None


def far_scores(problem: Attention, contract: Contract, draws: Draws) -> dict[str, Tensor]:
    """q and k. Raises FillError if a sum of theirs is not exact."""
    chosen = far_plan(problem, contract)
    assert chosen is not None
    q, k = (_multiples(draws.normal(problem.operand(name).shape)) for name in "qk")
    rows = q.shape[:-1]
    sizes = np.asarray(chosen.sizes)[draws.below(len(chosen.sizes), rows)]
    sizes = sizes - draws.below(2**20, rows) * (1 + sizes // 8) // 2**20  # rows differ in size
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


def levels_plan(problem: Attention, gain: float) -> tuple[float, float, int] | None:
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
    chosen = levels_plan(problem, gain)
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
