"""Fills of attention keep what they promise: exact rows, dyadic weights, integer gradients, masks respected."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from conformance.inputs import attention
from conformance.inputs.fills import FillError, fill_names, fills
from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.numerics.rounding import round_to
from conformance.problems import Attention, Mask, Score
from conformance.references import attention as meaning

BASE = Attention("attention", 2, 4, 40, 56, 40, "fp16", kv_heads=2)
BACK = dataclasses.replace(BASE, op="attention_backward")
MASKS = (Mask(), Mask("causal"), Mask("sliding-window", 7), Mask("document"))


def contract_for(problem: Attention) -> Contract:
    if problem.dtype == "fp32":
        return Contract("fp32", FMA)
    return Contract(problem.dtype, Accumulator(), intermediate=problem.dtype)


def one(problem: Attention, name: str, seed: int = 0):
    (fill,) = fills(problem, contract_for(problem), seed, [name])
    return fill


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.id)
def test_selector_gives_rows_of_v(mask, dtype):
    problem = dataclasses.replace(BASE, mask=mask, dtype=dtype, queries=70)
    fill = one(problem, "selector")
    assert fill.method == fill.of("lse").method == "exact"
    exact = meaning.forward(problem, fill.inputs)
    assert set(exact.weights.unique().tolist()) == {0.0, 1.0}
    assert bool((exact.weights.sum(-1) == exact.live).all())
    target = exact.weights.argmax(-1, keepdim=True)
    rows = torch.gather(exact.scores.v, 2, target.expand(*target.shape[:-1], problem.values_dim))
    assert torch.equal(fill.expected, rows * exact.live[..., None])
    assert torch.equal(fill.of("lse").expected, torch.where(exact.live, 0.0, -math.inf).double())
    assert torch.equal(round_to(fill.expected, dtype).double(), fill.expected)  # shown to the last bit


def test_selector_uses_the_edges_of_the_mask():
    problem = dataclasses.replace(BASE, mask=Mask("causal"))
    target = meaning.forward(problem, one(problem, "selector").inputs).weights.argmax(-1)
    last = torch.arange(problem.queries) + problem.keys - problem.queries
    assert int((target == last).sum()) > 8
    assert int((target == 0).sum()) > 8
    assert len(target.unique()) > problem.keys // 2


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.id)
def test_tie_gives_one_or_two_keys(mask):
    problem = dataclasses.replace(BASE, mask=mask)
    fill = one(problem, "tie")
    exact = meaning.forward(problem, fill.inputs)
    counts = exact.weights.sum(-1)[exact.live]
    assert set(counts.tolist()) == ({2.0} if mask.kind == "full" else {1.0, 2.0})
    assert (fill.method, fill.of("lse").method) == ("exact", "bounded")
    assert torch.equal(round_to(fill.expected, "fp16").double(), fill.expected)


@pytest.mark.parametrize("score", [Score(), Score("alibi"), Score("soft-cap", 30.0)], ids=lambda score: score.kind)
def test_uniform_counts_keys(score):
    problem = dataclasses.replace(BASE, mask=Mask("sliding-window", 7), score=score)
    fill = one(problem, "uniform")
    seen = meaning.visible(problem, {}).double()
    sums = seen @ meaning.repeated(problem, fill.inputs["v"].double())
    assert torch.equal(fill.expected, sums / seen.sum(-1, keepdim=True))
    assert fill.error is not None
    assert bool((fill.error <= fill.expected.abs() * 2.0**-21).all())
    assert bool(fill.inputs["q"].any())
    assert bool(fill.inputs["k"].any())


def test_scores_that_cannot_vanish_are_bounded():
    capped = dataclasses.replace(BASE, score=Score("soft-cap", 20.0))
    sloped = dataclasses.replace(BASE, score=Score("alibi"))
    for problem in (capped, sloped):
        fill = one(problem, "selector")
        assert fill.method == "bounded"
        # so narrow that a 16-bit output has one value left
        low, high = (round_to(fill.expected + sign * fill.error, "fp16") for sign in (-1, 1))
        assert torch.equal(low, high)
    assert bool(one(sloped, "selector").inputs["slopes"].all())
    assert not bool(one(sloped, "tie").inputs["slopes"].any())


@pytest.mark.parametrize("dtype", ["fp16", "bf16", "fp32"])
@pytest.mark.parametrize("name", ["tie", "uniform"])
def test_exact_gradients_are_made_of_integers(name, dtype):
    problem = dataclasses.replace(BACK, dtype=dtype, head_dim=64, mask=Mask("causal"), queries=70)
    contract = contract_for(problem)
    fill = one(problem, name)
    assert [fill.of(output.name).method for output in problem.outputs] == ["exact"] * 3
    exact = meaning.backward(problem, fill.inputs)
    assert set(exact.probabilities.unique().tolist()) == {0.0, 1.0}
    assert torch.equal(exact.grad_scaled, exact.grad_scaled.round())
    narrow = round_to(exact.grad_scaled, contract.intermediate or "fp32").double()
    assert torch.equal(narrow, exact.grad_scaled)
    assert len(exact.grad_scaled.unique()) > 16
    for output in problem.outputs:
        expected = fill.of(output.name).expected
        assert float((expected != 0).double().mean()) > 0.1
        assert bool(round_to(expected, dtype).isfinite().all())


def test_a_scale_that_rounds_leaves_grad_v_exact():
    fill = one(BACK, "tie")  # 1 / sqrt(40)
    methods = {output.name: fill.of(output.name).method for output in BACK.outputs}
    assert methods == {"grad_q": "bounded", "grad_k": "bounded", "grad_v": "exact"}
    assert bool((fill.error <= fill.expected.abs() * 2.0**-21).all())


def test_given_results_are_rounded_to_their_dtypes():
    fill = one(dataclasses.replace(BACK, mask=Mask("document")), "randn")
    assert fill.inputs["out"].dtype == torch.float16
    assert fill.inputs["lse"].dtype == torch.float32
    ahead = meaning.forward(dataclasses.replace(BASE, mask=Mask("document")), fill.inputs)
    assert torch.equal(fill.inputs["lse"], ahead.lse.float())
    assert bool((~ahead.live).any())


@pytest.mark.parametrize("problem", [BASE, BACK], ids=["forward", "backward"])
def test_fills_depend_on_the_seed_and_not_on_the_layout(problem):
    problem = dataclasses.replace(problem, mask=Mask("document"), score=Score("alibi"))
    contract = contract_for(problem)
    first = fills(problem, contract, 3)
    other = fills(dataclasses.replace(problem, order="bshd", pad=8, block=64), contract, 3)
    later = fills(problem, contract, 4)
    names = [name for name in fill_names(problem) if not (problem.backward and name == "selector")]
    assert [fill.name for fill in first] == names
    for a, b, c in zip(first, other, later, strict=True):
        assert list(a.inputs) == [operand.name for operand in problem.operands]
        assert all(torch.equal(a.inputs[name], b.inputs[name]) for name in a.inputs)
        assert not torch.equal(a.inputs["q"], c.inputs["q"])
        assert torch.equal(a.inputs["key_document"], first[0].inputs["key_document"])
        for output in problem.outputs:
            part = a.of(output.name)
            assert tuple(part.expected.shape) == output.shape
            assert part.error is None or bool(((part.error >= 0) & part.error.isfinite()).all())


def test_fills_that_cannot_be_are_left_out():
    few_dims = dataclasses.replace(BASE, head_dim=4)
    assert [fill.name for fill in fills(few_dims, contract_for(few_dims))] == ["uniform", "randn", "hot"]
    small_scale = dataclasses.replace(BASE, scale=1e-9)
    assert attention.codes(small_scale, contract_for(small_scale)) is None
    many_dims = dataclasses.replace(BASE, head_dim=1024, dtype="bf16")
    plan = attention.codes(many_dims, contract_for(many_dims))
    assert plan is not None
    assert plan.length == 256  # the largest run of integers that bf16 has


def test_bad_requests_are_named():
    with pytest.raises(ValueError, match=r"\['transparent'\] are unknown for attention-.*: use selector"):
        fills(BASE, contract_for(BASE), names=["transparent"])
    with pytest.raises(ValueError, match="its contract says bf16"):
        fills(BASE, Contract("bf16", FMA))


def test_a_broken_budget_is_an_error(monkeypatch):
    monkeypatch.setattr(attention, "_excess", lambda *_: 3.0)
    with pytest.raises(FillError, match=r"sums are 3 times too large"):
        one(BACK, "uniform")
