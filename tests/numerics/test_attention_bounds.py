"""The oracle of attention raises no alarm on correct kernels and catches every planted fault.

Both are tables over an emulation that works as kernels do: blocks, online softmax, narrow probabilities.
"""

from __future__ import annotations

import dataclasses
import math

import attention_emulation as emulation
import pytest
import torch
from attention_emulation import Style
from gemm_emulation import kept_fills

from conformance.families.attention import bounds as attention_bounds
from conformance.families.attention import reference as meaning
from conformance.families.attention.problem import Attention, Mask, Score
from conformance.inputs.fills import fills
from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.numerics.verdict import judge
from conformance.problems import FP8

BASE = Attention("attention", 1, 2, 70, 84, 32, "fp16", mask=Mask("causal"))
BACK = dataclasses.replace(BASE, op="attention_backward")
#: (changes to the problem, style of the kernel): together every mask, score, dtype, sharing and way of summing.
CONTROLS = {
    "plain": ({"mask": Mask()}, Style(32)),
    "cut": ({}, Style(16, cut=True)),
    "raw-scores": ({"dtype": "bf16"}, Style(64, scaled_first=False, order=3)),
    "window": ({"mask": Mask("sliding-window", 9), "head_dim": 40, "queries": 100}, Style(16, order=1)),
    "document": ({"mask": Mask("document"), "batch": 2, "kv_batch": 1, "value_dim": 24}, Style(128, cut=True)),
    "soft-cap": ({"score": Score("soft-cap", 20.0), "heads": 4, "kv_heads": 2}, Style(32, order=5)),
    "soft-cap-bf16": ({"score": Score("soft-cap", 6.0), "dtype": "bf16", "mask": Mask()}, Style(16, cut=True)),
    "alibi": ({"score": Score("alibi"), "heads": 4, "kv_heads": 1, "dtype": "bf16"}, Style(32, order=2)),
    "alibi-fp32": ({"score": Score("alibi"), "mask": Mask("document"), "dtype": "fp32"}, Style(16)),
    "fp32": ({"dtype": "fp32", "head_dim": 96, "queries": 90}, Style(32)),
    "tf32": ({"dtype": "fp32", "precision": "tf32", "head_dim": 80}, Style(32, cut=True)),
    "wide": ({"head_dim": 256, "dtype": "bf16", "mask": Mask()}, Style(64, cut=True)),
    "decode": ({"queries": 3, "keys": 700, "heads": 4, "kv_heads": 2, "mask": Mask()}, Style(16, splits=20)),
    "decode-window": ({"queries": 1, "keys": 900, "mask": Mask("sliding-window", 300)}, Style(32, 5, cut=True)),
    "rows-without-keys": ({"queries": 110, "keys": 50, "dtype": "bf16"}, Style(16, order=4)),
    "one-key": ({"queries": 5, "keys": 1, "mask": Mask()}, Style(16)),
    "lazy": ({"mask": Mask()}, Style(16, lazy=8.0, noise=1, device_max=True)),
    "lazy-raw": ({"dtype": "bf16"}, Style(16, lazy=8.0, noise=2, scaled_first=False, order=4)),
    "fused": ({"batch": 3, "kv_heads": 1}, Style(32, fused=True, noise=3, device_max=True)),
    "fused-raw": ({"mask": Mask("sliding-window", 20)}, Style(16, fused=True, scaled_first=False, cut=True)),
    "skips": ({"score": Score("alibi")}, Style(32, skips=True, noise=4)),
    "cap-noise": ({"score": Score("soft-cap", 30.0), "head_dim": 80}, Style(32, noise=5, lazy=8.0, device_max=True)),
}


def contract_for(problem: Attention, style: Style) -> Contract:
    if problem.dtype == "fp32" and problem.precision == "ieee":
        return Contract("fp32", FMA)
    tf32 = problem.dtype == "fp32"
    form = "tf32" if tf32 else problem.dtype
    unit = Accumulator() if style.cut else FMA
    if style.cut and problem.dtype in FP8:
        unit = Accumulator(alignment_bits=13, result_bits=13, chunk=32)
    return Contract(problem.output_dtype, unit, operand="tf32" if tf32 else "exact", intermediate=form)


def verdicts(problem: Attention, style: Style, *, fault: str = "", seed: int = 0, names=None) -> list:
    contract = contract_for(problem, style)
    form = contract.intermediate or "fp32"
    run = emulation.backward if problem.backward else emulation.forward
    judged = []
    for fill in kept_fills(problem, contract, seed, names):
        outputs = run(problem, fill.inputs, form, style, fault)
        judged += [judge(problem, contract, fill, outputs[o.name], o.name) for o in problem.outputs]
    return judged


@pytest.mark.parametrize("backward", [False, True], ids=["forward", "backward"])
@pytest.mark.parametrize("name", CONTROLS)
def test_correct_kernels_raise_no_alarm(name, backward):
    changes, style = CONTROLS[name]
    problem = dataclasses.replace(BACK if backward else BASE, **changes)
    style = dataclasses.replace(style, splits=1) if backward else style
    for seed in range(2):
        for verdict in verdicts(problem, style, seed=seed):
            assert verdict.passed, f"{problem.id}: {verdict.text}"


FP8_CONTROLS = {
    "e4m3": ({"dtype": "e4m3", "mask": Mask()}, Style(32)),
    "e4m3-lazy": ({"dtype": "e4m3", "scaled": True}, Style(32, lazy=8.0, noise=1, order=3)),
    "e4m3-splits": ({"dtype": "e4m3", "keys": 700, "out_dtype": "fp32"}, Style(64, splits=3, cut=True)),
    "e4m3-alibi": ({"dtype": "e4m3", "score": Score("alibi"), "scaled": True, "head_dim": 64}, Style(16, cut=True)),
    "e5m2": ({"dtype": "e5m2", "scaled": True}, Style(64, scaled_first=False, cut=True, order=2)),
    "e5m2-cap": ({"dtype": "e5m2", "out_dtype": "fp16", "score": Score("soft-cap", 15.0)}, Style(32, lazy=4.0)),
    "e5m2-window": ({"dtype": "e5m2", "mask": Mask("sliding-window", 9), "head_dim": 64}, Style(32, fused=True)),
}


@pytest.mark.parametrize("name", FP8_CONTROLS)
def test_correct_kernels_of_fp8_raise_no_alarm(name):
    changes, style = FP8_CONTROLS[name]
    problem = dataclasses.replace(BASE, **changes)
    for seed in range(2):
        for verdict in verdicts(problem, style, seed=seed):
            assert verdict.passed, f"{problem.id}: {verdict.text}"


@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize(
    ("dtype", "fault"),
    [
        ("e4m3", "p-e5m2"),
        *((dtype, fault) for dtype in ("e4m3", "e5m2") for fault in ("p-cut", "scale", "no-rescale", "mask-late")),
    ],
)
def test_faults_of_fp8_are_caught(dtype, fault, scaled):
    problem = dataclasses.replace(BASE, dtype=dtype, scaled=scaled)
    judged = verdicts(problem, Style(32), fault=fault)
    assert any(not verdict.passed for verdict in judged), f"{problem.id}: no fill sees {fault}"


GQA = {"heads": 4, "kv_heads": 2}
CAP = {"score": Score("soft-cap", 15.0)}
#: Faults that every problem shows: of both passes, forward, backward.
ANYWHERE = (
    "skip-block",
    "mask-late",
    "mask-early",
    "mask-none",
    "narrow-scores",
    "scale",
    "p-e4m3",
    "narrow-sum",
    "row-swap",
    "dim-tail",
)
FORWARD = (
    "no-max",
    "max-from-0",
    "nan-dropped",
    "nan-of-v-dropped",
    "added-mask",
    "stale-v",
    "no-rescale",
    "sum-kept",
    "sum-of-last",
    "p-bf16",
    "last-bit",
    "lse-base-2",
    "lse-max",
)
BACKWARD = (
    "skip-queries",
    "split-exponent",
    "lse-base-2",
    "nan-dropped",
    "no-delta",
    "delta-row",
    "delta-head",
    "narrow-delta",
    "no-lse",
    "ds-e5m2",
    "ds-bf16",
    "grad-q-scale",
    "grad-k-scale",
)
#: fault -> the changes to the problem that make it show
FORWARD_FAULTS = {
    **{fault: {} for fault in (*ANYWHERE, *FORWARD)},
    "kv-head": GQA,
    "empty-row": {"queries": 90},
    "no-cap": {"score": Score("soft-cap", 5.0)},
    "no-slope": {"score": Score("alibi")},
    "slope-late": {"score": Score("alibi")},
    "merge": {"queries": 2, "keys": 300},
    "merge-16": {"queries": 2, "keys": 700},
    "batch-of-0": {"batch": 3},
    "batch-swap": {"batch": 3},
    "head-swap": GQA,
    "narrow-scaled": {},
    "narrow-scale": {"head_dim": 40},
    "narrow-tanh": CAP,
    "approximate-tanh": CAP,
    "tanh-overflows": CAP,
}
BACKWARD_FAULTS = {
    **{fault: {} for fault in (*ANYWHERE, *BACKWARD)},
    "kv-head": GQA,
    "one-head": GQA,
    "one-batch": {"batch": 2, "kv_batch": 1},
    "no-bend": {"score": Score("soft-cap", 5.0)},
    "slope-late": {"score": Score("alibi")},
}


@pytest.mark.parametrize("dtype", ["fp16", "bf16"])
@pytest.mark.parametrize(
    ("backward", "fault"),
    [(False, fault) for fault in FORWARD_FAULTS] + [(True, fault) for fault in BACKWARD_FAULTS],
)
def test_faults_are_caught(backward, fault, dtype):
    if fault in ("p-bf16", "ds-bf16") and dtype == "bf16":
        pytest.skip("bf16 is what a bf16 kernel rounds to")
    changes = (BACKWARD_FAULTS if backward else FORWARD_FAULTS)[fault]
    problem = dataclasses.replace(BACK if backward else BASE, dtype=dtype, **changes)
    style = Style(32, splits={"merge": 4, "merge-16": 20}.get(fault, 1))
    judged = verdicts(problem, style, fault=fault)
    assert any(not verdict.passed for verdict in judged), f"{problem.id}: no fill sees {fault}"


@pytest.mark.parametrize("score", [Score(), Score("soft-cap", 8.0), Score("alibi")], ids=lambda score: score.kind)
def test_scores_may_err_by_their_bound_in_any_direction(score):
    problem = dataclasses.replace(BASE, score=score, dtype="fp32", precision="tf32")
    contract = contract_for(problem, Style(cut=True))
    for name in ("randn", "hot"):
        (fill,) = fills(problem, contract, 1, [name])
        exact = meaning.forward(problem, fill.inputs)
        error = attention_bounds.score_error(problem, contract, exact.scores)
        out_error, lse_error = attention_bounds.forward_error(problem, contract, exact)
        hidden = torch.where(exact.scores.visible, exact.scores.score, -math.inf)
        for wrong in (1, -1, *(torch.randn(error.shape).sign() for _ in range(4))):
            moved = hidden + wrong * error
            assert bool(((torch.softmax(moved, -1) @ exact.scores.v - exact.out).abs() <= out_error).all())
            assert bool(((moved.logsumexp(-1) - exact.lse).abs() <= lse_error).all())
            # and they may not err by a hundred times that
            moved = hidden + 100 * wrong * error
            assert bool(((moved.logsumexp(-1) - exact.lse).abs() > lse_error).any())


def test_rows_without_keys_have_no_room():
    problem = dataclasses.replace(BASE, queries=100)
    contract = contract_for(problem, Style())
    (fill,) = fills(problem, contract, 0, ["randn"])
    dead = problem.queries - problem.keys
    for output in problem.outputs:
        error = fill.of(output.name).error
        assert bool((error[:, :, :dead] == 0).all())
        assert bool((error[:, :, dead:] > 0).all())


@pytest.mark.parametrize("op", ["attention", "attention_backward"])
def test_scores_too_large_for_a_bound_are_an_error(op):
    problem = dataclasses.replace(BASE, op=op, scale=1e5)
    with pytest.raises(ValueError, match="scores err by up to"):
        fills(problem, contract_for(problem, Style(cut=True)), 0, ["randn"])


def test_what_tf32_units_see_may_be_truncated():
    assert attention_bounds.cast(Contract("fp32", Accumulator(), operand="tf32")).unit == 2.0**-10
    assert attention_bounds.cast(Contract("fp32", FMA, operand="tf32", intermediate="fp32")).unit == 2.0**-24
    assert attention_bounds.cast(Contract("fp16", Accumulator(), intermediate="fp16")).unit == 2.0**-11
    assert (
        attention_bounds.cast(Contract("fp16", Accumulator(), intermediate="fp16", flushes_subnormals=True)).tiny
        == 2.0**-14
    )


@pytest.mark.parametrize(
    ("divides", "factor", "right"), [("weights", 1, True), ("sums", 1, False), ("weights", 1.001, False)]
)
def test_weights_may_be_divided_before_they_are_multiplied(divides, factor, right):
    problem = dataclasses.replace(BASE, mask=Mask(), dtype="fp32")
    contract = Contract("fp32", FMA, divides=divides)
    (fill,) = fills(problem, contract, 0, ("uniform",))
    q, k, v = (fill.inputs[name].float() for name in "qkv")
    weights = torch.softmax(q @ k.transpose(-1, -2) * problem.softmax_scale, -1)
    assert judge(problem, contract, fill, weights @ v * factor, "out").passed is right
