"""Causes of every family: what another computation would have given is named, and noise is not.

Each fault is applied to the fp64 value of every fill, so the right name is known.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from gemm_emulation import kept_fills

from conformance import reference
from conformance.diagnosis import diagnose as diagnosis
from conformance.diagnosis.diagnose import diagnose
from conformance.diagnosis.tile_search import Cause, agreed
from conformance.families.attention import alterations as altered_attention
from conformance.families.attention import reference as meaning
from conformance.families.attention.problem import Attention, Mask, Score
from conformance.families.conv.problem import conv2d
from conformance.families.gemm.problem import (
    Bias,
    Fusion,
    baddbmm,
    bmm,
    fused_mm,
    int_mm,
    mixed_mm,
    mm,
    mm_plus_mm,
    scaled_mm,
)
from conformance.families.grouped.problem import GroupedGemm
from conformance.families.int4.problem import Int4Gemm
from conformance.inputs.fills import fills
from conformance.numerics.alterations import Tiling, WorkBudget
from conformance.numerics.contract import FMA, INT32, Contract
from conformance.numerics.fill import Seen
from conformance.numerics.rounding import round_to

BLOCK = (32, 32, 16)
BMM = bmm(40, 24, 24, batch=3)
BADDBMM = baddbmm(24, 40, 24, batch=3, bias=Bias("b1n"), alpha=8.0, beta=0.25)
PLUS = mm_plus_mm(40, 24, 24)
INT = int_mm(24, 40, 1160)
MIXED = mixed_mm(40, 24, 24, "bf16", b_dtype="uint8")
BLOCKS = scaled_mm(40, 24, 200, scaling="1x128/128x128")
SCALED = scaled_mm(40, 56, 88)
FUSED = fused_mm(40, 24, 24, fusion=Fusion(None, None, ("bias", "relu", "residual")), bias=Bias())
GATHERED = fused_mm(40, 24, 24, fusion=Fusion("gather"))
CONV = conv2d(3, 22, (6, 5), 40, (3, 2), groups=2, bias=True, stride=(2, 1), padding=(1, 1))
CODES = Int4Gemm("fp16", 40, 24, 96, False, "k", 32, "float")
ROWS = GroupedGemm("2d-3d", (40, 0, 25), None, 56, 40, "fp16")
FORWARD = Attention("attention", 2, 4, 24, 40, 16, kv_heads=2, mask=Mask("causal"))
CAPPED = Attention("attention", 1, 2, 24, 40, 16, score=Score("soft-cap", 20.0))
BACKWARD = Attention("attention_backward", 1, 4, 24, 40, 16, kv_heads=2)
MASKED_BACKWARD = Attention("attention_backward", 1, 2, 24, 40, 16, mask=Mask("causal"))


def contract_of(problem):
    return Contract(
        problem.output_dtype if hasattr(problem, "output_dtype") else "fp16", INT32 if problem is INT else FMA
    )


def of_inputs(**changes):
    """The right computation over changed inputs."""

    def compute(problem, fill):
        inputs = {**fill.inputs, **{name: change(fill.inputs[name]) for name, change in changes.items()}}
        if isinstance(problem, Attention):
            return meaning.backward(problem, inputs).outputs
        return {problem.output.name: reference.value(problem, inputs)}

    return compute


def of_problem(**fields):
    """The computation of another problem over the same inputs."""
    return lambda problem, fill: {problem.output.name: reference.value(replace(problem, **fields), fill.inputs)}


def of_scores(change):
    """Attention after changed scores."""

    def compute(problem, fill):
        scored = change(problem, meaning.scores(problem, fill.inputs))
        if problem.backward:
            return meaning.gradients(problem, fill.inputs, scored).outputs
        return meaning.attended(scored).outputs

    return compute


def seen_of(problem, compute, seed=3):
    """Returns the outputs of a kernel that computes so, for every fill that is not special."""
    contract, seen = contract_of(problem), []
    for fill in kept_fills(problem, contract, seed):
        if fill.method != "special":
            values = compute(problem, fill)
            dtypes = {output.name: output.dtype for output in problem.outputs}
            seen.append(Seen(fill, {name: round_to(value, dtypes[name]) for name, value in values.items()}))
    return seen


def diagnosis_of(problem, seen, splits=None, block=BLOCK):
    """The diagnosis of the first wrong output of ``seen`` that has a cause, else of the last one."""
    result = None
    for entry in seen:
        for output in problem.outputs:
            out = entry.outputs.get(output.name)
            if out is None:
                continue
            found = diagnose(
                problem,
                contract_of(problem),
                entry.fill,
                out,
                block=block,
                output=output.name,
                seen=seen,
                splits=splits,
            )
            assert "failed" not in found.text, found.text
            result = found if result is None or found.first is not None else result
            if found.causes:
                return found
    return result


def rounded_parts(problem, fill):
    values = {name: tensor.double() for name, tensor in fill.inputs.items()}
    parts = torch.stack([values["a"][:, k : k + 40] @ values["b"][k : k + 40] for k in (0, 40, 80)])
    return {"out": round_to(parts, "bf16").double().sum(0)}


def masked(wrong):
    """``wrong`` says what a query sees of the distance to a key."""
    return of_scores(lambda problem, scored: replace(scored, visible=wrong(meaning.positions(problem))[None, None]))


def _of_first_heads(problem, fill):
    right = meaning.backward(problem, fill.inputs)
    kept = (torch.arange(problem.heads) % 2 == 0)[:, None, None]
    grad_k = meaning.gathered(problem, (right.grad_scaled.mT @ right.scores.q) * kept) * problem.softmax_scale
    grad_v = meaning.gathered(problem, (right.probabilities.mT @ right.grad_out) * kept)
    return {"grad_q": right.grad_q, "grad_k": grad_k, "grad_v": grad_v}


def _maximum_from_sums(problem, fill):
    """FlashAttention's kernel for Triton, without its rescaling: the maximum of a step is the logarithm of the sum so
    far, or more."""
    scored = meaning.scores(problem, fill.inputs)
    score = torch.where(scored.visible, scored.score, -torch.inf)
    logarithm, out = torch.full_like(score[..., :1], -torch.inf), torch.zeros_like(score[..., :1])
    for start in range(0, problem.keys, 32):
        part = score[..., start : start + 32]
        top = torch.maximum(logarithm, part.amax(-1, keepdim=True))
        weights = torch.where(top.isfinite(), torch.exp(part - top), 0.0)
        out = out + weights @ scored.v[:, :, start : start + 32]
        logarithm = torch.logaddexp(logarithm, part.logsumexp(-1, keepdim=True))
    live = logarithm.isfinite()
    return {"out": torch.where(live, out * torch.exp(top - logarithm), 0.0), "lse": logarithm[..., 0]}


#: problem, what was computed, the cause, or its beginning
def halves_alike(packed):
    """Bytes whose upper half is the lower one."""
    low = packed.view(torch.uint8) & 15
    return (low | low << 4).view(packed.dtype)


FAULTS = {
    "lower halves twice": (
        CODES,
        lambda problem, fill: {"out": reference.value(problem, {**fill.inputs, "b": halves_alike(fill.inputs["b"])})},
        "the lower half of each byte stands for both",
    ),
    "first matrix": (BMM, of_inputs(a=lambda t: t[:1].expand_as(t)), "A of another matrix: the first one is used for"),
    "next matrix": (BMM, of_inputs(b=lambda t: t[[1, 2, 0]]), "B of another matrix: the next one is used, cyclically"),
    "bias of the batch": (BADDBMM, of_inputs(bias=lambda t: t[[0, 0, 0]]), "the bias of another matrix: the first one"),
    "beta as alpha": (BADDBMM, of_problem(alpha=0.25), "the product is scaled by beta instead of alpha"),
    "C as A": (PLUS, lambda p, f: {"out": _plus(f, c="a")}, "C is read as A"),
    "no second product": (PLUS, of_inputs(c=torch.zeros_like), "C @ D is absent"),
    "fp32 sums": (INT, lambda p, f: {"out": reference.value(p, f.inputs).float().double()}, "sums pass through fp32"),
    "signed": (
        MIXED,
        lambda p, f: {"out": f.inputs["a"].double() @ f.inputs["b"].view(torch.int8).double()},
        "B is read",
    ),
    "first k-block of scales": (
        BLOCKS,
        of_inputs(scale_a=lambda t: t[:, :1].expand_as(t), scale_b=lambda t: t[:1].expand_as(t)),
        "both scales are those of the first block of k",
    ),
    "scales with stride 0": (
        SCALED,
        of_inputs(scale_a=lambda t: t[:1].expand_as(t), scale_b=lambda t: t[:, :1].expand_as(t)),
        "the first scale_a and the first scale_b are used for all",
    ),
    "no relu": (
        FUSED,
        of_problem(fusion=Fusion(None, None, ("bias", "residual"))),
        "the epilogue's step 'relu' is absent",
    ),
    "relu last": (
        FUSED,
        of_problem(fusion=Fusion(None, None, ("bias", "residual", "relu"))),
        "the epilogue's steps run in the order bias, residual, relu",
    ),
    "not gathered": (GATHERED, of_inputs(rows=lambda t: torch.arange(len(t), dtype=t.dtype)), "A is not gathered"),
    "x of the first group": (
        CONV,
        of_inputs(x=lambda t: torch.cat([t[:, :11], t[:, :11]], 1)),
        "x of another group: the first one is used for all",
    ),
    "flipped": (CONV, of_inputs(w=lambda t: t.flip(2)), "the weights are flipped along height"),
    "no zero point": (CODES, of_inputs(zero=torch.zeros_like), "the zero point is not subtracted"),
    "scales of 1": (CODES, of_inputs(scale=torch.ones_like), "the scale is not applied"),
    "halves": (CODES, of_inputs(b=lambda t: t << 4 | t >> 4), "the halves of each byte are exchanged"),
    "first group of scales": (
        CODES,
        of_inputs(scale=lambda t: t[:1].expand_as(t), zero=lambda t: t[:1].expand_as(t)),
        "scale and zero of another group: the first one is used for all",
    ),
    "next column's scale": (
        CODES,
        of_inputs(scale=lambda t: t[:, [*range(1, 24), 23]]),
        "scale of another column: the next one is used",
    ),
    "last codes": (
        CODES,
        of_inputs(a=lambda t: torch.where(torch.arange(96) < 80, t, 0)),
        "k-block 5 of 6 (BLOCK_K=16) is skipped",
    ),
    "next group of B": (ROWS, of_inputs(b=lambda t: t[[1, 2, 0]]), "B: that of the next group is used, cyclically"),
    "B of the first group": (ROWS, of_inputs(b=lambda t: t[[0, 0, 0]]), "B: that of the first group is used for all"),
    "diagonal": (FORWARD, masked(lambda offset: offset < 0), "the mask is off by one: a query does not see its own"),
    "later key": (FORWARD, masked(lambda offset: offset <= 1), "the mask is off by one: a query sees the key behind"),
    "wrong head": (
        FORWARD,
        of_scores(lambda problem, scored: _with_heads(problem, scored, [0, 2, 0, 2])),
        "key head h % (heads // kv_heads) is used",
    ),
    "no cap": (
        CAPPED,
        of_scores(lambda problem, scored: replace(scored, score=scored.scaled, slope=None)),
        "the soft cap is not applied",
    ),
    "previous v": (
        FORWARD,
        of_scores(lambda problem, scored: replace(scored, v=scored.v[:, :, (torch.arange(40) - 32).clamp(min=0)])),
        "v of the previous block of 32 keys is used",
    ),
    "maximum from sums": (
        FORWARD,
        _maximum_from_sums,
        "the output is not rescaled when the maximum grows, from the logarithm of the sum so far (32 keys a step)",
    ),
    "first head": (
        Attention("attention", 1, 2, 24, 40, 16),
        of_scores(lambda problem, scored: replace(scored, v=scored.v[:, [0, 0]])),
        "k and v of another head: the first one is used for all (in v only)",
    ),
    "one head of two": (
        BACKWARD,
        _of_first_heads,
        "gradients of k and v are those of the first of the heads that share them",
    ),
    "an operand read as zeros": (FUSED, of_inputs(a=torch.zeros_like), "the product is absent"),
    "unscaled scores": (
        BACKWARD,
        of_scores(lambda problem, scored: replace(scored, score=scored.scaled / problem.softmax_scale)),
        "the scores are not scaled",
    ),
    "scale added": (
        BACKWARD,
        of_scores(lambda problem, scored: replace(scored, score=scored.scaled * 4 + 0.25)),
        "the scale is added to the scores, which are not multiplied by it",
    ),
    "delta added": (BACKWARD, of_inputs(out=lambda t: -t), "delta is added, not subtracted"),
    "grad_out of another head": (
        BACKWARD,
        of_inputs(grad_out=lambda t: t[:, [0, 0, 0, 0]]),
        "grad_out of another head: the first one is used for all",
    ),
    "tiles not masked": (
        FORWARD,
        lambda problem, fill: _masked_tiles(problem, fill, lambda tile: tile.any()),
        "tiles of 32 x 32 that the mask crosses are not masked",
    ),
    "tiles left out": (
        FORWARD,
        lambda problem, fill: _masked_tiles(problem, fill, lambda tile: tile.all()),
        "nothing is seen of tiles of 32 x 32 that the mask crosses",
    ),
    "one pass is not masked": (
        MASKED_BACKWARD,
        lambda problem, fill: {
            **_right(problem, fill),
            "grad_q": masked(lambda offset: offset < 0)(problem, fill)["grad_q"],
        },
        "the mask is off by one: a query does not see its own position (in the gradients of q only)",
    ),
}


def _masked_tiles(problem, fill, visible):
    """Attention in which ``visible`` says of each tile whether it is seen."""
    scored = meaning.scores(problem, fill.inputs)
    seen = scored.visible[0, 0].clone()
    for row in range(0, problem.queries, 32):
        for column in range(0, problem.keys, 32):
            tile = seen[row : row + 32, column : column + 32]
            tile[:] = visible(tile.clone())
    return meaning.attended(replace(scored, visible=seen[None, None])).outputs


def _plus(fill, **other):
    values = {name: fill.inputs[other.get(name, name)].double() for name in "abcd"}
    return values["a"] @ values["b"] + values["c"] @ values["d"]


def _with_heads(problem, scored, index):
    k, v = scored.k[:, index], scored.v[:, index]
    score = (scored.q @ k.mT) * problem.softmax_scale
    return replace(scored, k=k, v=v, scaled=score, score=score)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_each_family_is_named(name):
    problem, compute, cause = FAULTS[name]
    result = diagnosis_of(problem, seen_of(problem, compute))
    assert any(cause in named for named in result.causes), result.text
    assert len(result.causes) == 1, result.text


PROBLEMS = [BMM, PLUS, INT, MIXED, BLOCKS, SCALED, FUSED, GATHERED, CONV, ROWS, CODES, FORWARD, CAPPED, BACKWARD]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_noise_has_no_cause(problem):
    """Half of the elements, of every output and fill, are wrong by what nothing explains."""
    seen = []
    for entry in seen_of(problem, _right):
        generator = torch.Generator().manual_seed(entry.fill.seed)
        outputs = {}
        for name, out in entry.outputs.items():
            chosen = torch.rand(out.shape, generator=generator) < 0.5
            factor = 1 + torch.randint(1, 60, out.shape, generator=generator).double() / 16
            dtype = problem.operand(name).dtype
            value = torch.where(chosen & out.double().isfinite(), (out.double() * factor).trunc(), out.double())
            outputs[name] = round_to(value, dtype)
        seen.append(Seen(entry.fill, outputs))
    result = diagnosis_of(problem, seen)
    assert result.causes == (), result.text


def _right(problem, fill):
    if not isinstance(problem, Attention):
        return {"out": reference.value(problem, fill.inputs)}
    return (meaning.backward if problem.backward else meaning.forward)(problem, fill.inputs).outputs


def test_parts_of_k_that_are_rounded():
    problem = mm(40, 24, 120)
    result = diagnosis_of(problem, seen_of(problem, rounded_parts), splits=3)
    assert "every part of K is rounded to bf16 before the parts are summed" in result.causes[0], result.text


def test_a_cause_that_another_fill_contradicts_is_not_named():
    """One fill alone would prove it: the next, which is right, does not."""
    problem, compute, _ = FAULTS["first matrix"]
    seen = seen_of(problem, compute)
    assert diagnosis_of(problem, seen[:1]).causes
    right = [Seen(entry.fill, {"out": round_to(entry.fill.expected, "fp16")}) for entry in seen[1:]]
    assert not diagnosis_of(problem, [seen[0], *right]).causes


def test_another_computation_is_no_cause_where_only_tiles_may_be():
    """Values read outside the operands are no part of it."""
    problem, compute, _ = FAULTS["first matrix"]
    seen = seen_of(problem, compute)
    fill, out = seen[0].fill, seen[0].outputs["out"]
    assert diagnose(problem, contract_of(problem), fill, out, block=BLOCK, seen=seen).causes
    result = diagnose(problem, contract_of(problem), fill, out, block=BLOCK, seen=seen, by_tiles_only=True)
    assert not any("another matrix" in cause for cause in result.causes)


def test_a_mask_that_several_causes_describe_has_the_plainest_name():
    """No two causes stand for one mask, and what holds for all tiles is named before what holds for some."""
    problem = Attention("attention", 1, 1, 5, 100, 16, mask=Mask("sliding-window", 30))
    tiling = Tiling((64, 64, 16))
    names = [cause for cause, _ in altered_attention._about_masks(problem, tiling)]
    assert "nothing is seen of tiles of 64 x 64 that the mask crosses" in names
    masks = [
        bytes(change(meaning.scores(problem, fill.inputs), fill.inputs).visible.numpy().tobytes())
        for fill in fills(problem, contract_of(problem), 1)[:1]
        for cause, change in altered_attention._about_masks(problem, tiling)
        if "behind the last" not in cause
    ]
    assert len(set(masks)) == len(masks)


def test_the_search_counts_work_and_not_seconds(monkeypatch):
    problem, compute, _ = FAULTS["first matrix"]
    seen = seen_of(problem, compute)
    monkeypatch.setattr(diagnosis, "WorkBudget", lambda: WorkBudget(left=100_000))
    result = diagnosis_of(problem, seen)
    assert result.causes == ()
    assert "the search for causes ended before every hypothesis was tried" in result.text


def test_what_two_fills_agree_on():
    first = [Cause(("x is absent", "x is read as 0"), 2, 2)]
    assert agreed(first, [Cause(("x is absent",))]) == [Cause(("x is absent",), 2, 2)]
    assert agreed(first, [Cause(("y",))]) == []
    assert agreed(first, []) == []
    misread = [Cause(("A[1,2] is 3 and was read as 4",))]
    assert agreed(misread, [Cause(("A[1,2] is 5 and was read as 7",))]) == misread
    assert agreed(misread, []) == misread
