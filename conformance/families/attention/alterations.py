"""Alterations of attention: masks off by one, heads and keys of others, scores, maxima and merges that are wrong."""

from __future__ import annotations

import dataclasses
import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor

from conformance.families.attention import reference as meaning
from conformance.families.attention.altered_gradients import about_gradients
from conformance.families.attention.altered_softmax import about_softmax
from conformance.families.attention.outcomes import (
    LOG2E,
    PLAIN,
    Inputs,
    Rescored,
    outputs_of,
    tile_shapes,
    tiles_misjudged,
    unchanged,
    where_applied,
)
from conformance.families.attention.problem import SCALES, Attention
from conformance.families.gemm.alterations import other_indices
from conformance.numerics.alterations import Alteration, Outputs
from conformance.numerics.contract import Contract
from conformance.numerics.rounding import FORMATS, round_to
from conformance.numerics.tiling import Tiling

#: More causes of one mask than this name nothing.
MOST_NAMES = 3


def alterations(problem: Attention, contract: Contract, tiling: Tiling, exact: bool) -> Iterator[Alteration]:
    """Yields every alteration of ``problem``."""
    for cause, change in itertools.chain(_about_masks(problem, tiling), _about_scores(problem), _about_heads(problem)):
        yield Alteration(cause, functools.partial(outputs_of, problem, contract, change))
    for cause, altered in _about_problem(problem):
        yield Alteration(cause, functools.partial(outputs_of, altered, contract, unchanged))
    for name in SCALES if problem.scaled else ():
        yield Alteration(f"{name} is not applied", functools.partial(_unscaled, problem, contract, name))
    yield from (about_gradients if problem.backward else about_softmax)(problem, contract, tiling)
    yield from _about_rounding(problem, contract)
    for cause, change in _about_keys(problem, tiling):  # many
        yield Alteration(cause, functools.partial(outputs_of, problem, contract, change))


def _unscaled(problem: Attention, contract: Contract, name: str, inputs: Inputs) -> Outputs:
    return outputs_of(problem, contract, unchanged, {**inputs, name: torch.ones_like(inputs[name])})


def _about_rounding(problem: Attention, contract: Contract) -> Iterator[Alteration]:
    """Outputs that are rounded to a narrower format on the way."""
    for name in ("fp16", "bf16"):
        if any(FORMATS[output.dtype].significand > FORMATS[name].significand for output in problem.outputs):
            rounded = functools.partial(_rounded, problem, contract, name)
            yield Alteration(f"the results pass through {name}", rounded, special=name == "fp16")


def _rounded(problem: Attention, contract: Contract, name: str, inputs: Inputs) -> Outputs:
    outputs = {}
    for output, (value, error) in outputs_of(problem, contract, unchanged, inputs).items():
        narrow = round_to(value, name).double()
        unit = value.abs() * 2.0 ** (1 - FORMATS[name].significand) + FORMATS[name].smallest_normal
        outputs[output] = narrow, unit if error is None else error + unit
    return outputs


# Which keys a query sees


def _about_masks(problem: Attention, tiling: Tiling) -> Iterator[tuple[str, Rescored]]:
    offset = meaning.positions(problem)
    kind, size = problem.mask.kind, problem.mask.size
    everything = torch.ones_like(offset, dtype=torch.bool)
    seen: dict[str, Tensor] = {}
    if kind == "full":
        seen["keys behind the query's position are masked"] = offset <= 0
    if kind in ("causal", "sliding-window"):
        inside = everything if kind == "causal" else offset > -size
        seen["the mask is off by one: a query does not see its own position"] = (offset < 0) & inside
        seen["the mask is off by one: a query sees the key behind its position"] = (offset <= 1) & inside
        seen["keys behind the query's position are not masked"] = inside
        own = torch.arange(problem.keys) - torch.arange(problem.queries)[:, None]
        own_inside = everything if kind == "causal" else own > -size
        seen["a query's position is its own number, not counted from the last key"] = (own <= 0) & own_inside
    if kind == "sliding-window":
        for wrong in (size + 1, size - 1):
            cause = f"the mask is off by one: the window is {wrong} keys, not {size}"
            seen[cause] = (offset <= 0) & (offset > -wrong)
        seen["the window is not applied"] = offset <= 0
    for cause, changed in _distinct(problem, tiling, seen):
        yield cause, _with_mask(changed[None, None])
    yield "a key behind the last one is seen, as zeros", functools.partial(_more_keys, problem, 1)
    if behind := -problem.keys % tiling.block[1]:
        cause = "the keys behind the last one are seen, as zeros, to the end of the block"
        yield cause, functools.partial(_more_keys, problem, behind)
    if kind == "document":
        yield "the documents are not compared", _with_mask(everything[None, None])
        for cause, compare in (
            ("a document sees those with smaller numbers too", torch.ge),
            ("a document sees those with larger numbers too", torch.le),
        ):
            yield cause, functools.partial(_with_documents, compare)


def _distinct(problem: Attention, tiling: Tiling, masks: Mapping[str, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Yields ``masks`` by cause, everywhere or in some tiles only, and tiles that are misjudged. Of causes that show
    the same the plainest are named: those that hold everywhere or for all tiles alike. If there are none, all are named
    unless they are many."""
    if problem.mask.is_data:
        return
    named: dict[bytes, tuple[Tensor, list[str], list[str]]] = {}

    def add(cause: str, visible: Tensor, plain: bool) -> None:
        _, plainest, others = named.setdefault(bytes(visible.numpy().tobytes()), (visible, [], []))
        (plainest if plain else others).append(cause)

    masked = problem.mask.kind != "full"
    for cause, visible in masks.items():
        add(cause, visible, True)
    for number, (cause, visible) in enumerate(tiles_misjudged(problem, tiling) if masked else ()):
        add(cause, visible, number < PLAIN * len(tile_shapes(problem, tiling)))
    for cause, visible in masks.items() if masked else ():
        for where, changed in where_applied(problem, tiling, visible):
            if where:
                add(cause + where, changed, False)
    right = bytes(meaning.visible(problem, {})[0, 0].numpy().tobytes())
    for key, (visible, plain, others) in named.items():
        names = plain or others
        if key != right and len(names) <= MOST_NAMES:
            yield ", or ".join(names), visible


def _more_keys(problem: Attention, count: int, scored: meaning.Scores, inputs: Inputs) -> meaning.Scores:
    """``count`` keys more, whose k and v are zero."""
    if problem.backward:
        raise ValueError("gradients have no place for more keys")

    def longer(tensor: Tensor, dim: int, fill: float = 0.0) -> Tensor:
        shape = list(tensor.shape)
        shape[dim] = count
        return torch.cat([tensor, torch.full(shape, fill, dtype=tensor.dtype)], dim)

    score, bias = longer(scored.score, -1), scored.bias
    if bias is not None:
        slopes = inputs["slopes"].double()[:, None, None]
        places = meaning.positions(problem)[:, -1:] + 1 + torch.arange(count)
        added = slopes * places
        score = torch.cat([scored.score, added.expand(*scored.score.shape[:-1], count)], -1)
        bias = torch.cat([bias, added], -1)
    visible = scored.visible.expand(*scored.visible.shape[:-1], problem.keys)
    return dataclasses.replace(
        scored,
        k=longer(scored.k, 2),
        v=longer(scored.v, 2),
        visible=longer(visible, -1, True),
        scaled=longer(scored.scaled, -1),
        score=score,
        slope=None if scored.slope is None else longer(scored.slope, -1, 1.0),
        bias=bias,
    )


def _with_mask(visible: Tensor) -> Rescored:
    return lambda scored, _: dataclasses.replace(scored, visible=visible)


def _with_documents(compare: Callable[..., Tensor], scored: meaning.Scores, inputs: Inputs) -> meaning.Scores:
    query, key = inputs["query_document"], inputs["key_document"]
    return dataclasses.replace(scored, visible=compare(query[:, :, None], key[:, None, :]).unsqueeze(1))


def _about_keys(problem: Attention, tiling: Tiling) -> Iterator[tuple[str, Rescored]]:
    """Keys or queries that are left out or counted twice, and values of another block."""
    keys, number = problem.keys, torch.arange(problem.keys)
    for count in (keys - 1, *range(1, keys - 1)) if keys <= 256 else (keys - 1,):
        yield f"the keys from {count} of {keys} on are left out", _restricted(number < count)
        yield f"the first {count} of {keys} keys are left out", _restricted(number >= count)
    blocks = {tiling.block[0], tiling.block[1]} if problem.backward else {tiling.block[1]}
    for block in sorted(blocks):
        for t in range(-(-keys // block)):
            inside = number // block == t
            last = t == -(-keys // block) - 1
            where = f"keys {t * block}..{min((t + 1) * block, keys) - 1} (block {t} of {block})"
            if t and not last:
                yield f"{where} are left out", _restricted(~inside)
            yield f"{where} are counted twice", functools.partial(_twice, inside)
        stale = (number - block).clamp(min=0)
        yield f"v of the previous block of {block} keys is used", functools.partial(_other_values, stale)
        following = (number + block).clamp(max=keys - 1)
        yield f"v of the next block of {block} keys is used", functools.partial(_other_values, following)
    yield "every key is counted twice", functools.partial(_twice, number >= 0)
    if problem.backward:
        queries, place = problem.queries, torch.arange(problem.queries)
        for count in range(1, queries) if queries <= 256 else (queries - 1,):
            yield f"the queries from {count} of {queries} on are left out", _of_queries(place < count)
            yield f"the first {count} of {queries} queries are left out", _of_queries(place >= count)


def _restricted(kept: Tensor) -> Rescored:
    return lambda scored, _: dataclasses.replace(scored, visible=scored.visible & kept)


def _of_queries(kept: Tensor) -> Rescored:
    return lambda scored, _: dataclasses.replace(scored, visible=scored.visible & kept[:, None])


def _twice(inside: Tensor, scored: meaning.Scores, _: Inputs) -> meaning.Scores:
    return dataclasses.replace(scored, score=scored.score + inside * math.log(2.0))


def _other_values(index: Tensor, scored: meaning.Scores, _: Inputs) -> meaning.Scores:
    return dataclasses.replace(scored, v=scored.v[:, :, index])


# Scores


def _about_scores(problem: Attention) -> Iterator[tuple[str, Rescored]]:
    kind = problem.score.kind
    if kind == "soft-cap":
        yield (
            "the soft cap is not applied",
            lambda scored, _: dataclasses.replace(scored, score=scored.scaled, slope=None),
        )
    if kind == "alibi":
        heads = problem.heads
        yield (
            "alibi's slopes are not applied",
            lambda scored, _: dataclasses.replace(scored, score=scored.scaled, bias=None),
        )
        for off in (1, -1, problem.queries - problem.keys, problem.keys - problem.queries):
            if off:
                yield (
                    f"alibi's positions are off by {off}",
                    functools.partial(_alibi, problem, off, torch.arange(heads)),
                )
        for what, index in other_indices(heads):
            yield f"alibi's slope of another head: {what}", functools.partial(_alibi, problem, 0, index)
    scale = problem.softmax_scale
    if problem.backward and scale != 1.0:
        yield "the scores are not scaled", functools.partial(_scaled_anew, problem, lambda scaled: scaled / scale)
        yield "the scores are scaled twice", functools.partial(_scaled_anew, problem, lambda scaled: scaled * scale)
    yield (
        "the scale is added to the scores, which are not multiplied by it",
        functools.partial(_scaled_anew, problem, lambda scaled: scaled / scale + scale),
    )
    yield (
        "scores are multiplied by log2(e) once more",
        lambda scored, _: dataclasses.replace(scored, score=scored.score * LOG2E),
    )
    yield (
        "exp2 is computed of scores that are not multiplied by log2(e)",
        lambda scored, _: dataclasses.replace(scored, score=scored.score / LOG2E),
    )


def _scaled_anew(
    problem: Attention, change: Callable[[Tensor], Tensor], scored: meaning.Scores, _: Inputs
) -> meaning.Scores:
    """Other scaled scores, modified as the problem says."""
    scaled = change(scored.scaled)
    if problem.score.kind == "soft-cap":
        bent = torch.tanh(scaled / problem.score.cap)
        return dataclasses.replace(scored, scaled=scaled, score=bent * problem.score.cap, slope=1 - bent * bent)
    score = scaled if scored.bias is None else scaled + scored.bias
    return dataclasses.replace(scored, scaled=scaled, score=score)


def _alibi(problem: Attention, off: int, index: Tensor, scored: meaning.Scores, inputs: Inputs) -> meaning.Scores:
    slopes = inputs["slopes"].double()[index]
    bias = slopes[:, None, None] * (meaning.positions(problem) + off)
    return dataclasses.replace(scored, score=scored.scaled + bias, bias=bias)


def _about_problem(problem: Attention) -> Iterator[tuple[str, Attention]]:
    scale = problem.softmax_scale
    others = {"the scale is not applied": 1.0, "the scale is applied twice": scale * scale}
    if problem.scale is not None:
        others["the scale is 1 / sqrt(head_dim), not the problem's"] = 1.0 / math.sqrt(problem.head_dim)
    for cause, other in others.items():
        if other != scale and not problem.backward:
            yield cause, dataclasses.replace(problem, scale=other)


# Heads and batches


def _about_heads(problem: Attention) -> Iterator[tuple[str, Rescored]]:
    group = problem.heads // problem.key_heads
    own = torch.arange(problem.heads)
    which: dict[str, Tensor] = {}
    if problem.key_heads > 1:
        right = own // group
        which["key head h % (heads // kv_heads) is used, not h // (heads // kv_heads)"] = (own % group).clamp(
            max=problem.key_heads - 1
        )
        which["key head h % kv_heads is used, not h // (heads // kv_heads)"] = own % problem.key_heads
        for what, index in other_indices(problem.key_heads):
            which[f"k and v of another head: {what}"] = index[right]
        unique = {tuple(index.tolist()): cause for cause, index in reversed(which.items())}
        which = {cause: torch.tensor(index) for index, cause in unique.items() if index != tuple(right.tolist())}
    for cause, index in which.items():
        for names in (("k", "v"), ("k",), ("v",)):
            text = cause if len(names) == 2 else f"{cause} (in {names[0]} only)"
            yield text, functools.partial(_shared_heads, index * group, names)
    if problem.heads > 1:
        for what, index in other_indices(problem.heads):
            yield f"q of another head: {what}", functools.partial(_other_rows, 1, index, ("q",))
    if problem.batch > 1:
        for what, index in other_indices(problem.batch):
            for names in (("k", "v"), ("k",), ("v",), ("q",)):
                if problem.key_batch > 1 or names == ("q",):
                    cause = f"{' and '.join(names)} of another batch: {what}"
                    yield cause, functools.partial(_other_rows, 0, index, names)
    for what, index in other_indices(problem.queries):
        yield f"q of another row: {what}", functools.partial(_other_rows, 2, index, ("q",))


def _shared_heads(index: Tensor, names: tuple[str, ...], scored: meaning.Scores, inputs: Inputs) -> meaning.Scores:
    return _other_rows(1, index, names, scored, inputs)


def _other_rows(dim: int, index: Tensor, names: tuple[str, ...], scored: meaning.Scores, _: Inputs) -> meaning.Scores:
    """Replaces rows of q, k or v along ``dim`` by the rows ``index`` and computes the scores again."""
    lines = {name: getattr(scored, name).index_select(dim, index) for name in names}
    q, k = lines.get("q", scored.q), lines.get("k", scored.k)
    if names == ("v",):
        return dataclasses.replace(scored, v=lines["v"])
    if scored.slope is not None:
        raise ValueError("capped scores are not computed again")
    scale = _scale_of(scored)
    scaled = (q @ k.transpose(-1, -2)) * scale
    score = scaled if scored.bias is None else scaled + scored.bias
    return dataclasses.replace(scored, q=q, k=k, v=lines.get("v", scored.v), scaled=scaled, score=score)


def _scale_of(scored: meaning.Scores) -> float:
    """Returns the factor between ``q k^T`` and the scaled scores."""
    products = scored.q @ scored.k.transpose(-1, -2)
    largest = products.abs().argmax()
    size = float(products.flatten()[largest])
    return float(scored.scaled.flatten()[largest]) / size if size else 1.0
