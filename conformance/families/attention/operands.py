"""Operands of attention's fills: codes of keys, scores of 0, slopes and documents; and the fill made of them."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from conformance.families.attention import reference as meaning
from conformance.families.attention.problem import SCALES, Attention
from conformance.inputs.fills import Draws, FillRequest, Integers
from conformance.numerics.contract import Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import FORMATS, round_to
from conformance.problems import EVERY_FP8

#: Scores that are not selected lie this far below the selected one: exp of it is 0 in fp64, and so in fp32.
UNDERFLOW = 800.0
#: Near-normal values are 2**SCALED times as large where they have scales, which are that much smaller.
SCALED = 5


@dataclass(frozen=True)
class Codes:
    """``length`` coordinates hold the code, one more makes the score of equal codes 0; q is multiplied by
    ``2**q_exponent``, k by ``2**k_exponent``."""

    length: int
    q_exponent: int
    k_exponent: int


def codes(problem: Attention, contract: Contract) -> Codes | None:
    """The codes that tell the keys of ``problem`` apart, None if there are none."""
    form = FORMATS[format_of(problem, contract)]
    length = min(problem.head_dim - 1, 2**form.significand)
    scale = problem.softmax_scale
    if 2 ** min(length, 62) < problem.keys or not scale > 0:
        return None
    reach = problem.queries + problem.keys if problem.score.kind == "alibi" else 0
    exponent = max(0, math.ceil(math.log2((UNDERFLOW + reach) / (2 * scale))))
    q_exponent = exponent // 2
    if problem.dtype in EVERY_FP8:  # their range is short, and k holds no value above 1
        q_exponent = min(q_exponent, math.floor(math.log2(form.largest / length)))
    chosen = Codes(length, q_exponent, exponent - q_exponent)
    fits = length * 2.0**chosen.q_exponent <= form.largest and 2.0**chosen.k_exponent <= form.largest
    return chosen if fits else None


def coded(problem: Attention, contract: Contract, draws: Draws, inputs: dict[str, Tensor], tied: int) -> None:
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
    form = format_of(problem, contract)
    inputs["q"] = rounded(q[..., places], form, plan.q_exponent)
    inputs["k"] = rounded(k[..., places], form, plan.k_exponent)


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


def apart(problem: Attention, draws: Draws, form: str, inputs: dict[str, Tensor]) -> None:
    """q of +-1 in a random half of the dims, k of +-1 in the other half: all scores are 0."""
    places = draws.permutation(problem.head_dim) < (problem.head_dim + 1) // 2
    for operand, where in (("q", places), ("k", ~places)):
        inputs[operand] = rounded(draws.signs(problem.operand(operand).shape) * where, form)


def slopes_of(problem: Attention, draws: Draws, name: str) -> Tensor:
    """fp32 slopes between 2**-6 and 2**-1, no powers of two; 0 for the fills that they would blur."""
    shape = (problem.heads,)
    slopes = np.ldexp(1.0 + draws.uniform(shape), -2 - draws.below(5, shape))
    return round_to(torch.from_numpy(np.zeros(shape) if name in ("tie", "uniform", "levels") else slopes), "fp32")


def scales_of(problem: Attention, draws: Draws, exponents: Sequence[int] = ()) -> dict[str, Tensor]:
    """Returns the scales of q, k and v: these powers of two, or numbers from 2**-SCALED on, up to twice that."""
    if not problem.scaled:
        return {}
    sizes = np.ldexp(1.0, np.array(exponents)) if exponents else np.ldexp(1.0 + draws.uniform((3,)), -SCALED)
    return {name: round_to(torch.from_numpy(sizes[place : place + 1]), "fp32") for place, name in enumerate(SCALES)}


def packed_starts(problem: Attention, seed: int) -> dict[str, Tensor]:
    """Returns the positions at which the packed sequences begin: anywhere. Of four or more sequences the first has no
    query and the second has one. The last has no key and the one before it has one. Where then no query saw a key the
    first sequence has everything."""
    draws = Draws(seed, "attention sequences")
    more = problem.mask.size - 1

    def within(cuts: Integers, count: int) -> Tensor:
        return torch.from_numpy(np.concatenate([[0], np.sort(cuts), [count]]).astype(np.int32))

    queries, keys = (np.sort(draws.below(count + 1, (more,))) for count in (problem.queries, problem.keys))
    if more >= 3:
        queries[1:] = np.maximum(queries[1:], 1)
        queries[:2], keys[-2:] = (0, 1), (problem.keys - 1, problem.keys)
        keys[:-2] = np.minimum(keys[:-2], problem.keys - 1)
    starts = {"query_starts": within(queries, problem.queries), "key_starts": within(keys, problem.keys)}
    if bool(meaning.visible(problem, starts).any()):
        return starts
    return {
        "query_starts": within(np.full(more, problem.queries), problem.queries),
        "key_starts": within(np.full(more, problem.keys), problem.keys),
    }


def documents(problem: Attention, seed: int) -> dict[str, Tensor]:
    """The operands of a mask that is data; for packed sequences see :func:`packed_starts`.

    Documents are runs of keys with one number each, in no order; a query has the number at its position. In every batch
    but the second one run of queries has a number that no key has, and so sees no key. In the second batch the last two
    thirds of the keys are one document, in the third batch the first two thirds. If a third of all keys is enough,
    there are blocks of keys that all of a block of queries see.
    """
    if problem.mask.packed:
        return packed_starts(problem, seed)
    if problem.mask.kind != "document":
        return {}
    draws = Draws(seed, "attention documents")
    batch, queries, keys = problem.batch, problem.queries, problem.keys
    starts = draws.chance(4.0 / keys, (batch, keys))
    first, length = draws.below(queries, (batch, 1)), np.full((batch, 1), max(1, queries // 8))
    long = 2 * keys // 3
    starts[1:2, keys - long :] = np.arange(long) == 0
    length[1:2] = 0
    starts[2:3, : long + 1] = np.arange(long + 1) == long
    first[2:3] = queries - length[2:3]
    numbers = draws.permutation(keys + 1)[starts.cumsum(-1)]
    position = np.arange(queries) + keys - queries
    query = numbers[:, np.maximum(position, 0)]
    run = (np.arange(queries) >= first) & (np.arange(queries) < first + length)
    query = np.where(run & (queries > 1), keys + 1, query)
    return {
        "query_document": torch.from_numpy(query.astype(np.int32)),
        "key_document": torch.from_numpy(numbers.astype(np.int32)),
    }


def in_pages(problem: Attention, fill: Fill) -> Fill:
    """Returns ``fill``, of the contiguous problem, with k and v in pages. Pages of all sequences come in a random
    order. NaN is in unused pages, to which the table leads after a sequence's own, and after the last key of a
    sequence."""
    assert problem.page
    draws = Draws(fill.seed, "attention pages")
    dense, table = fill.inputs, problem.operand("page_table").shape
    lengths = dense["key_starts"].diff()
    used = -(-lengths.long() // problem.page)
    count = problem.operand("k").shape[0]
    order = torch.from_numpy(draws.permutation(count))
    first = used.cumsum(0) - used
    numbers = first[:, None] + torch.arange(table[1])
    inside = torch.arange(table[1]) < used[:, None]
    pages = torch.where(inside, order[numbers.clamp(max=count - 1)], order[-1]).int()
    inputs = {**dense, "key_lengths": lengths.int(), "page_table": pages}
    places, rows = meaning.key_places(problem, inputs)
    for name in "kv":
        pool = torch.full(problem.operand(name).shape, math.nan, dtype=dense[name].dtype)
        pool[places, :, rows] = dense[name][0].transpose(0, 1)
        inputs[name] = pool
    inputs = {operand.name: inputs[operand.name] for operand in problem.operands}
    parts = {name: dataclasses.replace(part, inputs=inputs) for name, part in fill.parts.items()}
    return dataclasses.replace(fill, inputs=inputs, parts=parts)


def format_of(problem: Attention, contract: Contract) -> str:
    """The format whose values q, k, v and grad_out may use."""
    return "tf32" if (problem.dtype, contract.operand) == ("fp32", "tf32") else problem.dtype


def rounded(values: NDArray, form: str, exponent: int = 0) -> Tensor:
    return round_to(torch.from_numpy(np.ldexp(values.astype(np.float64), exponent)), form)


def one_fill(
    request: FillRequest[Attention],
    inputs: Mapping[str, Tensor],
    values: Mapping[str, Tensor],
    errors: Sequence[Tensor | None],
    or_nan: Mapping[str, Tensor] | None = None,
) -> Fill:
    """One fill of all outputs, whose bounds are ``errors`` in the order of ``values``; None where one is exact. With
    ``or_nan`` it is a special one, and NaN is right there too."""
    problem = request.problem
    inputs = {operand.name: inputs[operand.name] for operand in problem.operands}
    bounds = dict(zip(values, errors, strict=True))
    meta = {"contract_assumed": request.contract.accumulator.assumed}
    fills = {}
    for output in problem.outputs:
        value, error = values[output.name], bounds[output.name]
        method = "special" if or_nan is not None else "exact" if error is None else "bounded"
        fill = request.fill(method, inputs, value, error, meta)
        if or_nan is not None:
            fill = dataclasses.replace(fill, or_nan=or_nan[output.name].expand(value.shape))
        fills[output.name] = fill
    first = fills.pop(problem.output.name)
    return dataclasses.replace(first, parts=fills)
