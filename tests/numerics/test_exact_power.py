"""Faults of rounding, of accumulators and of epilogues that the exact fills must show, at every K and dtype.

Each kernel here sums exactly, or as an emulated unit does, and is wrong in one thing.
"""

import functools
from dataclasses import replace

import pytest
import torch
from gemm_emulation import HOPPER, HOPPER_TF32, accumulate, caught_by, correct, epilogue
from wrong_rounding import RULES, rounded

from conformance.families.conv.problem import conv2d
from conformance.families.conv.reference import value as conv_value
from conformance.families.gemm import reference as gemm
from conformance.families.gemm.fills import is_tie
from conformance.families.gemm.problem import (
    Bias,
    Fusion,
    addmm,
    baddbmm,
    bmm,
    fused_mm,
    int_mm,
    mixed_mm,
    mm,
    mm_plus_mm,
    scaled_mm,
)
from conformance.inputs.fills import fills
from conformance.numerics.contract import FMA, INT32, Accumulator, Contract
from conformance.numerics.rounding import round_to
from conformance.numerics.verdict import judge

FP8 = Accumulator(alignment_bits=13, result_bits=13, chunk=32)
M, N = 40, 56


def promoted(every):
    return replace(FP8, promote=every)


def exact_kernel(problem):
    """The right value in fp64: what a kernel has before it rounds its output."""
    if problem.op.startswith("conv"):
        return lambda inputs: conv_value(problem, inputs)
    return lambda inputs: gemm.value(problem, inputs)


#: Problems of every operation, epilogue and output format that has ties, with a contract.
TIED = {
    "fp16": (mm(M, N, 88, "fp16"), Contract("fp16", HOPPER)),
    "bf16": (mm(M, N, 88, "bf16"), Contract("bf16", FMA)),
    "fp16, K 16": (mm(M, N, 16, "fp16"), Contract("fp16", HOPPER)),
    "bf16, K 4096": (mm(M, N, 4096, "bf16"), Contract("bf16", HOPPER)),
    "fp32 to bf16": (mm(M, N, 88, "fp32", out_dtype="bf16"), Contract("bf16", FMA)),
    "tf32 to fp16": (mm(M, N, 88, "fp32", precision="tf32", out_dtype="fp16"), Contract("fp16", HOPPER_TF32, "tf32")),
    "addmm": (addmm(M, N, 88, "bf16"), Contract("bf16", HOPPER)),
    "addmm, mn": (addmm(M, N, 88, "fp16", bias=Bias("mn"), alpha=-4.0, beta=0.25), Contract("fp16", HOPPER)),
    "mm_plus_mm": (mm_plus_mm(M, N, 33, "fp16"), Contract("fp16", HOPPER)),
    "bmm": (bmm(M, N, 40, "bf16", batch=9), Contract("bf16", HOPPER)),
    "baddbmm": (baddbmm(M, N, 40, "fp16", batch=3), Contract("fp16", HOPPER)),
    "mixed, uint8": (mixed_mm(M, N, 88, "bf16", b_dtype="uint8"), Contract("bf16", HOPPER)),
    "mixed, int8": (mixed_mm(M, N, 88, "fp16", b_dtype="int8"), Contract("fp16", HOPPER)),
    "fused": (
        fused_mm(M, N, 88, "bf16", fusion=Fusion("gather", None, ("bias", "residual")), bias=Bias()),
        Contract("bf16", HOPPER),
    ),
    "relu": (fused_mm(M, N, 88, "fp16", fusion=Fusion(None, None, ("relu", "dropout"))), Contract("fp16", HOPPER)),
    "conv": (conv2d(2, 24, (7, 6), 36, 3, "bf16", padding=1, bias=True), Contract("bf16", HOPPER)),
    **{
        f"fp8 to {out}, {scaling}, promoted {every}": (
            scaled_mm(M, N, k, scaling=scaling, out_dtype=out, bias=bias),
            Contract(out, replace(FP8, promote=every)),
        )
        for out in ("bf16", "fp16", "e4m3", "e5m2")
        for scaling, bias in (("row", None), ("tensor", Bias()), ("1x128/128x128", None))
        for k, every in ((88, None), (300, 32), (520, 128))
    },
}


@functools.cache
def tied(name):
    """The fill ``wide-B`` of a problem of :data:`TIED`."""
    (fill,) = fills(*TIED[name], 1, ["wide-B"])
    return fill


@pytest.mark.parametrize("name", TIED)
def test_wrong_rounding_of_the_output_shows(name):
    (problem, contract), fill = TIED[name], tied(name)
    value = exact_kernel(problem)(fill.inputs)
    right = round_to(value, contract.out_dtype, overflow=contract.overflow)
    assert judge(problem, contract, fill, right).passed
    for rule in RULES:
        if rule == "twice" and not bool((~is_tie(value, contract.out_dtype)[value != 0]).any()):
            continue  # the accumulator has no bit below a tie
        assert not torch.equal(rounded(value, contract.out_dtype, rule, bits_between=1), right), rule
        assert not judge(problem, contract, fill, _rounding(contract, value, right, rule)).passed, rule


def _rounding(contract, value, right, rule):
    usual = value.isfinite() & (value.abs() < torch.finfo(right.dtype).max / 2)
    usual &= value.abs() > 2 * torch.finfo(right.dtype).smallest_normal
    return torch.where(usual, rounded(torch.where(usual, value, 1.0), contract.out_dtype, rule, bits_between=1), right)


@pytest.mark.parametrize("name", TIED)
def test_ties_have_neighbours_of_both_kinds_and_signs_and_several_sizes(name):
    (problem, contract), fill = TIED[name], tied(name)
    value = fill.expected[is_tie(fill.expected, contract.out_dtype) & (fill.expected != 0)]
    up = round_to(value, contract.out_dtype).double().abs() > value.abs()
    assert 0.1 < up.double().mean() < 0.9
    if "relu" not in name:
        assert 0.1 < (value > 0).double().mean() < 0.9
    if problem.op == "mm" and contract.accumulator.exact_bits == 24:
        assert len(torch.unique(torch.frexp(value)[1])) >= 4


def test_no_accumulator_holds_a_tie_of_fp32():
    problem = mm(M, N, 88, "fp16", out_dtype="fp32")
    (fill,) = fills(problem, Contract("fp32", HOPPER), names=["wide-B"])
    assert not is_tie(fill.expected, "fp32").any()


# -- accumulators
@pytest.mark.parametrize("block_k", [32, 64, 128])
@pytest.mark.parametrize("out", ["bf16", "fp32"])
def test_fp8_sums_show_lost_promotions_and_lost_bits(out, block_k):
    """K is four blocks and more: a promotion every two blocks, or never, and 12 bits of 13 show."""
    problem = scaled_mm(M, N, 4 * block_k + 8, out_dtype=out)
    contract = Contract(out, promoted(block_k))
    for wrong in (
        promoted(2 * block_k),
        promoted(None),
        replace(promoted(block_k), alignment_bits=12, result_bits=12),
    ):
        for seed in (0, 1):
            names = caught_by(problem, contract, functools.partial(_correct, problem, _with(contract, wrong), 0), seed)
            assert names & {"wide-A", "wide-B"}, wrong
    for chunk in (4, 16, 32):  # steps of any size, and in variant 1 promotions elsewhere than at multiples of a block
        unit = _with(contract, replace(promoted(block_k), chunk=chunk))
        for variant in (0, 1):
            assert not caught_by(problem, contract, functools.partial(_correct, problem, unit, variant))


def _correct(problem, contract, variant, inputs):
    return correct(problem, contract, inputs, variant)


def _with(contract, accumulator):
    return replace(contract, accumulator=accumulator)


def test_fast_accumulation_of_12_bits_shows():
    problem, contract = scaled_mm(M, N, 200), Contract("bf16", FP8)
    narrow = _with(contract, replace(FP8, alignment_bits=12, result_bits=12))
    assert "wide-A" in caught_by(problem, contract, lambda inputs: correct(problem, narrow, inputs, 0))


@pytest.mark.parametrize("k", [1100, 1160, 4096])
def test_int8_summed_in_fp32_shows_in_every_row(k):
    problem, contract = int_mm(M, N, k), Contract("int32", INT32)
    (fill,) = fills(problem, contract, names=["wide-A"])
    assert bool((fill.expected % 2 != 0).all())
    assert fill.meta["exceeds_fp32"]
    summed = fill.inputs["a"].float() @ fill.inputs["b"].float()
    wrong = summed.double() != fill.expected
    assert bool((wrong | (fill.expected.abs() < 2**24)).all())
    assert wrong.double().mean() > 0.5
    (small,) = fills(int_mm(M, N, 88), contract, names=["wide-A"])
    assert not small.meta["exceeds_fp32"]


# -- epilogues
@pytest.mark.parametrize("dtype", ["bf16", "fp16"])
@pytest.mark.parametrize("scaling", ["row", "tensor", "1x128/1x128", "1x128/128x128"])
def test_sums_rounded_before_their_scales_show(scaling, dtype):
    problem = scaled_mm(M, N, 300, scaling=scaling, out_dtype=dtype)
    for unit in (FP8, promoted(128), HOPPER):
        contract = Contract(dtype, unit)
        for seed in (0, 1, 2):
            (fill,) = fills(problem, contract, seed, ["wide-scales"])
            scales = fill.inputs["scale_a"], fill.inputs["scale_b"]
            assert all(bool((torch.frexp(scale)[0] != 0.5).all()) for scale in scales)
            right = round_to(fill.expected, dtype)
            for narrow in ("bf16",) if dtype == "bf16" or scaling == "tensor" else ("bf16", "fp16"):
                assert not torch.equal(round_to(_scaled(problem, fill.inputs, narrow), dtype), right), narrow
            for order in (0, 1, 2):
                assert torch.equal(round_to(_scaled(problem, fill.inputs, "fp32", order), dtype), right)


def _scaled(problem, inputs, sums_as, order=0):
    """Sums of each block of k in the format ``sums_as``, scaled and added in fp32 in one of three orders."""
    a, b = inputs["a"].double(), inputs["b"].double()
    scale_a, scale_b = inputs["scale_a"], inputs["scale_b"]
    step, total = 128 if "/" in problem.scaling else problem.K, torch.zeros(problem.M, problem.N)
    for index, start in enumerate(range(0, problem.K, step)):
        part = round_to(a[:, start : start + step] @ b[start : start + step], sums_as).float()
        one, other = scale_a, scale_b
        if "/" in problem.scaling:
            rows, columns = torch.arange(problem.M), torch.arange(problem.N)
            kind_a, kind_b = problem.scaling.split("/")
            one = scale_a[rows // (128 if kind_a == "128x128" else 1), index, None]
            other = scale_b[index, columns // (128 if kind_b == "128x128" else 1)]
        total += [part * one * other, part * (one * other), part * other * one][order]
    return total.double()


@pytest.mark.parametrize("name", ["scale_a", "scale_b"])
@pytest.mark.parametrize("narrow", ["bf16", "fp16"])
def test_scales_cast_down_show(name, narrow):
    problem, contract = scaled_mm(M, N, 88), Contract("bf16", FP8)
    for seed in (0, 1, 2):
        (fill,) = fills(problem, contract, seed, ["wide-scales"])
        cast = {**fill.inputs, name: round_to(fill.inputs[name].double(), narrow).float()}
        assert not torch.equal(round_to(gemm.value(problem, cast), "bf16"), round_to(fill.expected, "bf16"))


def tanh_gelu(x):
    return torch.nn.functional.gelu(x, approximate="tanh")


INEXACT_K = (16, 33, 88, 520, 4096)


@pytest.mark.parametrize("k", INEXACT_K)
@pytest.mark.parametrize(("dtype", "out"), [("fp16", None), ("bf16", None), ("fp16", "fp32"), ("fp32", None)])
def test_gelu_is_judged_by_its_own_error(dtype, out, k):
    problem = fused_mm(M, N, k, dtype, fusion=Fusion(None, None, ("bias", "gelu")), bias=Bias(), out_dtype=out)
    contract = Contract(out or dtype, FMA if dtype == "fp32" else HOPPER)

    def kernel(gelu, narrow=None):
        def run(inputs):
            raw = round_to(gemm.product(problem, inputs), "fp32")
            if narrow:
                raw = round_to(raw.double(), narrow).float()
            return round_to(gelu(raw + inputs["bias"].float()).double(), contract.out_dtype)

        return run

    for seed in (0, 1):
        assert caught_by(problem, contract, kernel(torch.nn.functional.gelu), seed) == set()
        for erf in (torch.erf, lambda x: torch.erf(x.double()).float()):
            right = kernel(lambda x, erf=erf: 0.5 * x * (1.0 + erf(x * 0.7071067811865476)))
            assert caught_by(problem, contract, right, seed) == set()
        assert "wide-A" in caught_by(problem, contract, kernel(tanh_gelu), seed)
        for narrow in {"bf16", dtype} - {"fp32"}:
            assert "wide-A" in caught_by(problem, contract, kernel(torch.nn.functional.gelu, narrow), seed)


@pytest.mark.parametrize("k", INEXACT_K)
@pytest.mark.parametrize(("dtype", "out"), [("fp16", None), ("bf16", None), ("fp16", "fp32"), ("fp32", None)])
def test_uneven_factors_are_judged_by_their_own_error(dtype, out, k):
    problem = addmm(M, N, k, dtype, alpha=0.3, beta=-1.7, out_dtype=out)
    contract = Contract(out or dtype, FMA if dtype == "fp32" else HOPPER)

    def kernel(alpha=0.3, narrow=None, fused=False):
        def run(inputs):
            raw = round_to(gemm.product(problem, inputs), narrow or "fp32").float()
            bias = inputs["bias"].float() * -1.7
            total = (raw.double() * float(torch.tensor(alpha)) + bias.double()).float() if fused else raw * alpha + bias
            return round_to(total.double(), contract.out_dtype)

        return run

    for seed in (0, 1):
        for fused in (False, True):
            assert caught_by(problem, contract, kernel(fused=fused), seed) == set()
        assert "wide-A" in caught_by(problem, contract, kernel(float(torch.tensor(0.3).bfloat16())), seed)
        for narrow in {"bf16", dtype} - {"fp32"}:
            assert "wide-A" in caught_by(problem, contract, kernel(narrow=narrow), seed)


def test_a_lost_product_shows_before_a_rounding_epilogue():
    """A kernel that leaves out the last k, or sums in 16 bits, at a K where the bounded fills allow more."""
    problem = addmm(M, N, 4096, "bf16", alpha=0.3)
    contract = Contract("bf16", HOPPER)

    def kernel(inputs):
        return round_to(
            epilogue(
                problem, inputs, accumulate(inputs["a"][:, :-1], inputs["b"][:-1], FMA, torch.arange(4095))
            ).double(),
            "bf16",
        )

    assert "wide-A" in caught_by(problem, contract, kernel)


# -- signs of zero
@pytest.mark.parametrize("zero_sign", ["any", "ieee"])
def test_the_sign_of_zero_is_judged_where_it_is_declared(zero_sign):
    problem = mm(M, N, 88, "fp16")
    contract = Contract("fp16", FMA, zero_sign=zero_sign)

    def from_nothing(inputs):
        """Sums that do not start from +0, so that products of -0 alone make -0."""
        out = round_to(gemm.product(problem, inputs), "fp16")
        terms = torch.signbit(inputs["a"].double()[:, :, None] * inputs["b"].double()[None]).all(1)
        return torch.where((out == 0) & terms, -0.0, out)

    def right(inputs):
        return round_to(gemm.product(problem, inputs), "fp16")

    assert caught_by(problem, contract, right) == set()
    assert caught_by(problem, contract, from_nothing) == ({"special"} if zero_sign == "ieee" else set())


def test_a_negative_factor_makes_negative_zeros():
    problem = fused_mm(M, N, 88, "bf16", fusion=Fusion(None, None, ("relu",)))
    contract = Contract("bf16", FMA, zero_sign="ieee")

    def kernel(zero):
        def run(inputs):
            raw = gemm.product(problem, inputs)
            return round_to(torch.where(raw < 0, zero, raw), "bf16")

        return run

    assert caught_by(problem, contract, kernel(0.0)) == set()
    assert {"transparent", "wide-A", "wide-B"} <= caught_by(problem, contract, kernel(-0.0))
