"""Correct kernels raise no alarm."""

import pytest
from gemm_emulation import cases, correct

from conformance.inputs.fills import fills
from conformance.numerics.verdict import judge


@pytest.mark.parametrize("name", cases())
def test_correct_kernels_pass(name):
    worst = 0.0
    for seed in range(40):
        problem, contract = cases(24 + seed % 5, 33, (5, 31, 64, 88, 129)[seed % 5])[name]
        for fill in fills(problem, contract, seed):
            verdict = judge(problem, contract, fill, correct(problem, contract, fill.inputs, seed))
            assert verdict.passed, verdict.text
            if fill.method == "bounded":
                worst = max(worst, verdict.worst_ratio)
    assert worst <= 1
    assert worst > 0 or contract.out_dtype != "fp32"  # coarser outputs hide how little of the bound is used


@pytest.mark.parametrize("name", ["fp16", "tf32", "fp8-fast"])
def test_correct_kernels_pass_for_many_k(name):
    problem, contract = cases(9, 17, 4000)[name]
    for fill in fills(problem, contract, 3):
        verdict = judge(problem, contract, fill, correct(problem, contract, fill.inputs, 0))
        assert verdict.passed, verdict.text
