"""Random correct kernels of attention raise no alarm, and arithmetic that is too narrow shows at every head dim."""

from __future__ import annotations

import dataclasses

import pytest
from attention_emulation import Style
from test_attention_bounds import BASE, contract_for, verdicts

from conformance.families.attention.problem import Attention, Mask, Score
from conformance.inputs.fills import Draws

#: head dims and value dims
DIMS = ((16, None), (32, None), (40, None), (64, None), (80, None), (128, None), (256, None), (24, 48))
MASKS = (Mask(), Mask("causal"), Mask("document"))
SCORES = (Score(), Score(), Score("alibi"))


def drawn(seed: int) -> tuple[Attention, Style]:
    """A random problem, and how a kernel works that computes it as its contract says."""
    draws = Draws(seed, "attention samples")

    def pick(choices):
        return choices[int(draws.below(len(choices), ())[()])]

    window, cap = Mask("sliding-window", pick((1, 5, 40))), Score("soft-cap", pick((0.7, 5.0, 20.0, 50.0, 200.0)))
    dim, value_dim = pick(DIMS)
    dtype = pick(("fp16", "bf16", "fp16", "bf16", "fp32", "tf32"))
    kv_heads = pick((1, 2, 3))
    decodes = pick((False, True))
    problem = Attention(
        "attention" if decodes else pick(("attention", "attention_backward")),
        pick((1, 2, 3)),
        kv_heads * pick((1, 1, 2, 3)),
        pick((1, 2, 5)) if decodes else pick((1, 3, 17, 33, 70)),
        pick((1, 3, 17, 33, 65, 130, 400 if decodes else 90)),
        dim,
        "fp32" if dtype == "tf32" else dtype,
        kv_heads=kv_heads,
        kv_batch=pick((None, 1)),
        value_dim=value_dim,
        mask=pick((*MASKS, window)),
        score=pick((*SCORES, cap)),
        scale=pick((None, None, None, 0.5, 0.01, -0.1)),
        precision="tf32" if dtype == "tf32" else "ieee",
    )
    style = Style(
        pick((16, 32, 64, 128)),
        pick((1, 3, 20)) if decodes else 1,
        cut=pick((False, False, True)) and dtype != "fp32",
        order=pick((None, seed)),
        scaled_first=problem.softmax_scale < 0 or pick((False, True)),
        lazy=pick((0.0, 0.0, 8.0)),
        fused=pick((False, True)),
        noise=pick((None, seed)),
        device_max=pick((False, True)),
        skips=pick((False, False, True)) and problem.softmax_scale > 0,
    )
    return problem, style


@pytest.mark.parametrize("seed", range(12))
def test_random_correct_kernels_raise_no_alarm(seed):
    problem, style = drawn(seed)
    for verdict in verdicts(problem, style, seed=seed):
        assert verdict.passed, f"{problem.id}, {style}: {verdict.text}"


CAP = Score("soft-cap", 15.0)
#: fault -> the modification of the scores that it is about
NARROW = {"narrow-scaled": Score(), "narrow-tanh": CAP, "approximate-tanh": CAP, "tanh-overflows": CAP}


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize("dim", [16, 32, 64, 80, 128, 256])
@pytest.mark.parametrize("fault", NARROW)
def test_narrow_scores_show_at_every_head_dim(fault, dim, dtype):
    problem = dataclasses.replace(BASE, head_dim=dim, dtype=dtype, score=NARROW[fault], queries=20, keys=40)
    fill = "special" if fault == "tanh-overflows" else "hot"  # it does so from 44 caps on
    judged = verdicts(problem, Style(32, cut=True), fault=fault, names=(fill,))
    assert not all(verdict.passed for verdict in judged), f"{problem.id}: {fault} does not show"


def test_hot_scores_leave_no_room_for_rounded_products():
    """The exact products of "hot" show what the bound of sums would hide."""
    problem = dataclasses.replace(BASE, head_dim=256, queries=20)
    assert contract_for(problem, Style(cut=True)).accumulator.kind == "tensor-core"
    for fault in ("narrow-scores", "scale"):
        assert not all(v.passed for v in verdicts(problem, Style(cut=True), fault=fault, names=("hot",)))
