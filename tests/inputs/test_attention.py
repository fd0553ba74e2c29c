"""Fills of attention keep what they promise: exact rows, dyadic weights, integer gradients, masks respected."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from conformance.families.attention import exact as attention_exact
from conformance.families.attention import fills as attention
from conformance.families.attention import operands as attention_operands
from conformance.families.attention import reference as meaning
from conformance.families.attention.problem import Attention, Mask, Score
from conformance.inputs.fills import FillError, fill_names, fills
from conformance.kernels.block_mask import block_lists
from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.numerics.rounding import bits, round_to

BASE = Attention("attention", 2, 4, 40, 56, 40, "fp16", kv_heads=2)
BACK = dataclasses.replace(BASE, op="attention_backward")
ALL = ("selector", "tie", "uniform", "randn", "hot", "special")
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


@pytest.mark.parametrize("seed", range(3))
def test_documents_have_blocks_that_a_block_of_queries_sees_as_a_whole(seed):
    """In the second batch and in the third, past the first block, also where the queries are one block."""
    problem = Attention("attention", 3, 1, 129, 193, 16, mask=Mask("document"), block=64)
    for queries, rows, columns in ((129, [[0, 1, 0], [2, 0, 0]], [[0, 0, 1, 0], [1, 1, 0, 0]]), (64, [[1], [0]], None)):
        asked = dataclasses.replace(problem, queries=queries)
        tensors = {"q": torch.empty(0), **attention_operands.documents(asked.dense, seed)}
        assert block_lists(asked, tensors).full_count[1:].tolist() == rows
        assert columns in (None, block_lists(asked, tensors, transposed=True).full_count[1:].tolist())
        hidden = (tensors["query_document"] == problem.keys + 1).sum(1)
        assert 0 < int(hidden[0]) <= queries // 8
        assert hidden[1:].tolist() == [0, queries // 8]


@pytest.mark.parametrize("problem", [BASE, BACK], ids=["forward", "backward"])
def test_fills_depend_on_the_seed_and_not_on_the_layout(problem):
    problem = dataclasses.replace(problem, mask=Mask("document"), score=Score("alibi"))
    contract = contract_for(problem)
    first = fills(problem, contract, 3)
    other = fills(dataclasses.replace(problem, order="bshd", pad=8, block=64), contract, 3)
    later = fills(problem, contract, 4)
    without = ("selector", "levels") if problem.backward else ("levels",)
    names = [name for name in fill_names(problem) if name not in without]
    assert [fill.name for fill in first] == names
    for a, b, c in zip(first, other, later, strict=True):
        assert list(a.inputs) == [operand.name for operand in problem.operands]
        assert all(torch.equal(bits(a.inputs[name]), bits(b.inputs[name])) for name in a.inputs)
        assert not torch.equal(bits(a.inputs["q"]), bits(c.inputs["q"]))
        assert torch.equal(a.inputs["key_document"], first[0].inputs["key_document"])
        for output in problem.outputs:
            part = a.of(output.name)
            assert tuple(part.expected.shape) == output.shape
            assert part.error is None or bool((part.error >= 0).all())
            assert part.error is None or bool((part.error.isfinite() | (a.name == "special")).all())


def test_fills_that_cannot_be_or_show_nothing_are_left_out():
    def names(**fields) -> list[str]:
        problem = dataclasses.replace(BASE, **fields)
        left_out = attention.left_out(problem, contract_for(problem))
        assert sorted([*(fill.name for fill in fills(problem, contract_for(problem))), *left_out]) == sorted(ALL)
        return sorted(left_out)

    assert names() == []
    assert names(head_dim=4) == ["selector", "tie"]
    assert names(head_dim=2) == ["hot", "selector", "special", "tie"]
    assert names(keys=1) == ["special", "tie", "uniform"]
    assert names(mask=Mask("sliding-window", 1)) == ["tie", "uniform"]
    assert names(op="attention_backward", keys=1) == ["selector", "special", "uniform"]
    assert names(batch=1, heads=2, kv_heads=1, queries=1) == ["special"]
    assert names(scale=1e-9) == ["hot", "selector", "tie"]
    many_dims = dataclasses.replace(BASE, head_dim=1024, dtype="bf16")
    plan = attention_operands.codes(many_dims, contract_for(many_dims))
    assert plan is not None
    assert plan.length == 256  # the largest run of integers that bf16 has


NARROW = dataclasses.replace(BASE, dtype="e4m3", head_dim=64)


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.id)
def test_fp8_has_exact_fills(mask, dtype, scaled):
    """With a head dim of 64 e4m3 holds the codes too: q reaches 256 of 448. No score is far from zero and exact."""
    problem = dataclasses.replace(NARROW, dtype=dtype, mask=mask, scaled=scaled)
    by_name = {fill.name: fill for fill in fills(problem, fp8_contract(problem))}
    assert by_name.keys() == {"selector", "tie", "uniform", "randn", "levels", "special"}
    assert all(by_name[name].method == "exact" for name in ("selector", "tie"))
    for name, fill in by_name.items():
        values = torch.cat([fill.inputs[operand].double().flatten() for operand in "qkv"])
        assert bool(values.isfinite().all()) or name == "special"
        assert {"q_scale", "k_scale", "v_scale"} <= fill.inputs.keys() or not scaled


def fp8_contract(problem: Attention) -> Contract:
    return Contract(problem.output_dtype, Accumulator(), intermediate=problem.dtype)


@pytest.mark.parametrize("score", [Score(), Score("alibi"), Score("soft-cap", 15.0)], ids=lambda score: score.kind)
@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_weights_of_two_levels_are_nearly_fp8_numbers(dtype, score):
    problem = dataclasses.replace(NARROW, dtype=dtype, score=score, scaled=True)
    (fill,) = fills(problem, fp8_contract(problem), 0, ["levels"])
    weights = meaning.forward(problem, fill.inputs).weights.unique()
    low, high = weights.tolist()
    number = float(round_to(weights[:1], dtype).double())
    assert (high, number) == (1.0, {"e4m3": 0.5625, "e5m2": 0.625}[dtype])
    assert low < number * (1 - 2.0**-11)
    assert attention_exact.levels_plan(dataclasses.replace(problem, dtype="bf16"), 1.0) is None


def test_bad_requests_are_named():
    with pytest.raises(ValueError, match=r"\['transparent'\] are unknown for attention-.*: use selector"):
        fills(BASE, contract_for(BASE), names=["transparent"])
    with pytest.raises(ValueError, match="its contract says bf16"):
        fills(BASE, Contract("bf16", FMA))


def test_a_broken_budget_is_an_error(monkeypatch):
    monkeypatch.setattr(attention_exact, "_excess", lambda *_: 3.0)
    with pytest.raises(FillError, match=r"sums are 3 times too large"):
        one(BACK, "uniform")


@pytest.mark.parametrize("name", ["selector", "tie", "uniform"])
def test_a_broken_premise_is_an_error(name, monkeypatch):
    """Scores that are not what an exact fill needs are seen when it is built."""
    monkeypatch.setattr(attention_operands, "UNDERFLOW", 8.0)
    monkeypatch.setattr(attention_exact, "apart", lambda *arguments: attention_exact.coded(*_coded(*arguments)))
    with pytest.raises(FillError, match=f"fill '{name}' does not hold what it promises: "):
        one(BASE, name)
    if name != "selector":
        with pytest.raises(FillError, match=f"fill '{name}' does not hold what it promises: "):
            one(BACK, name)


def _coded(problem, draws, form, inputs):
    return problem, contract_for(problem), draws, inputs, 2


def test_queries_that_select_too_many_keys_are_seen(monkeypatch):
    monkeypatch.setattr(attention_exact, "TIED", 1)
    coded = attention_exact.coded
    monkeypatch.setattr(attention_exact, "coded", lambda *arguments: coded(*arguments[:-1], 3))
    with pytest.raises(FillError, match="selects more keys than it should"):
        one(BASE, "selector")


SHAPES = (
    {},
    {"mask": Mask("causal"), "queries": 70},
    {"mask": Mask("sliding-window", 7), "score": Score("alibi")},
    {"mask": Mask("document"), "dtype": "bf16", "kv_batch": 1},
    {"dtype": "fp32", "head_dim": 64, "scale": 1.0},
    {"dtype": "fp32", "precision": "tf32", "head_dim": 256},
    {"score": Score("soft-cap", 15.0), "mask": Mask("causal"), "dtype": "bf16"},
)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_hot_scores_are_exact_and_far_from_zero(shape):
    problem = dataclasses.replace(BASE, **shape)
    fill = one(problem, "hot")
    exact = meaning.forward(problem, fill.inputs)
    q, k = exact.scores.q, exact.scores.k
    # in fp32, forwards and backwards: no sum is rounded
    wide = q @ k.transpose(-1, -2)
    for order in (slice(None), torch.arange(problem.head_dim).flip(0)):
        single = torch.zeros(wide.shape)
        for dim in torch.arange(problem.head_dim)[order]:
            single += q.float()[..., dim, None] * k.float()[..., None, :, dim]
        assert torch.equal(single.double(), wide)
    seen = exact.live
    if problem.score.kind != "soft-cap":
        assert float(exact.top[seen].max()) > 150
        assert float(exact.top[seen].min()) < -100
        assert float((exact.top.abs() < 88)[seen].double().mean()) < 0.1
    else:
        assert float((exact.scores.scaled.abs() / 15).median()) > 0.3
    # the maximum lies in the last part of the keys for some rows, and in the first one for others
    full = dataclasses.replace(problem, mask=Mask())
    best = meaning.forward(full, fill.inputs).weights.argmax(-1)
    assert float((best < problem.keys // 4).double().mean()) > 0.2
    assert float((best >= problem.keys - problem.keys // 4).double().mean()) > 0.2
    # the bound has no room for an error of the product
    assert float((fill.of("lse").error / (1 + exact.lse.abs()))[seen].max()) < (
        2.0**-15 if problem.score.cap else 2.0**-17
    )


def test_special_values_lie_in_places_of_their_own():
    problem = dataclasses.replace(BASE, mask=Mask("causal"))
    fill = one(problem, "special")
    q, k, v = (fill.inputs[name].double() for name in "qkv")
    assert int(q.isnan().sum()) == int(k.isnan().sum()) == int(v.isnan().sum()) == 1
    assert int((q == math.inf).sum()) == int((v == math.inf).sum()) == int((v == -math.inf).sum()) == 1
    assert int((k == -math.inf).sum()) == 1
    for tensor in (q, k, v):
        assert int(((tensor == 0).all(-1)).sum()) == 1
        assert int(((tensor.abs() < 2.0**-14) & (tensor != 0)).all(-1).sum()) == 1
    row, key, value = (tensor.isnan().nonzero()[0].tolist() for tensor in (q, k, v))
    assert bool(fill.expected[row[0], row[1], row[2]].isnan().all())
    group = problem.heads // problem.key_heads
    below = key[2] - problem.keys + problem.queries  # queries before this one do not see the key
    heads = slice(key[1] * group, (key[1] + 1) * group)
    assert bool(fill.expected[key[0], heads, max(below, 0) :].isnan().all())
    assert not bool(fill.expected[key[0], heads, : max(below, 0)].isnan().all(-1).any())
    first = value[2] - problem.keys + problem.queries
    columns = fill.or_nan[value[0], value[1] * group : (value[1] + 1) * group, : max(first, 0), value[3]]
    assert bool(columns.all())  # queries that do not see the value may get 0 * NaN
    skipped = dataclasses.replace(contract_for(problem), hidden_nan="skipped")
    (strict,) = fills(problem, skipped, 0, ["special"])
    assert int(strict.or_nan.sum()) < int(fill.or_nan.sum())
    (added,) = fills(problem, dataclasses.replace(contract_for(problem), hidden_nan="added"), 0, ["special"])
    hidden = slice(0, max(below, 0))  # queries that do not see the key of NaN
    assert hidden.stop
    assert bool(added.or_nan[key[0], heads, hidden].all())
    assert not bool(fill.or_nan[key[0], heads, hidden].all())


def test_nan_in_a_masked_score_may_reach_the_gradients_only_of_attention_that_adds_its_mask():
    problem = dataclasses.replace(BACK, mask=Mask("causal"))
    contract = contract_for(problem)
    (usual,) = fills(problem, contract, 0, ["special"])
    (added,) = fills(problem, dataclasses.replace(contract, hidden_nan="added"), 0, ["special"])
    for name in ("grad_q", "grad_v"):  # of grad_k the same elements are open in both
        strict, open_ones = (one.of(name).or_nan for one in (usual, added))
        right = usual.of(name).expected.isnan()  # there NaN is asked for anyway
        assert bool((open_ones | ~strict).all())
        assert int((open_ones & ~right).sum()) > int((strict & ~right).sum()), name
