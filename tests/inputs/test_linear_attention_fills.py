"""Fills of gated linear attention: their values position by position, what they hold and what they show."""

import dataclasses

import pytest
import torch

from conformance.families.linear_attention.problem import LinearAttention
from conformance.inputs.fills import FillError, applicable_fills, fill_names, fills
from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.numerics.verdict import judge

CONTRACT = Contract("bf16", FMA, intermediate="bf16")
PROBLEMS = [
    LinearAttention(2, 3, 53, 24, 20, 16),
    LinearAttention(1, 2, 90, 16, 5, 48),
    LinearAttention(1, 1, 300, 16, 8, 32, order="bhds", pad=3),
]


def by_id(problem):
    return problem.id


def position_by_position(problem, inputs):
    """out and the last state by the problem's definition, in fp64."""
    q, k, v, decay, initial = (inputs[name].double() for name in ("q", "k", "v", "decay", "initial"))
    state, rows = initial, []
    for t in range(problem.length):
        factor = decay[:, :, t // problem.chunk] if t % problem.chunk == 0 else torch.ones_like(decay[:, :, 0])
        state = factor[..., None, None] * state + k[:, :, t, :, None] * v[:, :, t, None, :]
        rows.append((q[:, :, t, None, :] @ state).squeeze(-2))
    return torch.stack(rows, 2), state


@pytest.mark.parametrize("problem", PROBLEMS, ids=by_id)
def test_every_fill_and_its_value(problem):
    for fill in fills(problem, CONTRACT):
        out, state = position_by_position(problem, fill.inputs)
        torch.testing.assert_close(fill.expected, out, rtol=0, atol=0 if fill.method == "exact" else 1e-12)
        torch.testing.assert_close(
            fill.of("state").expected, state, rtol=0, atol=0 if fill.method == "exact" else 1e-12
        )


@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
def test_exact_fills_hold_decays_that_act(dtype):
    problem, contract = LinearAttention(2, 4, 130, 24, 16, 16, dtype), Contract(dtype, FMA, intermediate=dtype)
    for fill in fills(problem, contract, names=("routes", "sums")):
        decay = fill.inputs["decay"]
        assert {0.0, 0.25, 0.5, 1.0, 2.0, 4.0} >= set(decay.unique().tolist()) > {0.0, 1.0}
        without = position_by_position(problem, fill.inputs | {"decay": torch.ones_like(decay)})
        assert (without[0] != fill.expected).double().mean() > 0.2


@pytest.mark.parametrize("problem", PROBLEMS, ids=by_id)
def test_a_state_that_is_kept_narrow_is_past_its_bound(problem):
    (fill,) = fills(problem, CONTRACT, names=("randn",))
    exact = fill.of("state").expected
    assert judge(problem, CONTRACT, fill, exact.float(), "state").passed
    assert not judge(problem, CONTRACT, fill, exact.bfloat16().float(), "state").passed
    assert float((fill.of("state").error / exact.abs().mean()).max()) < 2.0**-10


def test_which_fills_a_problem_has():
    problem = PROBLEMS[0]
    assert applicable_fills(problem, CONTRACT) == fill_names(problem) == ("routes", "sums", "randn")
    assert applicable_fills(dataclasses.replace(problem, length=0), CONTRACT) == ("sums",)


def test_an_accumulator_that_holds_too_little_is_refused():
    narrow = dataclasses.replace(CONTRACT, accumulator=Accumulator(result_bits=4, alignment_bits=4))
    with pytest.raises(FillError, match="no values that bf16 holds and that show"):
        fills(PROBLEMS[0], narrow, names=("sums",))
