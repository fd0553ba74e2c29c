"""The reference of attention: masks, scores, probabilities, outputs and gradients of a problem in fp64.

Everything has the query's batch and heads: k and v are repeated for the heads that share them. At the end gradients of
k and v are summed over those heads (and over the batch where k and v have batch 1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from conformance.families.attention.problem import SCALES, Attention
from conformance.problems import Device, check_inputs


@dataclass(frozen=True)
class Scores:
    """fp64 operands (batch, heads, length, dim) and scores (batch, heads, queries, keys) of a problem.

    ``visible``: whether a query sees a key, broadcastable to the scores. ``scaled``: ``q k^T * scale``; ``score``:
    that with the score's modification; ``slope``: the modification's derivative, None where it is 1 everywhere;
    ``bias``: what the modification adds ("alibi"), else None. ``scale`` is that of the scores, with those of q and k;
    ``v`` is multiplied by its own, ``v_scale``.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    visible: Tensor
    scaled: Tensor
    score: Tensor
    slope: Tensor | None
    bias: Tensor | None
    scale: float
    v_scale: float = 1.0


@dataclass(frozen=True)
class ForwardValues:
    """``top``: (batch, heads, queries) largest visible score, 0 for a row that sees no key; ``weights``: exp(score -
    top), 0 where not visible; ``total``: their sums. ``out`` and ``lse`` as in :class:`Attention`."""

    scores: Scores
    top: Tensor
    weights: Tensor
    total: Tensor
    out: Tensor
    lse: Tensor

    @property
    def outputs(self) -> dict[str, Tensor]:
        """The problem's outputs by name. A sum starts from +0, so none is -0, be it of one term."""
        return {"out": self.out + 0.0, "lse": self.lse}

    @property
    def live(self) -> Tensor:
        """(batch, heads, queries): whether the row sees a key."""
        return self.total > 0

    @property
    def probabilities(self) -> Tensor:
        """(batch, heads, queries, keys), 0 in rows that see no key."""
        return self.weights / torch.where(self.live, self.total, 1.0).unsqueeze(-1)


@dataclass(frozen=True)
class BackwardValues:
    """Gradients for given out, lse and grad_out, with what leads to them, all (batch, heads, queries, keys) but for
    ``delta`` (batch, heads, queries). ``probabilities`` are exp(score - lse), ``grad_probabilities`` grad_out v^T, and
    ``delta`` the row sums of out * grad_out. ``grad_scores`` are with respect to the modified score, ``grad_scaled`` to
    the scaled one. The gradients have the shapes of q, k and v."""

    scores: Scores
    lse: Tensor
    out: Tensor
    grad_out: Tensor
    probabilities: Tensor
    grad_probabilities: Tensor
    delta: Tensor
    grad_scores: Tensor
    grad_scaled: Tensor
    grad_q: Tensor
    grad_k: Tensor
    grad_v: Tensor

    @property
    def outputs(self) -> dict[str, Tensor]:
        """The problem's outputs by name; none is -0."""
        return {"grad_q": self.grad_q + 0.0, "grad_k": self.grad_k + 0.0, "grad_v": self.grad_v + 0.0}


def positions(problem: Attention, device: Device = None) -> Tensor:
    """(queries, keys): key minus the position of the query; the last query stands at the last key."""
    query = torch.arange(problem.queries, device=device) + (problem.keys - problem.queries)
    return torch.arange(problem.keys, device=device) - query[:, None]


def visible(problem: Attention, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """Returns the keys that each query sees: bool, (batch or 1, 1, queries, keys).

    ``inputs`` are needed only for a mask that is data.
    """
    if problem.mask.packed:
        return _packed(problem, inputs, device)[None, None]
    if problem.mask.kind == "document":
        query, key = (inputs[name].to(device or "cpu") for name in ("query_document", "key_document"))
        return (query[:, :, None] == key[:, None, :]).unsqueeze(1)
    offset = positions(problem, device)
    seen = torch.ones_like(offset, dtype=torch.bool) if problem.mask.kind == "full" else offset <= 0
    if problem.mask.kind == "sliding-window":
        seen &= offset > -problem.mask.size
    return seen[None, None]


def _packed(problem: Attention, inputs: Mapping[str, Tensor], device: Device) -> Tensor:
    """Returns the keys that each query sees: those of its sequence, and of these no later one if the mask is causal."""
    starts = [inputs["query_starts"].to(device or "cpu").long(), _key_starts(problem, inputs, device)]
    counts = (problem.queries, problem.keys)
    numbers = [torch.arange(count, device=device) for count in counts]
    of = [torch.searchsorted(ends[1:], each, right=True) for ends, each in zip(starts, numbers, strict=True)]
    seen = of[0][:, None] == of[1]
    if problem.mask.kind == "packed-causal":  # counted back from the end of the sequence
        query, key = (each - ends[1:][which] for ends, each, which in zip(starts, numbers, of, strict=True))
        seen &= key <= query[:, None]
    return seen


def _key_starts(problem: Attention, inputs: Mapping[str, Tensor], device: Device) -> Tensor:
    if not problem.page:
        return inputs["key_starts"].to(device or "cpu").long()
    lengths = inputs["key_lengths"].to(device or "cpu").long()
    return torch.nn.functional.pad(lengths.cumsum(0), (1, 0))


def key_places(problem: Attention, inputs: Mapping[str, Tensor], *, device: Device = None) -> tuple[Tensor, Tensor]:
    """(keys,) page, and (keys,) row in that page, of each key of a problem with pages; the keys of a sequence follow
    those of the one before it."""
    assert problem.page
    starts = _key_starts(problem, inputs, device)
    numbers = torch.arange(problem.keys, device=device)
    sequence = torch.searchsorted(starts[1:], numbers, right=True)
    within = numbers - starts[sequence]
    table = inputs["page_table"].to(device or "cpu").long()
    return table[sequence, within // problem.page], within % problem.page


def repeated(problem: Attention, shared: Tensor) -> Tensor:
    """k or v (kv batch, kv heads, ...) repeated to (batch, heads, ...)."""
    group = problem.heads // problem.key_heads
    if group > 1:
        shared = shared.repeat_interleave(group, dim=1)
    return shared.expand(problem.batch, *shared.shape[1:])


def gathered(problem: Attention, full: Tensor) -> Tensor:
    """The sum of (batch, heads, ...) over everything that shares one k and v: (kv batch, kv heads, ...)."""
    group = problem.heads // problem.key_heads
    if group > 1:
        full = full.unflatten(1, (problem.key_heads, group)).sum(2)
    return full.sum(0, keepdim=True) if problem.key_batch < problem.batch else full


def scores(problem: Attention, inputs: Mapping[str, Tensor], *, device: Device = None) -> Scores:
    """Operands and scores of ``inputs``, computed on ``device`` (None: the CPU).

    Raises KeyError for a missing operand and ValueError for one of the wrong shape.
    """
    check_inputs(problem, inputs)
    q, k, v = (inputs[name].to(device or "cpu").double() for name in "qkv")
    if problem.page:
        pages, rows = key_places(problem, inputs, device=device)
        k, v = (pool[pages, :, rows].transpose(0, 1)[None] for pool in (k, v))
    k, v = repeated(problem, k), repeated(problem, v)
    scale, v_scale = problem.softmax_scale, 1.0
    if problem.scaled:
        q_scale, k_scale, v_scale = (float(inputs[name]) for name in SCALES)
        scale, v = scale * q_scale * k_scale, v * v_scale
    scaled = (q @ k.transpose(-1, -2)) * scale
    seen = visible(problem, inputs, device=device)
    score, slope, bias = scaled, None, None
    if problem.score.kind == "soft-cap":
        bent = torch.tanh(scaled / problem.score.cap)
        score, slope = bent * problem.score.cap, 1 - bent * bent
    elif problem.score.kind == "alibi":
        slopes = inputs["slopes"].to(device or "cpu").double()
        bias = slopes[:, None, None] * positions(problem, device)
        score = scaled + bias
    return Scores(q, k, v, seen, scaled, score, slope, bias, scale, v_scale)


def forward(problem: Attention, inputs: Mapping[str, Tensor], *, device: Device = None) -> ForwardValues:
    """Output and logarithm of the denominator. Weights are summed before the division, so that rows of equal scores
    and integer values are exact but for the division. Raises as :func:`scores` does."""
    return attended(scores(problem, inputs, device=device))


def attended(scored: Scores) -> ForwardValues:
    """Returns the values of the forward pass for ``scored``, which are finite where a query sees a key."""
    hidden = torch.where(scored.visible, scored.score, -math.inf)
    top = hidden.amax(-1)
    top = torch.where(top.isfinite(), top, 0.0)
    weights = torch.exp(hidden - top.unsqueeze(-1))
    total = weights.sum(-1)
    lse = top + torch.log(total)
    out = (weights @ scored.v) / torch.where(total > 0, total, 1.0).unsqueeze(-1)
    return ForwardValues(scored, top, weights, total, out, lse)


def backward(problem: Attention, inputs: Mapping[str, Tensor], *, device: Device = None) -> BackwardValues:
    """Gradients of q, k and v in exact arithmetic for the out and lse that are given, whatever they are.

    Let P be exp(score - lse) where visible, and 0 elsewhere and in rows whose lse is -inf. Then grad_v = P^T grad_out
    and grad_scores = P * (grad_out v^T - rowsum(out * grad_out)). The others are grad_q = scale * grad_scaled k and
    grad_k = scale * grad_scaled^T q. Raises as :func:`scores` does.
    """
    return gradients(problem, inputs, scores(problem, inputs, device=device), device=device)


def gradients(
    problem: Attention, inputs: Mapping[str, Tensor], scored: Scores, *, device: Device = None
) -> BackwardValues:
    """:func:`backward` from these scores, whatever they are."""
    out, lse, grad_out = (inputs[name].to(device or "cpu").double() for name in ("out", "lse", "grad_out"))
    seen = scored.visible & lse.isfinite().unsqueeze(-1)
    shift = torch.where(lse.isfinite(), lse, 0.0).unsqueeze(-1)
    probabilities = torch.exp(torch.where(seen, scored.score - shift, -math.inf))
    grad_probabilities = grad_out @ scored.v.transpose(-1, -2)
    delta = (out * grad_out).sum(-1)
    grad_scores = probabilities * (grad_probabilities - delta.unsqueeze(-1))
    grad_scaled = grad_scores if scored.slope is None else grad_scores * scored.slope
    scale = problem.softmax_scale
    return BackwardValues(
        scored,
        lse,
        out,
        grad_out,
        probabilities,
        grad_probabilities,
        delta,
        grad_scores,
        grad_scaled,
        (grad_scaled @ scored.k) * scale,
        gathered(problem, grad_scaled.transpose(-1, -2) @ scored.q) * scale,
        gathered(problem, probabilities.transpose(-1, -2) @ grad_out),
    )


def value(problem: Attention, inputs: Mapping[str, Tensor], *, device: Device = None) -> Tensor:
    """Returns the first output in fp64: out of a forward problem, grad_q of a backward one. Raises as :func:`scores`
    does."""
    result = (backward if problem.backward else forward)(problem, inputs, device=device)
    return result.outputs[problem.output.name]
