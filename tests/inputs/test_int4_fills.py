"""Fills of products with four-bit weights: their values written out once more, what they hold and what they show."""

import dataclasses

import numpy as np
import pytest
import torch

from conformance.families.int4.fills import packed
from conformance.families.int4.problem import Int4Gemm
from conformance.families.int4.reference import decoded, unpacked
from conformance.inputs.fills import FillError, applicable_fills, fill_names, fills
from conformance.numerics.contract import FMA, Accumulator, Contract

CONTRACT = Contract("fp32", FMA)
PROBLEMS = [
    Int4Gemm("bf16", 20, 18, 50, True, "k", 16, out_dtype="fp32"),
    Int4Gemm("bf16", 20, 18, 50, False, "n", 32, "float", "fp32"),
    Int4Gemm("fp16", 20, 18, 50, False, "k", 0, "packed", "fp32"),
    Int4Gemm("fp16", 20, 18, 50, True, "n", 48, "packed", "fp32"),
]


def by_id(problem):
    return problem.id


def half(byte, place, signed):
    """The code number ``place`` of a byte."""
    code = byte >> 4 * (place % 2) & 15
    return code - 16 if signed and code > 7 else code


def weight(problem, inputs, k, n):
    """One element of W, by the definition of the problem, in the dtype of the problem."""
    place = (k // 2, n) if problem.packed == "k" else (k, n // 2)
    code = half(inputs["b"][place].item(), k if problem.packed == "k" else n, problem.signed)
    group = k // problem.group if problem.group else 0
    if problem.zero == "packed":
        code -= half(inputs["zero"][group, n // 2].item(), n, problem.signed)
    elif problem.zero == "float":
        code -= inputs["zero"][group, n].item()
    return torch.tensor(code * inputs["scale"][group, n].item(), dtype=torch.float64).to(inputs["a"].dtype).item()


@pytest.mark.parametrize("problem", PROBLEMS, ids=by_id)
def test_every_fill_and_its_value(problem):
    assert applicable_fills(problem, CONTRACT) == fill_names(problem)
    for fill in fills(problem, CONTRACT):
        for m, n in ((0, 0), (7, 17), (19, 4)):
            terms = [fill.inputs["a"][m, k].item() * weight(problem, fill.inputs, k, n) for k in range(problem.K)]
            assert fill.expected[m, n].item() == pytest.approx(sum(terms), rel=1e-12, nan_ok=True), (fill.name, m, n)


@pytest.mark.parametrize("problem", PROBLEMS, ids=by_id)
def test_what_the_fills_hold(problem):
    by_name = {fill.name: fill for fill in fills(problem, CONTRACT)}
    codes = unpacked(by_name["codes-B"].inputs["b"], "kn".index(problem.packed), problem.signed)
    assert codes.unique().tolist() == list(problem.codes)
    assert (by_name["codes-B"].inputs["a"] != 0).sum(1).tolist() == [1] * problem.M
    _, weights = decoded(problem, by_name["codes-A"].inputs)
    assert (weights != 0).sum(0).tolist() == [1] * problem.N
    special = by_name["special"].expected
    assert (special.isinf() & (special > 0)).any(), "the end of K must not turn infinity into NaN"
    assert special.isnan().any()
    assert special.isfinite().any()


@pytest.mark.parametrize("bits", [14, 24])
@pytest.mark.parametrize("K", [64, 4096])
def test_no_sum_of_the_exact_fill_is_rounded(K, bits):
    problem = Int4Gemm("bf16", 16, 16, K, False, zero="packed", out_dtype="fp32")
    accumulator = Accumulator(alignment_bits=bits, result_bits=min(bits, 23), assumed=True)
    (fill,) = fills(problem, dataclasses.replace(CONTRACT, accumulator=accumulator), names=("sums",))
    a, weights = decoded(problem, fill.inputs)
    assert torch.equal(a.round(), a)
    assert torch.equal(weights.round(), weights)
    assert float((a.abs() @ weights.abs()).max()) <= 2.0 ** min(bits, 24)


def test_a_number_that_is_no_code_is_refused():
    for number, signed in ((8, True), (-1, False)):
        with pytest.raises(FillError, match="do not fit"):
            packed(np.full((2, 2), number), 0, signed)


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"K": 3}, "K is 3: b has two codes a byte along k"),
        ({"N": 3, "packed": "n"}, "N is 3: b has two codes a byte along n"),
        ({"N": 3, "zero": "packed"}, "N is 3: zero has two codes a byte along n"),
        ({"packed": "m"}, "packed 'm' is unknown"),
        ({"zero": "int8"}, "zero 'int8' is unknown"),
        ({"dtype": "fp32"}, "dtype 'fp32' is unknown"),
        ({"group": -1}, "sizes must be >= 0"),
    ],
)
def test_problems_that_are_none(fields, text):
    with pytest.raises(ValueError, match=text):
        Int4Gemm(**{"dtype": "bf16", "M": 4, "N": 4, "K": 4, **fields})
