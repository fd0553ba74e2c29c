"""Fills of attention, forward and backward.

"selector": the keys are codes of +-1 and every query is the code of one key, so that one score is 0 and all others so
low that their probabilities are 0: the output is a row of v, bit by bit. "tie": several keys share a code. "uniform":
queries and keys live in different dimensions, so that all scores are 0 and all probabilities equal. In all three a
wrong mask, a wrong index or a narrow sum shows at once, and no rounding hides it. "randn" and "hot" (queries six times
as large, so that few keys rule) are judged by the bounds of ``numerics.attention_bounds``.

The backward pass takes out and lse as inputs, so exact fills choose them freely: lse 0 makes P exactly 1 where the
score is 0, and integers as out, v and grad_out make the gradients of scores integers.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conformance.inputs.draws import Draws, Integers
from conformance.inputs.fill_set import FillError, FillKind, FillRequest, FillSet, register_fills
from conformance.numerics import attention_bounds
from conformance.numerics.bounds import U, growth
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import Attention
from conformance.references import attention as meaning

#: Scores that are not selected lie this far below the selected one: exp of it is 0 in fp64, and so in fp32.
UNDERFLOW = 800.0
#: Keys that share a code, at most: forward two, whose average is exact, backward more.
TIED, TIED_BACKWARD = 2, 4
#: Integer gradients of scores have at most this many bits, however wide the format they are rounded to.
GRADIENT_BITS = 11
#: How often the integers of a backward fill are made smaller before it is given up.
ATTEMPTS = 24
#: "hot" queries are this much larger.
HEAT = 6.0


@dataclass(frozen=True)
class Codes:
    """``length`` coordinates hold the code, one more makes the score of equal codes 0; q is multiplied by
    ``2**q_exponent``, k by ``2**k_exponent``."""

    length: int
    q_exponent: int
    k_exponent: int


def codes(problem: Attention, contract: Contract) -> Codes | None:
    """The codes that tell the keys of ``problem`` apart, None if there are none."""
    form = FORMATS[_format(problem, contract)]
    length = min(problem.head_dim - 1, 2**form.significand)
    scale = problem.softmax_scale
    if 2 ** min(length, 62) < problem.keys or not scale > 0:
        return None
    reach = problem.queries + problem.keys if problem.score.kind == "alibi" else 0
    exponent = max(0, math.ceil(math.log2((UNDERFLOW + reach) / (2 * scale))))
    q_exponent = exponent // 2
    chosen = Codes(length, q_exponent, exponent - q_exponent)
    fits = length * 2.0**chosen.q_exponent <= form.largest and 2.0**chosen.k_exponent <= form.largest
    return chosen if fits else None


def applicable(problem: Attention, contract: Contract) -> tuple[str, ...]:
    """Backward problems have no "selector". Problems whose keys cannot have different codes (few dims for many keys, a
    scale that is not positive or extreme) have neither "selector" nor "tie"."""
    left_out = {"selector"} if problem.backward else set()
    if codes(problem, contract) is None:
        left_out |= {"selector", "tie"}
    return tuple(name for name in FILLS.names if name not in left_out)


def build(request: FillRequest[Attention]) -> Fill:
    """The fill that ``request`` names; see :class:`FillSet`. It is that of the first output, the others are its parts.
    Documents are the same in all fills of a seed."""
    draws, inputs = request.draws("attention"), _documents(request.problem, request.seed)
    if request.name in ("randn", "hot"):
        return _random(request, draws, inputs)
    return (_exact_backward if request.problem.backward else _exact_forward)(request, draws, inputs)


def _random(request: FillRequest[Attention], draws: Draws, inputs: dict[str, Tensor]) -> Fill:
    name, problem, contract = request.name, request.problem, request.contract
    form = _format(problem, contract)
    for operand in ("q", "k", "v"):
        size = HEAT if (name, operand) == ("hot", "q") else 1.0
        values = draws.normal(problem.operand(operand).shape) * size
        inputs[operand] = round_to(torch.from_numpy(values), form)
    if problem.score.kind == "alibi":
        inputs["slopes"] = _slopes(problem, draws, name)
    if not problem.backward:
        exact = meaning.forward(problem, inputs, device=request.device)
        return _fill(request, inputs, exact.outputs, attention_bounds.forward_error(problem, contract, exact))
    forward = meaning.forward(dataclasses.replace(problem, op="attention"), inputs, device=request.device)
    inputs["out"] = round_to(forward.out.cpu(), problem.operand("out").dtype)
    inputs["lse"] = round_to(forward.lse.cpu(), "fp32")
    inputs["grad_out"] = round_to(torch.from_numpy(draws.normal(problem.operand("grad_out").shape)), form)
    gradients = meaning.backward(problem, inputs, device=request.device)
    errors = attention_bounds.backward_error(problem, contract, gradients)
    return _fill(request, inputs, gradients.outputs, errors)


def _exact_forward(request: FillRequest[Attention], draws: Draws, inputs: dict[str, Tensor]) -> Fill:
    name, problem, contract = request.name, request.problem, request.contract
    form = _format(problem, contract)
    exact_bits = min(FORMATS[form].significand, contract.accumulator.exact_bits)
    if name == "uniform":
        _apart(problem, draws, form, inputs)
        largest = max(1, min(2**exact_bits - 1, (2**contract.accumulator.exact_bits - 1) // problem.keys))
    else:
        tied = TIED if name == "tie" else 1
        _coded(problem, contract, draws, inputs, tied)
        largest = 2**exact_bits // tied - 1
    inputs["v"] = _rounded(draws.nonzero(largest, problem.operand("v").shape), form)
    if problem.score.kind == "alibi":
        inputs["slopes"] = _slopes(problem, draws, name)
    exact = meaning.forward(problem, inputs, device=request.device)
    return _fill(request, inputs, exact.outputs, _structured_errors(name, problem, contract, exact))


def _structured_errors(
    name: str, problem: Attention, contract: Contract, exact: meaning.ForwardValues
) -> tuple[Tensor | None, Tensor | None]:
    """Bounds of out and lse where every weight is 1 or 0; None for an exact one.

    A division by 1 or 2 is exact, one by another count rounds. A capped score cannot go below -cap, so the weights of
    keys that are not selected do not vanish. Under alibi the score that "selector" selects is not 0: a kernel that
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
    else:
        return None, None if name == "selector" else torch.where(exact.live, lse * attention_bounds.UP, 0.0)
    live = exact.live.unsqueeze(-1)
    return torch.where(live, error, 0.0), torch.where(exact.live, lse * attention_bounds.UP, 0.0)


def _exact_backward(request: FillRequest[Attention], draws: Draws, inputs: dict[str, Tensor]) -> Fill:
    name, problem, contract = request.name, request.problem, request.contract
    form = _format(problem, contract)
    if name == "uniform":
        _apart(problem, draws, form, inputs)
    else:
        _coded(problem, contract, draws, inputs, TIED_BACKWARD)
    if problem.score.kind == "alibi":
        inputs["slopes"] = _slopes(problem, draws, name)
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
            inputs[key] = _rounded(values, form if key == "v" else problem.dtype)
        inputs["grad_out"] = _rounded((shares["grad_out"] <= density) * signs["grad_out"], form)
        exact = meaning.backward(problem, inputs, device=request.device)
        excess = _excess(problem, contract, exact, bits)
        if excess <= 1:
            return _fill(request, inputs, exact.outputs, _leaks(name, problem, contract, exact))
        if largest >= 2:
            largest = max(1.0, min(largest / excess, math.floor(largest) - 1))
        else:
            density /= 2
    raise FillError(f"{problem.id}: no exact backward fill {name!r} fits: sums are {excess:g} times too large")


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

    Two things are inexact: the product with a scale that is no power of two and, under a soft cap, the probabilities
    of keys that are not selected."""
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
    """Largest weight of a key that a soft cap keeps from vanishing, beside a selected one of 1."""
    return 2 * math.exp(-problem.score.cap)


def _coded(problem: Attention, contract: Contract, draws: Draws, inputs: dict[str, Tensor], tied: int) -> None:
    """q and k such that every query's score is 0 with the keys of one code, and far below 0 with all others.

    A query's code is that of a key that it sees, on some rows the first or the last one.
    """
    plan = codes(problem, contract)
    assert plan is not None
    batch, heads, keys = problem.key_batch, problem.key_heads, problem.keys
    groups = -(-keys // tied)
    order = np.argsort(draws.words((batch, heads, keys)), axis=-1, kind="stable") // tied
    book = draws.signs((batch, heads, groups, plan.length))
    digits = max(1, (groups - 1).bit_length())
    # the number of the group, in base 2 and disguised, is part of its code: no two are alike
    numbers = np.arange(groups) ^ draws.below(2**digits, (batch, heads, 1))
    book[..., :digits] = 1 - 2 * ((numbers[..., None] >> np.arange(digits)) & 1)
    places = draws.permutation(problem.head_dim)
    k = np.zeros((batch, heads, keys, problem.head_dim), dtype=np.int64)
    k[..., : plan.length] = np.take_along_axis(book, order[..., None], axis=2)
    k[..., plan.length] = 1

    target = _targets(problem, draws, inputs)
    which = np.arange(problem.heads) // (problem.heads // heads)
    full = np.broadcast_to(k[:, which], (problem.batch, problem.heads, keys, problem.head_dim))
    q = np.take_along_axis(full, target[..., None], axis=2)
    q[..., plan.length] = -plan.length
    form = _format(problem, contract)
    inputs["q"] = _rounded(q[..., places], form, plan.q_exponent)
    inputs["k"] = _rounded(k[..., places], form, plan.k_exponent)


def _targets(problem: Attention, draws: Draws, inputs: Mapping[str, Tensor]) -> Integers:
    """(batch, heads, queries): a key that each query sees, any key for a query that sees none.

    About sixteen rows of each head take the first key that they see, and as many the last one.
    """
    counts = meaning.visible(problem, inputs).numpy().cumsum(-1, dtype=np.int32)
    shape = (problem.batch, problem.heads, problem.queries)
    seen = np.broadcast_to(counts[..., -1], shape).astype(np.int64)
    nth = (draws.below(2**30, shape) * seen) >> 30
    edge = draws.below(max(4, problem.queries // 16), shape)
    nth = np.where(edge == 0, 0, np.where(edge == 1, np.maximum(seen - 1, 0), nth))
    targets: Integers = (counts <= nth[..., None]).sum(-1, dtype=np.int64)
    return np.minimum(targets, problem.keys - 1)


def _apart(problem: Attention, draws: Draws, form: str, inputs: dict[str, Tensor]) -> None:
    """q of +-1 in a random half of the dims, k of +-1 in the other half: all scores are 0."""
    places = draws.permutation(problem.head_dim) < (problem.head_dim + 1) // 2
    for operand, where in (("q", places), ("k", ~places)):
        inputs[operand] = _rounded(draws.signs(problem.operand(operand).shape) * where, form)


def _slopes(problem: Attention, draws: Draws, name: str) -> Tensor:
    """fp32 slopes between 2**-6 and 2**-1, no powers of two; 0 for "tie" and "uniform", which they would blur."""
    shape = (problem.heads,)
    slopes = np.ldexp(1.0 + draws.uniform(shape), -2 - draws.below(5, shape))
    return round_to(torch.from_numpy(np.zeros(shape) if name in ("tie", "uniform") else slopes), "fp32")


def _documents(problem: Attention, seed: int) -> dict[str, Tensor]:
    """Runs of keys with one number each, in no order; a query has the number at its position.

    In every batch one run of queries has a number that no key has, and so sees no key.
    """
    if problem.mask.kind != "document":
        return {}
    draws = Draws(seed, "attention documents")
    batch, queries, keys = problem.batch, problem.queries, problem.keys
    starts = draws.chance(4.0 / keys, (batch, keys))
    numbers = draws.permutation(keys + 1)[starts.cumsum(-1)]
    position = np.arange(queries) + keys - queries
    query = numbers[:, np.maximum(position, 0)]
    first = draws.below(queries, (batch, 1))
    length = max(1, queries // 8)
    run = (np.arange(queries) >= first) & (np.arange(queries) < first + length)
    query = np.where(run & (queries > 1), keys + 1, query)
    return {
        "query_document": torch.from_numpy(query.astype(np.int32)),
        "key_document": torch.from_numpy(numbers.astype(np.int32)),
    }


def _format(problem: Attention, contract: Contract) -> str:
    """The format whose values q, k, v and grad_out may use."""
    return "tf32" if (problem.dtype, contract.operand) == ("fp32", "tf32") else problem.dtype


def _rounded(values: NDArray, form: str, exponent: int = 0) -> Tensor:
    return round_to(torch.from_numpy(np.ldexp(values.astype(np.float64), exponent)), form)


def _fill(
    request: FillRequest[Attention],
    inputs: Mapping[str, Tensor],
    values: Mapping[str, Tensor],
    errors: Sequence[Tensor | None],
) -> Fill:
    """One fill of all outputs, whose bounds are ``errors`` in the order of ``values``; None where one is exact."""
    problem = request.problem
    inputs = {operand.name: inputs[operand.name] for operand in problem.operands}
    bounds = dict(zip(values, errors, strict=True))
    fills = {}
    for output in problem.outputs:
        error = bounds[output.name]
        meta = {"contract_assumed": request.contract.accumulator.assumed}
        fills[output.name] = request.fill(
            "exact" if error is None else "bounded", inputs, values[output.name], error, meta
        )
    first = fills.pop(problem.output.name)
    return dataclasses.replace(first, parts=fills)


FILLS = FillSet(
    (
        FillKind(
            "selector",
            True,
            "keys that are codes of +-1; every query is the code of one key that it sees",
            "a wrong mask, index or head: the output is a row of v, bit by bit",
        ),
        FillKind("tie", True, "several keys that share a code", "keys that are left out or counted twice"),
        FillKind(
            "uniform", True, "queries and keys in different dimensions: all probabilities are equal", "narrow sums"
        ),
        FillKind("randn", False, "near-normal values", "errors past the bound at usual values"),
        FillKind("hot", False, "queries six times as large, so that few keys rule", "a wrong maximum or rescaling"),
    ),
    applicable,
    build,
)
register_fills(Attention, FILLS)
