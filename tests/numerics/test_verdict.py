import json
import math
from dataclasses import replace

import pytest
import torch

from conformance.families.gemm.problem import mm
from conformance.inputs.fills import fills
from conformance.numerics.contract import Accumulator, Contract
from conformance.numerics.fill import Fill
from conformance.numerics.rounding import bits, round_to
from conformance.numerics.verdict import judge
from conformance.problems import DTYPES


def bounded(expected, error, dtype, **rules):
    """A bounded fill of one row, its problem and contract."""
    value = torch.tensor([expected], dtype=torch.float64)
    problem = mm(1, len(expected), 1, out_dtype=dtype)
    method = "special" if not bool(value.isfinite().all()) else "bounded"
    fill = Fill("planted", 0, method, {}, value, torch.tensor([error], dtype=torch.float64))
    return problem, Contract(dtype, Accumulator(), **rules), fill


def passes(expected, error, dtype, found, **rules):
    problem, contract, fill = bounded([expected], [error], dtype, **rules)
    return judge(problem, contract, fill, torch.tensor([[found]]).to(DTYPES[dtype])).passed


def test_exact_verdict_names_the_first_wrong_element():
    problem, contract = mm(40, 48, 88), Contract("fp16", Accumulator())
    fill = fills(problem, contract, seed=7, names=["wide-A"])[0]
    out = round_to(fill.expected, "fp16")
    good = judge(problem, contract, fill, out)
    assert good.passed
    assert (good.wrong, good.total, good.first) == (0, 1920, None)
    assert "PASS exact/wide-A seed 7" in good.text
    bits(out)[3, 5] += 1
    out[30, 2] = math.nan
    bad = judge(problem, contract, fill, out)
    assert (bad.passed, bad.wrong, bad.first) == (False, 2, (3, 5))
    assert bad.got == float(out[3, 5])
    assert bad.want == float(round_to(fill.expected, "fp16")[3, 5])
    assert "FAIL exact/wide-A seed 7: 2/1920 wrong, first [3, 5] got" in bad.text


def test_negative_zero_is_zero():
    problem, contract = mm(1, 2, 1), Contract("fp16", Accumulator())
    fill = Fill("planted", 0, "exact", {}, torch.tensor([[0.0, -0.0]]).double(), None)
    for out in ([[0.0, 0.0]], [[-0.0, -0.0]], [[-0.0, 0.0]]):
        assert judge(problem, contract, fill, torch.tensor(out).half()).passed
    assert not judge(problem, contract, fill, torch.tensor([[0.0, 2.0**-24]]).half()).passed


def test_any_strides_are_judged():
    problem, contract = mm(40, 48, 88, "bf16"), Contract("bf16", Accumulator())
    for fill in fills(problem, contract):
        strided = torch.empty(48, 40, dtype=torch.bfloat16).T
        strided.copy_(round_to(fill.expected, "bf16"))
        assert judge(problem, contract, fill, strided).passed


def test_interval_is_that_of_the_rounded_ends():
    # fp16 around 1: spacing 2**-10 above, 2**-11 below
    unit = 2.0**-10
    assert passes(1.0, 0.0, "fp16", 1.0)
    assert not passes(1.0, 0.4 * unit, "fp16", 1.0 + unit)
    assert passes(1.0, 0.6 * unit, "fp16", 1.0 + unit)
    assert not passes(1.0, 0.6 * unit, "fp16", 1.0 + 2 * unit)
    assert passes(1.0, 0.3 * unit, "fp16", 1.0 - unit / 2)
    assert not passes(1.0, 0.2 * unit, "fp16", 1.0 - unit / 2)
    assert not passes(1.0, 1e9, "fp16", math.nan)
    assert passes(0.0, 0.0, "fp16", -0.0)


def test_overflow_within_the_interval():
    # 65520 is the first value that rounds to infinity in fp16
    assert passes(65510.0, 20.0, "fp16", math.inf)
    assert passes(65510.0, 20.0, "fp16", 65504.0)
    assert not passes(65500.0, 1.0, "fp16", math.inf)
    assert not passes(65530.0, 1.0, "fp16", 65504.0)
    assert passes(65530.0, 1.0, "fp16", 65504.0, overflow="saturate")
    assert not passes(65530.0, 1.0, "fp16", math.inf, overflow="saturate")
    assert passes(65530.0, 1.0, "fp16", math.nan, overflow="nan")
    assert not passes(65530.0, 1.0, "fp16", math.inf, overflow="nan")
    # e4m3 has no infinity: past 464 is NaN unless saturated
    for sign in (1, -1):
        assert passes(sign * 500.0, 1.0, "e4m3", math.nan)
        assert not passes(sign * 500.0, 1.0, "e4m3", sign * 448.0)
        assert not passes(sign * 500.0, 1.0, "e4m3", -sign * 448.0)
        assert passes(sign * 460.0, 10.0, "e4m3", sign * 448.0)
        assert passes(sign * 460.0, 10.0, "e4m3", math.nan)
        assert not passes(sign * 460.0, 1.0, "e4m3", math.nan)
        assert passes(sign * 500.0, 1.0, "e4m3", sign * 448.0, overflow="saturate")
        assert not passes(sign * 460.0, 10.0, "e4m3", sign * 384.0)


def test_special_classes():
    inf, nan = math.inf, math.nan
    for dtype in ("fp16", "bf16", "fp32", "e5m2"):
        assert passes(nan, 0.0, dtype, nan)
        assert not passes(nan, 0.0, dtype, inf)
        assert not passes(nan, 0.0, dtype, 0.0)
        for sign in (1, -1):
            assert passes(sign * inf, 0.0, dtype, sign * inf)
            assert not passes(sign * inf, 0.0, dtype, -sign * inf)
            assert not passes(sign * inf, 0.0, dtype, nan)
            assert not passes(sign * inf, 0.0, dtype, sign * 57344.0)
    assert passes(inf, 0.0, "e4m3", nan)
    assert passes(inf, 0.0, "e4m3", 448.0, overflow="saturate")


def test_flushed_subnormals():
    problem, contract = mm(1, 1, 1), Contract("fp16", Accumulator())
    fill = Fill("planted", 0, "exact", {}, torch.tensor([[2.0**-20]]).double(), None)
    zero = torch.zeros(1, 1).half()
    assert not judge(problem, contract, fill, zero).passed
    assert judge(problem, replace(contract, flushes_subnormals=True), fill, zero).passed
    assert not judge(problem, replace(contract, flushes_subnormals=True), fill, zero + 2.0**-21).passed


def test_failed_interval_says_what_was_allowed_and_is_json():
    problem, contract, fill = bounded([1.0, math.nan, math.inf], [2.0**-12, 0.0, 0.0], "fp16")
    verdict = judge(problem, contract, fill, torch.tensor([[2.0, 0.0, math.inf]]).half())
    assert (verdict.wrong, verdict.first, verdict.low, verdict.high) == (2, (0, 0), 1.0, 1.0)
    assert "got 2 want 1, allowed 1 to 1" in verdict.text
    again = judge(problem, contract, fill, torch.tensor([[1.0, 0.0, math.inf]]).half())
    assert again.first == (0, 1)
    assert "want NaN" in again.text
    text = json.dumps(again.to_dict(), allow_nan=False)
    assert json.loads(text)["want"] == "nan"
    assert json.loads(text)["first"] == [0, 1]


def test_ratio_is_the_share_of_the_bound_beyond_output_rounding():
    problem, contract, fill = bounded([1.0, 2.0], [0.5, 0.5], "fp32")
    verdict = judge(problem, contract, fill, torch.tensor([[1.25, 2.0]]))
    assert verdict.passed
    assert verdict.worst_ratio == pytest.approx(0.5, abs=1e-6)


def test_assumed_contracts_are_marked():
    contract = Contract("fp16", Accumulator(assumed=True))
    problem = mm(8, 8, 8)
    for fill in fills(problem, contract):
        text = judge(problem, contract, fill, round_to(fill.expected, "fp16")).text
        assert "(contract assumed)" in text
        measured = Contract("fp16", Accumulator())
        assert "assumed" not in judge(problem, measured, fill, round_to(fill.expected, "fp16")).text


@pytest.mark.parametrize("sizes", [(0, 8, 8), (8, 0, 8), (8, 8, 0), (0, 0, 0)])
def test_empty_outputs(sizes):
    problem, contract = mm(*sizes), Contract("fp16", Accumulator())
    for fill in fills(problem, contract):
        assert judge(problem, contract, fill, torch.zeros(*sizes[:2]).half()).passed


def test_wrong_outputs_are_refused():
    problem, contract = mm(4, 8, 4), Contract("fp16", Accumulator())
    fill = fills(problem, contract)[0]
    with pytest.raises(ValueError, match=r"\(8, 4\) torch.float16, it must be \(4, 8\) torch.float16"):
        judge(problem, contract, fill, torch.zeros(8, 4).half())
    with pytest.raises(ValueError, match=r"torch.float32, it must be \(4, 8\) torch.float16"):
        judge(problem, contract, fill, torch.zeros(4, 8))
