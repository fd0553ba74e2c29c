"""Wrong values that the harness's own values explain prove no other cause; an output of one value proves none."""

from __future__ import annotations

import pytest
import torch

from conformance.diagnosis.diagnose import Diagnosis, diagnose
from conformance.diagnosis.fault_model import POISON, poison_values
from conformance.families.attention.problem import Attention
from conformance.families.gemm.problem import addmm, bmm, int_mm, mm
from conformance.inputs.fills import fills
from conformance.numerics.contract import FMA, INT32, Contract
from conformance.numerics.rounding import round_to
from conformance.problems import DTYPES

BLOCK = (16, 16, 8)
M, N, K = 16, 16, 12  # one tile, and a K tail of 4
TAIL = 4
FP16 = mm(M, N, K), Contract("fp16", FMA)
INT8 = int_mm(M, N, K), Contract("int32", INT32)
BATCH = bmm(M, N, K), Contract("fp16", FMA)
NO_BETA = addmm(M, N, K, beta=0.0), Contract("fp16", FMA)


def diagnosis(case, out, name="transparent") -> Diagnosis:
    fill = fills(*case, 3, names=[name])[0]
    return diagnose(*case, fill, out, block=BLOCK)


def right(case, name="transparent") -> torch.Tensor:
    fill = fills(*case, 3, names=[name])[0]
    return round_to(fill.expected, case[1].out_dtype)


@pytest.mark.parametrize("byte", POISON)
@pytest.mark.parametrize("dtype", ["int8", "uint8", "fp16", "bf16", "fp32", "e4m3"])
def test_the_poison_of_each_dtype_is_known(byte, dtype):
    size = DTYPES[dtype].itemsize
    value = torch.full((size,), byte, dtype=torch.uint8).view(DTYPES[dtype]).double()
    assert str(float(value)) in map(str, poison_values(dtype))


def test_ones_in_the_k_tail_are_named_where_no_poison_gives_them():
    out = round_to(fills(*FP16, 3, names=["transparent"])[0].expected + TAIL, "fp16")
    assert diagnosis(FP16, out).causes == ("the K tail is filled with ones instead of zeros",)


def test_ones_that_the_poison_of_int8_gives_are_not_named_as_ones():
    """A masked load without ``other`` leaves 0xFF in int8, which is -1 in A and in B: each k of the tail adds 1."""
    result = diagnosis(INT8, right(INT8) + TAIL)
    assert "ones instead of zeros" not in result.text
    assert result.causes == (
        "the K tail is not masked to zeros: each of its k adds 1, as the harness's poison does (-1 * -1)",
    )


@pytest.mark.parametrize(("value", "poisoned"), [(-1, True), (123, True), (77, False)])
def test_a_misread_element_that_is_poison_is_said_to_be(value, poisoned):
    fill = fills(*INT8, 3, names=["transparent"])[0]
    a = fill.inputs["a"].double()
    assert int(a[5, 7]) not in (-1, 77, 123)
    a[5, 7] = value
    out = (a @ fill.inputs["b"].double()).int()
    (cause,) = diagnosis(INT8, out).causes
    assert f"A[5,7] is {int(fill.inputs['a'][5, 7])} and was read as {value}" in cause
    assert ("the harness's poison" in cause) == poisoned


#: Outputs of one value: the value, and what is known of it.
UNIFORM = {
    "NaN": (torch.nan, "OBSERVED every element is NaN"),
    "infinity": (torch.inf, "OBSERVED every element is inf"),
    "minus infinity": (-torch.inf, "OBSERVED every element is -inf"),
    "a constant": (5000.0, "OBSERVED every element is 5000"),
}


@pytest.mark.parametrize("case", [FP16, BATCH], ids=["mm", "bmm"])
@pytest.mark.parametrize("name", UNIFORM)
def test_an_output_of_one_value_has_a_sentence_and_no_guess(case, name):
    value, sentence = UNIFORM[name]
    result = diagnosis(case, torch.full(case[0].output.shape, value).half())
    assert result.causes == ()
    assert "POSSIBLE" not in result.text
    assert sentence in result.text


def test_infinities_of_both_signs_have_a_sentence_and_no_guess():
    out = torch.full((M, N), torch.inf).half()
    out[::2] = -torch.inf
    result = diagnosis(FP16, out)
    assert (result.causes, "POSSIBLE" in result.text) == ((), False)
    assert "OBSERVED every element is infinite" in result.text


def test_attention_of_nan_has_a_sentence_and_no_guess():
    problem = Attention("attention", 1, 2, 16, 16, 16)
    case = problem, Contract("fp16", FMA)
    fill = fills(*case, 3, names=["randn"])[0]
    result = diagnose(*case, fill, torch.full(problem.output.shape, torch.nan).half(), block=BLOCK)
    assert (result.causes, "POSSIBLE" in result.text) == ((), False)
    assert "OBSERVED every element is NaN" in result.text


def test_nan_that_the_fill_holds_is_not_said_to_come_from_elsewhere():
    out = torch.full((M, N), torch.nan).half()
    assert "no operand holds NaN" in diagnosis(FP16, out).text
    assert "no operand holds NaN" not in diagnosis(NO_BETA, out).text


def test_nan_of_an_ignored_bias_is_one_cause_of_two_where_poison_gives_it_too():
    """An operand that is read past its end gives NaN in every element, as the bias does that beta = 0 must keep out."""
    out = torch.full((M, N), torch.nan).half()
    (cause,) = diagnosis(NO_BETA, out).causes
    assert cause == "the bias contributes although beta is 0 (0 * NaN is NaN), or NaN was read outside the operands"
    no_alpha = addmm(M, N, K, alpha=0.0), NO_BETA[1]  # whose K loop has no steps, so that nothing else is read
    (cause,) = diagnosis(no_alpha, out).causes
    assert cause == "the product contributes although alpha is 0 (0 * NaN is NaN)"


@pytest.mark.parametrize(
    ("dtype", "held", "written"),
    [
        ("fp16", {0xFE: 9}, "not written"),
        ("e4m3", {0xFE: 9}, "not written"),
        ("e4m3", {0xFE: 9, 0x7E: 1}, None),  # -448 and 448: the kernel saturates
        ("e4m3", {0xFE: 7}, None),
        ("e5m2", {0xFE: 9}, "the bits of memory that was not written"),  # a NaN of the kernel's may have them
        ("e5m2", {0x7D: 9}, "the bits of memory that was not written"),
        ("e5m2", {0x7F: 9}, None),
    ],
)
def test_results_with_the_bits_of_unwritten_memory_do_not_prove_it(dtype, held, written):
    case = mm(M, N, K, out_dtype=dtype), Contract(dtype, FMA)
    out = right(case)
    raw = out.view(torch.uint8).reshape(M, -1)
    start = 0
    for byte, count in held.items():
        width = count * out.element_size()
        raw[4, start : start + width] = byte
        start += width
    result = diagnosis(case, out)
    assert any(cause.startswith("not written") for cause in result.causes) == (written == "not written")
    assert ("the bits of memory that was not written" in result.text) == (written is not None and "bits" in written)
