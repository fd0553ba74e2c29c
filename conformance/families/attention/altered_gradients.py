"""Alterations of attention's backward pass: scales, delta, masks and slopes of gradients, heads that share a key."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from conformance.families.attention import bounds as attention_bounds
from conformance.families.attention import reference as meaning
from conformance.families.attention.outcomes import LOOSE, Inputs, outputs_of, unchanged, where_applied, with_errors
from conformance.families.attention.problem import Attention
from conformance.families.gemm.alterations import other_indices
from conformance.numerics.alterations import Alteration, Outputs
from conformance.numerics.contract import Contract
from conformance.numerics.tiling import Tiling


def about_gradients(problem: Attention, contract: Contract, tiling: Tiling) -> Iterator[Alteration]:
    """Alterations of what follows the scores of a backward problem."""
    scale = problem.softmax_scale

    def times(cause: str, **factors: float) -> Alteration:
        def compute(inputs: Inputs) -> Outputs:
            right = meaning.backward(problem, inputs)
            errors = attention_bounds.backward_error(problem, contract, right)
            by = [factors.get(name, 1.0) for name in right.outputs]
            pairs = zip(right.outputs.items(), errors, by, strict=True)
            return {name: (value * factor, error * abs(factor)) for (name, value), error, factor in pairs}

        return Alteration(cause, compute)

    if scale != 1.0:
        for names in (("grad_k",), ("grad_q",), ("grad_q", "grad_k")):
            text = " and ".join(names)
            yield times(f"the scale is not applied to {text}", **dict.fromkeys(names, 1 / scale))
            yield times(f"the scale is applied twice to {text}", **dict.fromkeys(names, scale))

    def of_inputs(cause: str, **changes: Callable[[Tensor], Tensor]) -> Alteration:
        def compute(inputs: Inputs) -> Outputs:
            changed = {**inputs, **{name: change(inputs[name]) for name, change in changes.items()}}
            return outputs_of(problem, contract, unchanged, changed)

        return Alteration(cause, compute)

    def of_values(cause: str, change: Callable[[meaning.Scores, Inputs], dict[str, Tensor]]) -> Alteration:
        return Alteration(cause, functools.partial(_from_parts, problem, contract, change))

    yield of_values(
        "delta, the row sums of out * grad_out, is not subtracted", lambda scored, inputs: {"delta": 0 * _delta(inputs)}
    )
    yield of_values("delta is added, not subtracted", lambda scored, inputs: {"delta": -_delta(inputs)})
    for dim, axis, count in ((0, "batch", problem.batch), (1, "head", problem.heads)):
        for what, index in other_indices(count):
            operands: tuple[tuple[str, ...], ...] = (("grad_out",), ("lse",), ("out",), ("grad_out", "lse", "out"))
            for together in operands:
                pick = dict.fromkeys(together, functools.partial(torch.index_select, dim=dim, index=index))
                yield of_inputs(f"{' and '.join(together)} of another {axis}: {what}", **pick)
    for what, index in other_indices(problem.queries):
        yield of_values(
            f"delta of another row: {what}",
            functools.partial(_delta_of, index),
        )
        yield of_inputs(f"lse of another row: {what}", lse=functools.partial(_rows_of, index))
    if problem.mask.kind in ("causal", "sliding-window"):
        right = meaning.visible(problem, {})[0, 0]
        for where, reached in where_applied(problem, tiling, torch.ones_like(right)):
            cause = f"gradients of hidden scores are not masked{where}"
            yield of_values(cause, functools.partial(_reached, reached.double()))
    if problem.score.kind == "soft-cap":
        capped = {
            "the slope of the soft cap is not applied": lambda t: 0 * t + 1,
            "the slope of the soft cap is 1 - t, not 1 - t * t": lambda t: 1 - t,
            "the slope of the soft cap is applied twice": lambda t: (1 - t * t) ** 2,
        }
        for cause, slope in capped.items():
            yield Alteration(cause, functools.partial(_with_slope, problem, contract, slope))
    group = problem.heads // problem.key_heads
    if group > 1:
        for place, what in ((0, "first"), (group - 1, "last")):
            kept = (torch.arange(problem.heads) % group == place)[:, None, None]
            yield Alteration(
                f"gradients of k and v are those of the {what} of the heads that share them",
                functools.partial(_of_some_heads, problem, contract, kept),
            )
    if problem.key_batch < problem.batch:
        for place, what in ((0, "first"), (problem.batch - 1, "last")):
            kept = (torch.arange(problem.batch) == place)[:, None, None, None]
            yield Alteration(
                f"gradients of k and v are those of the {what} batch",
                functools.partial(_of_some_heads, problem, contract, kept),
            )


def _rows_of(index: Tensor, statistics: Tensor) -> Tensor:
    return statistics[:, :, index]


def _delta_of(index: Tensor, _: meaning.Scores, inputs: Inputs) -> dict[str, Tensor]:
    return {"delta": _rows_of(index, _delta(inputs))}


def _reached(reached: Tensor, _: meaning.Scores, __: Inputs) -> dict[str, Tensor]:
    return {"reached": reached}


def _delta(inputs: Inputs) -> Tensor:
    return (inputs["out"].double() * inputs["grad_out"].double()).sum(-1)


def _with_slope(problem: Attention, contract: Contract, slope: Callable[[Tensor], Tensor], inputs: Inputs) -> Outputs:
    scored = meaning.scores(problem, inputs)
    right = meaning.gradients(problem, inputs, scored)
    errors = attention_bounds.backward_error(problem, contract, right)
    values = meaning.gradients(
        problem, inputs, dataclasses.replace(scored, slope=slope(scored.score / problem.score.cap))
    ).outputs
    outputs: dict[str, tuple[Tensor, Tensor | None]] = {}
    for (name, value), error in zip(values.items(), errors, strict=True):
        growth = max(1.0, float(value.abs().max() / right.outputs[name].abs().max()))
        outputs[name] = value, error * (LOOSE * growth)
    return outputs


def _from_parts(
    problem: Attention,
    contract: Contract,
    change: Callable[[meaning.Scores, Inputs], dict[str, Tensor]],
    inputs: Inputs,
) -> Outputs:
    """Returns the gradients with another delta, or with probabilities of hidden keys too."""
    scored = meaning.scores(problem, inputs)
    right = meaning.gradients(problem, inputs, scored)
    parts = change(scored, inputs)
    probabilities, delta = right.probabilities, parts.get("delta", right.delta)
    if "reached" in parts:
        probabilities = parts["reached"] * torch.exp(
            scored.score - torch.where(right.lse.isfinite(), right.lse, 0.0).unsqueeze(-1)
        )
    delta = delta.unsqueeze(-1)
    grad_scores = probabilities * (right.grad_probabilities - delta)
    grad_scaled = grad_scores if scored.slope is None else grad_scores * scored.slope
    scale = problem.softmax_scale
    altered = dataclasses.replace(
        right,
        delta=delta[..., 0],
        grad_scores=grad_scores,
        grad_scaled=grad_scaled,
        grad_q=(grad_scaled @ scored.k) * scale,
        grad_k=meaning.gathered(problem, grad_scaled.transpose(-1, -2) @ scored.q) * scale,
    )
    errors = attention_bounds.backward_error(problem, contract, altered)
    return {name: (value, LOOSE * error) for (name, value), error in zip(altered.outputs.items(), errors, strict=True)}


def _of_some_heads(problem: Attention, contract: Contract, kept: Tensor, inputs: Inputs) -> Outputs:
    right = meaning.backward(problem, inputs)
    errors = attention_bounds.backward_error(problem, contract, right)
    scale = problem.softmax_scale
    values = {
        "grad_q": right.grad_q,
        "grad_k": meaning.gathered(problem, (right.grad_scaled.transpose(-1, -2) @ right.scores.q) * kept) * scale,
        "grad_v": meaning.gathered(problem, (right.probabilities.transpose(-1, -2) @ right.grad_out) * kept),
    }
    return with_errors(values, errors)
