"""Quantised rows: the references agree with a search for the nearest value, and with torch's conversions."""

from __future__ import annotations

import pytest
import torch

from conformance import targets
from conformance.families.rows import narrow, quantisation
from conformance.families.rows.problem import FUNCTIONS, RowProblem
from conformance.families.rows.reference import evaluated
from conformance.heuristics.configs import RowConfig
from conformance.inputs.fills import fills
from conformance.kernels import catalogue
from conformance.kernels.refusal_rules import objection
from conformance.numerics.contract import FMA, Contract
from conformance.numerics.fill import Fill
from conformance.numerics.verdict import judge
from conformance.records import ReasonCode

CONFIG = RowConfig(4, 32, 1, 1)


def built(name, rows=9, columns=70, dtype="bf16"):
    problem = RowProblem(FUNCTIONS[name], rows, columns, dtype)
    return problem, fills(problem, Contract(problem.output_dtype, FMA), 2)


def nearest(values, numbers):
    """Returns the places of the nearest of ``numbers``; of two as near, the even place."""
    distance = (values[..., None] - numbers).abs()
    place = torch.arange(len(numbers))
    return torch.where(distance == distance.amin(-1, keepdim=True), place % 2 * 1000 + place, 10**6).argmin(-1)


def block_sizes(x):
    """Returns the largest size of each element's block of 32 columns, one block after the other."""
    parts = x.abs().split(32, 1)
    return torch.cat([part.amax(1, keepdim=True).expand_as(part) for part in parts], 1)


@pytest.mark.parametrize("name", ["quantize_int8", "quantize_int8_block", "quantize_e4m3", "quantize_e4m3_block"])
def test_dynamic_scales_and_codes(name):
    _, built_fills = built(name)
    for fill in built_fills:
        x = fill.inputs["x"].double()
        amax = block_sizes(x) if "block" in name else x.abs().amax(1, keepdim=True).expand_as(x)
        limit = 127 if "int8" in name else 448
        scale = (amax / limit).clamp(min=2.0**-20)
        codes = (x / scale).round() if limit == 127 else (x / scale).to(torch.float8_e4m3fn).double()
        sure = fill.error == 0 if fill.error is not None else torch.ones_like(codes, dtype=torch.bool)
        assert float(sure.double().mean()) > 0.95
        torch.testing.assert_close(fill.expected[sure], codes[sure], rtol=0, atol=0)
        stored = scale[:, ::32] if "block" in name else scale[:, 0]
        torch.testing.assert_close(fill.of("scale").expected, stored, rtol=1e-12, atol=0)


def test_a_static_scale_rounds_ties_to_even_and_saturates():
    x = torch.tensor([[0.5, 1.5, -2.5, 126.5, 127.5, -128.5, 300.0, -300.0]])
    inputs = {"x": x, "scale": torch.ones(1)}
    int8, e4m3 = (RowProblem(function, 1, 8, "fp32") for function in quantisation.STATIC)
    assert evaluated(int8, inputs)["out"].value.tolist() == [[0, 2, -2, 126, 127, -128, 127, -128]]
    special = {**inputs, "x": torch.tensor([[17.0, 19.0, 1e4, -float("inf"), float("nan"), 2.0**-10, 448.0, 460.0]])}
    assert evaluated(e4m3, special)["out"].value.nan_to_num(-1).tolist() == [[16, 20, 448, -448, -1, 0, 448, 448]]


@pytest.mark.parametrize("name", ["quantize_mxfp8", "quantize_mxfp4"])
def test_shared_exponents(name):
    _, built_fills = built(name)
    for fill in built_fills:
        x = fill.inputs["x"].double()
        amax = block_sizes(x)
        byte = (amax.log2().floor() - (8 if "8" in name else 2) + 127).clamp(min=0)
        scaled = x * 2.0 ** (127 - byte)
        assert torch.equal(fill.of("scale").expected, byte[:, ::32])
        if "8" in name:
            assert torch.equal(fill.expected, scaled.clamp(-448, 448).to(torch.float8_e4m3fn).double())
        else:
            codes = nearest(scaled.abs(), torch.tensor(narrow.E2M1, dtype=torch.float64)) + 8 * x.signbit()
            assert torch.equal(fill.expected, narrow.packed(codes).double())


def test_e2m1_ties_go_to_the_even_code():
    values = torch.linspace(-8, 8, 1025, dtype=torch.float64)
    expected = nearest(values.abs(), torch.tensor(narrow.E2M1, dtype=torch.float64)) + 8 * values.signbit()
    assert torch.equal(narrow.e2m1_code(values), expected)


def test_a_codebook_code_is_the_nearest_number():
    _, built_fills = built("quantize_codebook")
    for fill in built_fills:
        x, book = fill.inputs["x"].double(), fill.inputs["book"].double()
        scale = block_sizes(x).clamp(min=2.0**-20)
        codes = ((x / scale)[..., None] - book).abs().argmin(-1)
        wrong = (narrow.packed(codes) != fill.expected) & (fill.error == 0 if fill.error is not None else True)
        halves = narrow.packed((x == 0).long())  # 0 may be half-way, where the lower code is right
        assert not bool((wrong & (halves == 0)).any())


@pytest.mark.parametrize("back", ["int8", "int8_block", "e4m3", "e4m3_block", "mxfp8", "mxfp4", "codebook"])
def test_what_was_quantised_comes_back_close(back):
    _, built_fills = built(f"quantize_{back}", dtype="fp32")
    for fill in built_fills:
        inputs = {"codes": fill.expected, "scale": fill.of("scale").expected, "book": fill.inputs.get("book")}
        again = RowProblem(FUNCTIONS[f"dequantize_{back}"], 9, 70, "fp32")
        x = fill.inputs["x"].double()
        value = evaluated(again, {k: v for k, v in inputs.items() if v is not None})["out"].value
        reach = (x.abs() if "block" not in back and back in ("int8", "e4m3") else block_sizes(x)).amax(1, keepdim=True)
        assert bool(((value - x).abs() <= 0.3 * reach.clamp(min=2.0**-20)).all())


def test_a_scale_byte_of_255_is_nan():
    _, built_fills = built("dequantize_mxfp8", columns=300)
    spread = next(fill for fill in built_fills if fill.name == "spread")
    assert torch.equal(spread.expected.isnan(), (spread.inputs["scale"] == 255).repeat_interleave(32, 1)[:, :300])
    assert bool(spread.expected.isnan().any())


def test_a_code_within_rounding_of_a_tie_may_be_either_and_no_third():
    problem, contract = RowProblem(FUNCTIONS["quantize_int8"], 1, 2, "fp32"), Contract("int8", FMA)
    outputs = evaluated(problem, {"x": torch.tensor([[127.0, 0.5]])})
    error = outputs["out"].error().round()
    assert error.tolist() == [[0, 1]]
    fill = Fill("randn", 0, "bounded", {}, outputs["out"].value, error)
    passed = [
        judge(problem, contract, fill, torch.tensor([[127, code]], dtype=torch.int8)).passed for code in (0, 1, 2)
    ]
    assert passed == [True, True, False]
    top = Fill("randn", 0, "bounded", {}, torch.tensor([[127.0, 127.0]]).double(), torch.ones(1, 2).double())
    assert judge(problem, contract, top, torch.tensor([[127, 126]], dtype=torch.int8)).passed


def test_a_block_narrower_than_a_scale_is_refused():
    kernel = catalogue.get("quantize_mxfp4")
    draft = kernel.draft(kernel.problem("bf16", 9, 70), RowConfig(4, 16, 1, 1), targets.find("sm_90"))
    reason = kernel.refusal(draft)
    assert (reason.code, reason.subject) == (ReasonCode.CONFIG, "block size")
    assert objection(kernel, draft, reason) is None


def test_a_target_without_e4m3_is_refused():
    kernel = catalogue.get("quantize_e4m3")
    draft = kernel.draft(kernel.problem("bf16", 9, 70), CONFIG, targets.find("sm_80"))
    reason = kernel.refusal(draft)
    assert (reason.code, reason.subject) == (ReasonCode.DTYPE, "e4m3")
    assert objection(kernel, draft, reason) is None
