import math
from dataclasses import replace

import pytest
import torch

from conformance import reference
from conformance.families.gemm import reference as gemm
from conformance.families.gemm.problem import Bias, Fusion, addmm, dual_mm, fused_mm, int_mm, mm, mm_plus_mm, scaled_mm
from conformance.families.gemm.reference import (
    GELU_ERROR,
    GELU_SLOPE,
    SILU_ERROR,
    SILU_SLOPE,
    SILU_TINY,
    U,
    error_bound,
    growth,
)
from conformance.inputs.fills import fills
from conformance.numerics.contract import FMA, FMA16, INT32, Accumulator, Contract


def test_growth_figures():
    wide = Accumulator(alignment_bits=25, result_bits=23, chunk=16)
    # ((16 + 1) / 4 + 1) / 16 < 1, so that one k costs one unit of the result
    assert growth(wide, 88) == pytest.approx((1 + 2.0**-23) ** 96 - 1, rel=1e-12)
    narrow_alignment = replace(wide, alignment_bits=23, chunk=4)
    assert growth(narrow_alignment, 88) == pytest.approx((1 + 1.5 * 2.0**-23) ** 96 - 1, rel=1e-12)
    assert growth(replace(wide, assumed=True), 88) == pytest.approx((1 + 2.0**-22) ** 96 - 1, rel=1e-12)
    assert growth(FMA, 88) == pytest.approx((1 + U) ** 90 - 1, rel=1e-12)
    assert growth(FMA, 88, fused=True) == pytest.approx((1 + U) ** 92 - 1, rel=1e-12)
    fp8 = Accumulator(alignment_bits=13, result_bits=13, chunk=32)
    # a chunk of 32 may be eight steps of 4, each of which cuts five terms and its result
    assert growth(fp8, 1031) == pytest.approx((1 + 6 * 2.0**-13) ** (8 * 33) * (1 + U) ** 34 - 1, rel=1e-12)
    assert growth(replace(fp8, promote=128), 1031) == pytest.approx(
        (1 + 6 * 2.0**-13) ** (8 * 4) * (1 + U) ** 42 - 1, rel=1e-12
    )
    assert growth(replace(fp8, chunk=2), 4) == pytest.approx((1 + 4 * 2.0**-13) ** 2 * (1 + U) ** 3 - 1, rel=1e-12)
    assert growth(fp8, 0) == 0


def bound(problem, contract, inputs):
    value = reference.value(problem, inputs)
    return error_bound(problem, contract, value, reference.magnitude(problem, inputs), inputs)


def test_epilogues_add_their_roundings():
    contract = Contract("fp16", Accumulator())
    shape = (12, 14, 40)
    inputs = {fill.name: fill.inputs for fill in fills(addmm(*shape), contract)}["randn"]
    plain = bound(mm(*shape), contract, inputs)
    value = reference.value(addmm(*shape), inputs).abs()
    whole = bound(addmm(*shape), contract, inputs)
    assert bool((whole > 2 * plain + 2 * U * value).all())
    assert bool((bound(addmm(*shape, beta=0.0), contract, inputs) < whole).all())
    ignored = {**inputs, "bias": torch.full_like(inputs["bias"], math.nan)}
    assert bool(bound(addmm(*shape, beta=0.0), contract, ignored).isfinite().all())
    nothing = bound(mm(12, 14, 0), contract, {"a": inputs["a"][:, :0], "b": inputs["b"][:0]})
    assert bool(((nothing > 0) & (nothing < 1e-40)).all())


def test_scales_scale_the_bound():
    problem = scaled_mm(12, 14, 40, bias=Bias())
    contract = Contract("bf16", Accumulator(alignment_bits=13, result_bits=13, chunk=32))
    inputs = fills(problem, contract, names=["randn"])[0].inputs
    eight = {**inputs, "scale_a": inputs["scale_a"] * 8}
    ratio = bound(problem, contract, eight) / bound(problem, contract, inputs)
    assert bool(((ratio > 7.9) & (ratio <= 8.001)).all())


def test_flushing_admits_the_smallest_normal_of_the_output():
    problem = mm(12, 14, 40)
    contract = Contract("fp16", Accumulator())
    inputs = fills(problem, contract, names=["randn"])[0].inputs
    more = bound(problem, replace(contract, flushes_subnormals=True), inputs) - bound(problem, contract, inputs)
    assert bool((more >= 2.0**-14).all())
    assert bool((more < 2.0**-13).all())


def test_a_bound_without_the_references_own_error_would_alarm():
    """If the exact sum is tiny against its terms, fp64 itself errs by more than an integer accumulator does."""
    problem = mm(1, 1, 3, "fp64")
    inputs = {"a": torch.tensor([[1e16, 1.0, -1e16]]).double(), "b": torch.ones(3, 1).double()}
    assert abs(float(reference.value(problem, inputs)) - 1.0) <= float(bound(problem, Contract("fp64", FMA), inputs))


def test_subnormal_operands_count_as_the_smallest_normal_in_a_tensor_core():
    """The unit aligns a product with a subnormal as if it were normal, so its neighbours lose more bits."""
    problem = mm(1, 1, 4, "fp16", out_dtype="fp32")
    a = torch.tensor([[2.0**-20, 1.0, 0.0, 0.0]], dtype=torch.float16)
    b = torch.tensor([[2.0**15], [2.0**-7], [0.0], [0.0]], dtype=torch.float16)
    inputs = {"a": a, "b": b}
    contract = Contract("fp32", Accumulator())
    aligned, plain = bound(problem, contract, inputs), bound(problem, replace(contract, accumulator=FMA), inputs)
    assert float(aligned) >= growth(Accumulator(), 4) * 2.0**-14 * 2.0**15
    assert float(plain) < float(aligned) / 16
    normal = {"a": torch.tensor([[2.0**-14, 1.0, 0.0, 0.0]], dtype=torch.float16), "b": b}
    assert float(bound(problem, contract, normal)) == pytest.approx(float(aligned), rel=1e-2)


def test_integer_sums_have_no_error():
    problem, contract = int_mm(8, 9, 40), Contract("int32", INT32)
    inputs = fills(problem, contract, names=["transparent"])[0].inputs
    assert not bound(problem, contract, inputs).any()


def test_a_sum_of_two_products_is_one_of_twice_the_length():
    contract = Contract("fp16", FMA)
    double, single = mm_plus_mm(12, 14, 40), mm(12, 14, 80)
    inputs = fills(double, contract, names=["randn"])[0].inputs
    joined = {"a": torch.cat([inputs["a"], inputs["c"]], 1), "b": torch.cat([inputs["b"], inputs["d"]], 0)}
    ratio = bound(double, contract, inputs) / bound(single, contract, joined)
    assert torch.allclose(ratio, torch.full_like(ratio, 84 / 82), rtol=1e-3)


def test_block_scales_weigh_the_errors_of_their_blocks():
    problem = scaled_mm(6, 7, 256, scaling="1x128/1x128", out_dtype="fp32")
    contract = Contract("fp32", Accumulator(alignment_bits=13, result_bits=13, chunk=32))
    inputs = dict(fills(problem, contract, names=["randn"])[0].inputs)
    whole = bound(problem, contract, inputs)
    for block in (0, 1):  # without the other block's terms
        inputs_of_block = dict(inputs, scale_a=inputs["scale_a"].clone())
        inputs_of_block["scale_a"][:, 1 - block] = 0
        magnitude = reference.magnitude(problem, inputs_of_block)
        part = bound(problem, contract, inputs_of_block)
        assert bool((part < whole).all())
        assert torch.allclose(part / magnitude, torch.full_like(part, 48 * 2.0**-13 * 4), rtol=2e-2)


def test_gelu_is_within_its_bound():
    """Every sign and size of fp32 argument: the fp32 formula, with an erf of torch's, errs by at most GELU_ERROR."""
    x = torch.cat([torch.linspace(-12, 12, 400001), torch.logspace(-30, 2, 20001), -torch.logspace(-30, 2, 20001)])
    right = 0.5 * x.double() * torch.erfc(x.double() * -math.sqrt(0.5))
    gelu = 0.5 * x * (1 + torch.erf(x * 0.7071067811865476))
    used = ((gelu.double() - right).abs() / (GELU_ERROR * x.double().abs()))[x != 0]
    assert 0.05 < float(used.max()) < 1
    slope = (right[1:400001] - right[:400000]) / (x[1:400001] - x[:400000]).double()
    assert 1.12 < float(slope.max()) < GELU_SLOPE


def test_silu_is_within_its_bound():
    """Every sign and size of fp32 argument: the fp32 formula, with an exp that errs by four units, too."""
    x = torch.cat([torch.linspace(-110, 110, 400001), torch.logspace(-30, 2, 20001), -torch.logspace(-30, 2, 20001)])
    right = gemm.silu(x.double())
    for off in (-4 * U, 0.0, 4 * U):
        silu = x / (1 + torch.exp(-x) * (1 + off))
        used = ((silu.double() - right).abs() - SILU_TINY) / (SILU_ERROR * x.double().abs())
        assert float(used[x != 0].max()) < 1
    assert float(used[x != 0].max()) > 0.05
    near = (right[1:400001] - right[:400000]) / (x[1:400001] - x[:400000]).double()
    assert 1.099 < float(near.max()) < SILU_SLOPE


def test_a_gated_product_is_within_its_bound():
    """fp32 arithmetic throughout, over inputs of every fill; and an error of both products that is as large as it may
    be."""
    for dtype in ("fp32", "bf16"):
        problem, contract = dual_mm(24, 28, 40, dtype, out_dtype="fp32"), Contract("fp32", FMA)
        for fill in fills(problem, contract):
            a, b, d = (fill.inputs[name].float() for name in "abd")
            gate, factor = a @ b, a @ d
            out = gate / (1 + torch.exp(-gate)) * factor
            assert bool(((out.double() - fill.expected).abs() <= fill.error + U * fill.expected.abs()).all()), fill.name
        inputs = fills(problem, contract, names=["randn"])[0].inputs
        right, allowed = reference.value(problem, inputs), bound(problem, contract, inputs)
        raw, size = gemm.product(problem, inputs), reference.magnitude(problem, inputs)
        worse = gemm.epilogue(problem, inputs, raw + growth(FMA, 40) * size)
        assert bool(((worse - right).abs() <= allowed).all())
        assert bool(((gemm.epilogue(problem, inputs, raw + 4 * growth(FMA, 40) * size) - right).abs() > allowed).any())


def test_fused_epilogues_carry_the_error():
    contract = Contract("fp32", FMA)

    def of(*epilogue, bias=None):
        problem = fused_mm(12, 14, 40, out_dtype="fp32", fusion=Fusion(None, None, epilogue), bias=bias)
        inputs = fills(problem, contract, names=["randn"])[0].inputs
        return bound(problem, contract, inputs), inputs

    plain, _ = of()
    assert torch.equal(of("relu")[0], plain)
    dropped, inputs = of("dropout")
    assert torch.allclose(dropped[inputs["mask"] != 0], 2 * plain[inputs["mask"] != 0], rtol=1e-5)
    assert float(dropped[inputs["mask"] == 0].max()) < 1e-40
    assert bool((of("residual")[0] > plain).all())
    assert bool((of("gelu")[0] > plain).all())


def test_scales_of_blocks_that_are_part_of_tf32_operands():
    """Both operands are multiplied by their scales and cut to tf32. The error passes the bound of another contract, and
    stays below a bound that is at most four times as large."""
    problem = scaled_mm(24, 32, 384, scaling="1x128/128x128", out_dtype="fp32")
    unit = Accumulator(alignment_bits=25, chunk=4)
    tf32, exact = Contract("fp32", unit, "tf32"), Contract("fp32", unit)
    names = [fill.name for fill in fills(problem, tf32)]
    assert "wide-scales" not in names
    assert "wide-scales" in [fill.name for fill in fills(problem, exact)]
    inputs = {fill.name: fill.inputs for fill in fills(problem, tf32)}["randn"]
    positive = {name: tensor.float().abs().to(tensor.dtype) for name, tensor in inputs.items()}
    factors = gemm.factors(problem, positive, change=lambda name, values: values)
    a, b = ((factor.float().view(torch.int32) & ~0x1FFF).view(torch.float32).double() for factor in factors)
    error = (a @ b - reference.value(problem, positive)).abs()
    assert (error > bound(problem, exact, positive)).all()
    assert (error < bound(problem, tf32, positive)).all()
    assert (4 * error > bound(problem, tf32, positive)).all()


def test_sums_in_fp16_are_within_their_bound():
    """Each step rounded to fp16: positive sums, where errors add up, and sums of subnormals, which round to nothing."""
    problem, contract = mm(6, 7, 40), Contract("fp16", FMA16)
    generator = torch.Generator().manual_seed(0)
    for size in (1.0, 2.0**-11):
        inputs = {name: (size * torch.rand(shape, generator=generator)).half() for name, shape in
                  (("a", (6, 40)), ("b", (40, 7)))}  # fmt: skip
        total = torch.zeros(6, 7, dtype=torch.float16)
        for k in range(40):
            total = (total.double() + inputs["a"][:, k : k + 1].double() * inputs["b"][k].double()).half()
        error = (total.double() - reference.value(problem, inputs)).abs()
        allowed = bound(problem, contract, inputs)
        assert bool((error <= allowed).all())
        assert bool((error > bound(problem, Contract("fp16", FMA), inputs)).any())
        assert float((error / allowed).max()) > 0.02


def test_fills_of_sums_in_fp16_stay_in_fp16():
    """Exact sums are below 2**11 units, and nothing on the way to a bounded one overflows."""
    problem = mm(40, 56, 264)
    narrow = replace(Accumulator(), result_bits=10, dtype="fp16", assumed=True)
    for accumulator in (FMA16, narrow):
        for fill in fills(problem, Contract("fp16", accumulator)):
            if fill.method == "exact":
                assert fill.meta["max_subset_sum_total"] < 2**11
            a, b = (fill.inputs[name].double() for name in "ab")
            size = torch.where(a.isfinite(), a, 0.0).abs() @ torch.where(b.isfinite(), b, 0.0).abs()
            assert float(size.max()) < 65504, fill.name
    wide = {fill.name: fill for fill in fills(problem, Contract("fp16", FMA))}
    a = wide["special"].inputs["a"].double()
    assert float(torch.where(a.isfinite(), a, 0.0).abs().median(1).values.max()) > 2**12, "a row that overflows"
