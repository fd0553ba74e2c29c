"""The fp64 meaning of attention against one row at a time, and against torch's differentiation."""

from __future__ import annotations

import dataclasses
import math

import pytest
import torch

from conformance.families.attention import operands as attention_operands
from conformance.families.attention import reference as meaning
from conformance.families.attention.problem import PACKED, Attention, Mask, Score
from conformance.inputs.fills import fills
from conformance.numerics.contract import FMA, Contract

BASE = Attention("attention", 2, 4, 9, 12, 6, "fp32", kv_heads=2)
#: mask -> whether a query at a position sees a key
MASKS = {
    Mask(): lambda position, key: True,
    Mask("causal"): lambda position, key: key <= position,
    Mask("sliding-window", 4): lambda position, key: position - 4 < key <= position,
}
SCORES = (Score(), Score("soft-cap", 1.5), Score("alibi"))


def inputs_for(problem: Attention, seed: int = 0) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    inputs = {}
    for operand in problem.operands:
        if operand.dtype == "int32":
            inputs[operand.name] = torch.randint(0, 4, operand.shape, generator=generator, dtype=torch.int32)
        else:
            inputs[operand.name] = torch.randn(operand.shape, generator=generator)
    return inputs


@pytest.mark.parametrize("mask", MASKS, ids=lambda mask: mask.id)
def test_masks_show_the_keys_that_they_say(mask):
    shown = meaning.visible(dataclasses.replace(BASE, mask=mask), {})
    expected = [[MASKS[mask](query + 3, key) for key in range(12)] for query in range(9)]
    assert shown.shape == (1, 1, 9, 12)
    assert shown[0, 0].tolist() == expected


def test_a_sum_of_one_term_is_no_negative_zero():
    """Libraries differ in whether they add a single term to +0."""
    forward, backward = (dataclasses.replace(BASE, op=op) for op in ("attention", "attention_backward"))
    results = (meaning.forward(forward, inputs_for(forward)), meaning.backward(backward, inputs_for(backward)))
    for result, field in zip(results, ("out", "grad_q"), strict=True):
        negative = dataclasses.replace(result, **{field: -torch.zeros(3)})
        assert not torch.signbit(negative.outputs[field]).any()


def test_documents_see_themselves_only():
    problem = dataclasses.replace(BASE, mask=Mask("document"))
    inputs = inputs_for(problem)
    shown = meaning.visible(problem, inputs)
    same = inputs["query_document"][:, :, None] == inputs["key_document"][:, None, :]
    assert shown.shape == (2, 1, 9, 12)
    assert torch.equal(shown[:, 0], same)


@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.kind)
def test_forward_is_a_softmax_row_by_row(score):
    problem = dataclasses.replace(BASE, mask=Mask("causal"), score=score, kv_batch=1)
    inputs = inputs_for(problem)
    result = meaning.forward(problem, inputs)
    for batch, head, query in [(0, 0, 0), (1, 3, 5), (1, 2, 8)]:
        weights, values = [], []
        for key in range(query + 4):
            s = float(inputs["q"][batch, head, query].double() @ inputs["k"][0, head // 2, key].double()) / 6**0.5
            if score.kind == "soft-cap":
                s = 1.5 * math.tanh(s / 1.5)
            if score.kind == "alibi":
                s += float(inputs["slopes"][head]) * (key - query - 3)
            weights.append(math.exp(s))
            values.append(inputs["v"][0, head // 2, key].double())
        total = sum(weights)
        expected = sum(w / total * v for w, v in zip(weights, values, strict=True))
        torch.testing.assert_close(result.out[batch, head, query], expected, rtol=1e-12, atol=1e-12)
        assert float(result.lse[batch, head, query]) == pytest.approx(math.log(total), rel=1e-12)


@pytest.mark.parametrize("score", SCORES, ids=lambda score: score.kind)
def test_backward_is_the_derivative_of_forward(score):
    problem = dataclasses.replace(BASE, op="attention_backward", mask=Mask("causal"), score=score, kv_batch=1)
    problem = dataclasses.replace(problem, queries=14)  # two rows see no key
    ahead = dataclasses.replace(problem, op="attention")
    inputs = {name: t.double() for name, t in inputs_for(problem).items()}
    for name in "qkv":
        inputs[name].requires_grad_(True)
    q, k, v = (inputs[name] for name in "qkv")
    scored = meaning.scores(ahead, inputs)
    seen = scored.visible.any(-1, keepdim=True)
    shares = torch.softmax(torch.where(scored.visible, scored.score, -1e30), -1) * seen
    out = shares @ scored.v
    (out * inputs["grad_out"]).sum().backward()
    with torch.no_grad():
        result = meaning.forward(ahead, inputs)
        saved = {**inputs, "out": result.out, "lse": result.lse}
        gradients = meaning.backward(problem, saved)
    torch.testing.assert_close(result.out, out.detach(), rtol=1e-12, atol=1e-12)
    for name, tensor in (("grad_q", q), ("grad_k", k), ("grad_v", v)):
        torch.testing.assert_close(getattr(gradients, name), tensor.grad, rtol=1e-10, atol=1e-12)


def test_rows_without_keys_are_zero():
    problem = dataclasses.replace(BASE, op="attention_backward", queries=20, mask=Mask("causal"))
    inputs = inputs_for(problem)
    result = meaning.forward(dataclasses.replace(problem, op="attention"), inputs)
    assert bool((result.out[:, :, :8] == 0).all())
    assert bool((result.lse[:, :, :8] == -math.inf).all())
    assert bool((result.out[:, :, 8:] != 0).any(-1).all())
    gradients = meaning.backward(problem, {**inputs, "lse": result.lse})
    assert bool((gradients.grad_q[:, :, :8] == 0).all())
    assert bool(gradients.grad_k.isfinite().all())


def test_equal_scores_give_exact_sums():
    problem = dataclasses.replace(BASE, op="attention")
    inputs = inputs_for(problem)
    inputs["q"] = torch.zeros_like(inputs["q"])
    inputs["v"] = inputs["v"].round()
    result = meaning.forward(problem, inputs)
    expected = inputs["v"].double().sum(2, keepdim=True).repeat_interleave(2, 1) / 12
    assert torch.equal(result.out, expected.expand_as(result.out))


def test_gathering_is_the_transpose_of_repeating():
    problem = dataclasses.replace(BASE, kv_batch=1)
    shared, full = torch.randn(1, 2, 3, dtype=torch.float64), torch.randn(2, 4, 3, dtype=torch.float64)
    left = (meaning.repeated(problem, shared) * full).sum()
    right = (shared * meaning.gathered(problem, full)).sum()
    torch.testing.assert_close(left, right)


def test_wrong_inputs_are_named():
    inputs = inputs_for(BASE)
    with pytest.raises(KeyError, match="needs the input 'k'"):
        meaning.forward(BASE, {name: t for name, t in inputs.items() if name != "k"})
    with pytest.raises(ValueError, match=r"'v' has shape \(2, 4, 12, 6\), it must have \(2, 2, 12, 6\)"):
        meaning.forward(BASE, {**inputs, "v": inputs["v"].repeat_interleave(2, 1)})


def _packed_by_hand(problem, inputs, query, key):
    """Rules for whether a query sees a key, number by number."""
    queries, keys = (inputs[name].tolist() for name in ("query_starts", "key_starts"))
    for sequence in range(problem.mask.size):
        if queries[sequence] <= query < queries[sequence + 1]:
            behind = (keys[sequence + 1] - key) - (queries[sequence + 1] - query)
            inside = keys[sequence] <= key < keys[sequence + 1]
            return inside and (problem.mask.kind == "packed" or behind >= 0)
    raise AssertionError(f"query {query} is in no sequence")


@pytest.mark.parametrize("kind", PACKED)
@pytest.mark.parametrize(("sequences", "queries", "keys"), [(1, 5, 7), (5, 30, 23), (9, 3, 12), (4, 1, 1)])
def test_packed_sequences(kind, sequences, queries, keys):
    """Each query sees the keys of its own sequence. Of many sequences some have no query, no key, or one."""
    problem = Attention("attention", 1, 1, queries, keys, 16, mask=Mask(kind, sequences))
    inputs = attention_operands.packed_starts(problem, 0)
    for name, count in (("query_starts", queries), ("key_starts", keys)):
        starts = inputs[name]
        assert starts.dtype == torch.int32
        assert starts.shape == (sequences + 1,)
        assert (starts[0], starts[-1]) == (0, count)
        assert bool((starts.diff() >= 0).all())
    seen = meaning.visible(problem, inputs)[0, 0]
    assert bool(seen.any())
    expected = [[_packed_by_hand(problem, inputs, query, key) for key in range(keys)] for query in range(queries)]
    assert seen.tolist() == expected
    if sequences == 5:
        lengths = {name: inputs[name].diff().tolist() for name in inputs}
        assert lengths["query_starts"][:2] == [0, 1]
        assert lengths["key_starts"][-2:] == [1, 0]


@pytest.mark.parametrize(
    "fields", [{"batch": 2}, {"block": 32}, {"op": "attention_backward"}, {"score": Score("alibi")}], ids=str
)
def test_what_packed_sequences_do_not_have(fields):
    plain = {"op": "attention", "batch": 1, "heads": 1, "queries": 9, "keys": 9, "head_dim": 16}
    with pytest.raises(ValueError, match="packed sequences have batch 1"):
        Attention(**{**plain, **fields}, mask=Mask("packed", 2))


@pytest.mark.parametrize(("page", "sequences", "keys"), [(4, 5, 23), (16, 1, 16), (16, 4, 3), (1, 3, 9)])
def test_pages(page, sequences, keys):
    """The keys of each sequence in pages of their own, NaN everywhere else, and the result of the contiguous keys."""
    problem = Attention("attention", 1, 4, 9, keys, 16, kv_heads=2, mask=Mask("packed", sequences), page=page)
    contract = Contract("fp16", FMA)
    fill, contiguous = (fills(each, contract, 1, ("randn",))[0] for each in (problem, problem.contiguous))
    inputs, lengths = fill.inputs, contiguous.inputs["key_starts"].diff()
    assert torch.equal(inputs["key_lengths"], lengths)
    table, free = inputs["page_table"], set(range(len(inputs["k"])))
    for sequence, length in enumerate(lengths.tolist()):
        start = contiguous.inputs["key_starts"][sequence]
        for offset in range(length):
            number = int(table[sequence, offset // page])
            free.discard(number)
            for name in "kv":
                row = inputs[name][number, :, offset % page]
                assert torch.equal(row, contiguous.inputs[name][0, :, start + offset])
        used = -(-length // page)
        assert bool(inputs["k"][table[sequence, used:].long()].isnan().all())
    assert free, "a page is nobody's"
    for name in "kv":
        assert int((~inputs[name].isnan()).sum()) == contiguous.inputs[name].numel()
    values = [meaning.value(each, given.inputs) for each, given in ((problem, fill), (problem.contiguous, contiguous))]
    assert torch.equal(*values)


@pytest.mark.parametrize("fields", [{"page": 0, "mask": Mask("packed", 2)}, {"page": 16}], ids=str)
def test_only_packed_sequences_have_pages(fields):
    with pytest.raises(ValueError, match="packed sequences have pages"):
        Attention("attention", 1, 1, 9, 9, 16, **fields)
