import math

import pytest
import torch

from conformance import reference
from conformance.families.gemm import reference as gemm
from conformance.families.gemm.problem import (
    Bias,
    Fusion,
    addmm,
    baddbmm,
    bmm,
    dual_mm,
    fused_mm,
    int_mm,
    mixed_mm,
    mm,
    mm_plus_mm,
    scaled_mm,
)


def integers(*shape, dtype=torch.float16, seed=0):
    return torch.randint(-9, 10, shape, generator=torch.Generator().manual_seed(seed)).to(dtype)


def inputs_of(problem):
    shapes = {operand.name: operand for operand in problem.operands}
    return {
        name: integers(*o.shape, dtype=torch.float32, seed=len(name)).to(torch.float16) for name, o in shapes.items()
    }


def slow(a, b):
    a, b = a.tolist(), b.tolist()
    return [[sum(x * y for x, y in zip(row, column, strict=True)) for column in zip(*b, strict=True)] for row in a]


def test_mm_and_magnitude_by_hand():
    problem = mm(5, 4, 7)
    inputs = inputs_of(problem)
    assert reference.value(problem, inputs).tolist() == slow(inputs["a"], inputs["b"])
    assert reference.magnitude(problem, inputs).tolist() == slow(inputs["a"].abs(), inputs["b"].abs())
    assert reference.value(problem, inputs).dtype == torch.float64


@pytest.mark.parametrize("kind", ["n", "1n", "m1", "mn"])
def test_addmm_broadcasts_its_bias(kind):
    problem = addmm(5, 4, 7, bias=Bias(kind), alpha=2.0, beta=-0.5)
    inputs = inputs_of(problem)
    bias = inputs["bias"].double()
    expected = 2 * torch.tensor(slow(inputs["a"], inputs["b"])).double() - 0.5 * bias.expand(5, 4)
    assert torch.equal(reference.value(problem, inputs), expected)
    # the magnitude is that of the product alone
    assert reference.magnitude(problem, inputs).tolist() == slow(inputs["a"].abs(), inputs["b"].abs())


@pytest.mark.parametrize("scaling", ["row", "tensor"])
def test_scaled_mm(scaling):
    problem = scaled_mm(5, 4, 7, scaling=scaling, bias=Bias())
    inputs = inputs_of(problem)
    raw = torch.tensor(slow(inputs["a"], inputs["b"])).double()
    expected = raw * inputs["scale_a"].double() * inputs["scale_b"].double() + inputs["bias"].double()
    assert torch.equal(reference.value(problem, inputs), expected)


def test_zero_factors_ignore_even_nan():
    inputs = inputs_of(addmm(5, 4, 7))
    nan = {name: torch.full_like(t, math.nan) for name, t in inputs.items()}
    without_bias = addmm(5, 4, 7, beta=0.0)
    assert torch.equal(
        reference.value(without_bias, {**inputs, "bias": nan["bias"]}),
        4 * torch.tensor(slow(inputs["a"], inputs["b"])).double(),
    )
    without_product = addmm(5, 4, 7, alpha=0.0)
    result = reference.value(without_product, {**nan, "bias": inputs["bias"]})
    assert torch.equal(result, -0.5 * inputs["bias"].double().expand(5, 4))
    assert not reference.magnitude(without_product, {**nan, "bias": inputs["bias"]}).any()


@pytest.mark.parametrize(("M", "N", "K"), [(0, 4, 7), (5, 0, 7), (5, 4, 0), (0, 0, 0)])
def test_empty_problems(M, N, K):
    problem = mm(M, N, K)
    result = reference.value(problem, inputs_of(problem))
    assert result.shape == (M, N)
    assert not result.any()
    biased = addmm(M, N, K)
    inputs = inputs_of(biased)
    assert torch.equal(reference.value(biased, inputs), (-0.5 * inputs["bias"].double()).expand(M, N))


def of(inputs, *names):
    return [torch.tensor(inputs[name].tolist()).double() for name in names]


def test_sum_of_two_products():
    problem = mm_plus_mm(5, 4, 7)
    inputs = {name: integers(*problem.operand(name).shape, seed=seed) for seed, name in enumerate("abcd")}
    a, b, c, d = (inputs[name] for name in "abcd")
    expected = torch.tensor(slow(a, b)) + torch.tensor(slow(c, d))
    assert reference.value(problem, inputs).tolist() == expected.tolist()
    sizes = torch.tensor(slow(a.abs(), b.abs())) + torch.tensor(slow(c.abs(), d.abs()))
    assert reference.magnitude(problem, inputs).tolist() == sizes.tolist()


def test_gated_product():
    problem = dual_mm(5, 4, 7)
    inputs = {name: integers(*problem.operand(name).shape, seed=seed) for seed, name in enumerate("abd")}
    a, b, d = (inputs[name] for name in "abd")
    gate, factor = torch.tensor(slow(a, b)).double(), torch.tensor(slow(a, d)).double()
    result = reference.value(problem, inputs)
    assert torch.allclose(result, torch.nn.functional.silu(gate) * factor, rtol=1e-14, atol=1e-300)
    sizes = reference.magnitude(problem, inputs)
    assert sizes.tolist() == torch.cat([torch.tensor(slow(a.abs(), other.abs())) for other in (b, d)], 1).tolist()
    assert not reference.value(dual_mm(5, 4, 0), {"a": a[:, :0], "b": b[:0], "d": d[:0]}).any()


@pytest.mark.parametrize("kind", ["n", "1n", "m1", "mn", "b1n", "bmn"])
def test_batches(kind):
    problem = baddbmm(5, 4, 7, batch=3, bias=Bias(kind), alpha=2.0, beta=-0.5)
    inputs = inputs_of(problem)
    bias = inputs["bias"].double().expand(3, 5, 4)
    result = reference.value(problem, inputs)
    for z in range(3):
        raw = torch.tensor(slow(inputs["a"][z], inputs["b"][z])).double()
        assert torch.equal(result[z], 2 * raw - 0.5 * bias[z])
    plain = reference.value(bmm(5, 4, 7), {name: inputs[name] for name in "ab"})
    assert torch.equal(plain[2], torch.tensor(slow(inputs["a"][2], inputs["b"][2])).double())
    assert reference.value(bmm(5, 4, 0), inputs_of(bmm(5, 4, 0))).shape == (3, 5, 4)


def test_integer_operands():
    a, b = integers(5, 7, dtype=torch.int8), integers(7, 4, dtype=torch.int8, seed=1)
    assert reference.value(int_mm(5, 4, 7), {"a": a, "b": b}).tolist() == slow(a, b)
    assert reference.value(mixed_mm(5, 4, 7), {"a": a.half(), "b": b}).tolist() == slow(a, b)
    assert reference.value(mixed_mm(5, 4, 7, b_dtype="uint8"), {"a": a.half(), "b": b.abs().byte()}).tolist() == slow(
        a, b.abs()
    )


@pytest.mark.parametrize("scaling", ["1x128/1x128", "1x128/128x128", "128x128/1x128"])
def test_scales_of_blocks(scaling):
    problem = scaled_mm(130, 131, 260, scaling=scaling, bias=Bias())
    inputs = {o.name: integers(*o.shape, dtype=torch.float32, seed=len(o.name)) for o in problem.operands}
    a, b, scale_a, scale_b, bias = of(inputs, "a", "b", "scale_a", "scale_b", "bias")
    result = reference.value(problem, inputs)
    sizes = reference.magnitude(problem, inputs)
    per_row, per_column = (kind == "1x128" for kind in scaling.split("/"))
    for m, n in ((0, 0), (127, 128), (128, 127), (129, 130)):
        terms = [
            a[m, k]
            * b[k, n]
            * scale_a[m if per_row else m // 128, k // 128]
            * scale_b[k // 128, n if per_column else n // 128]
            for k in range(260)
        ]
        assert float(result[m, n]) == sum(terms) + bias[n]
        assert float(sizes[m, n]) == sum(abs(term) for term in terms)


def test_prologues():
    stored = torch.tensor([[1 + 2.0**-9, 3.0], [1 + 2.0**-8 + 2.0**-20, -5.0]])
    b = torch.eye(2).bfloat16()
    cast = fused_mm(2, 2, 2, "bf16", fusion=Fusion("cast", "fp32"))
    # to the nearest even of 8 bits: down to 1, and up past the midpoint
    assert gemm.product(cast, {"a": stored, "b": b}).tolist() == [[1.0, 3.0], [1 + 2.0**-7, -5.0]]
    scale = fused_mm(2, 2, 2, "bf16", fusion=Fusion("scale"))
    inputs = {
        "a": torch.tensor([[1.0, 3.0], [1.5, -5.0]]).bfloat16(),
        "b": b,
        "row_scale": torch.tensor([3.0, 1 + 2.0**-8]),
    }
    assert gemm.product(scale, inputs).tolist() == [[3.0, 9.0], [1.5078125, -5.03125]]
    gather = fused_mm(2, 2, 2, "bf16", fusion=Fusion("gather"))
    rows = torch.tensor([6, 2], dtype=torch.int32)
    many = integers(7, 2, dtype=torch.bfloat16)
    assert torch.equal(gemm.product(gather, {"a": many, "b": b, "rows": rows}), many[[6, 2]].double())
    double = fused_mm(2, 2, 2, "bf16", fusion=Fusion("cast", "fp64"))
    with pytest.raises(ValueError, match="store A in fp32 or narrower"):
        gemm.product(double, {"a": stored.double(), "b": b})


def test_fused_epilogue_keeps_its_order():
    def value(*epilogue):
        problem = fused_mm(1, 4, 1, fusion=Fusion(None, None, epilogue), bias=Bias() if "bias" in epilogue else None)
        everything = {
            "a": torch.ones(1, 1).half(),
            "b": torch.tensor([[-3.0, -1.0, 2.0, 5.0]]).half(),
            "bias": torch.tensor([2.0, 2.0, -3.0, 1.0]).half(),
            "residual": torch.tensor([[-1.0, 1.0, 10.0, 20.0]]).half(),
            "mask": torch.tensor([[1, 1, 0, 7]], dtype=torch.uint8),
        }
        return reference.value(problem, {o.name: everything[o.name] for o in problem.operands})[0].tolist()

    assert value("bias", "relu") == [0, 1, 0, 6]
    assert value("relu", "bias") == [2, 2, -1, 6]
    assert value("relu", "residual") == [-1, 1, 12, 25]
    assert value("residual", "relu") == [0, 0, 12, 25]
    assert value("dropout", "residual") == [-7, -1, 10, 30]
    assert value("residual", "dropout") == [-8, 0, 0, 50]
    assert value("gelu") == pytest.approx(
        [-0.0040496940948, -0.1586552539315, 1.9544997361036, 4.9999985667424], rel=1e-11
    )


def test_bad_inputs_are_named():
    problem = mm(5, 4, 7)
    inputs = inputs_of(problem)
    with pytest.raises(KeyError, match="needs the input 'b'"):
        reference.value(problem, {"a": inputs["a"]})
    with pytest.raises(ValueError, match=r"'a' has shape \(7, 5\), it must have \(5, 7\)"):
        reference.value(problem, {**inputs, "a": inputs["a"].T})


def test_freivalds():
    a, b = (integers(*shape, dtype=torch.int64, seed=3) << 30 for shape in ((30, 20), (20, 40)))
    c = (a.unsqueeze(2) * b.unsqueeze(0)).sum(1)
    assert all(gemm.freivalds(a, b, c, seed) for seed in range(20))
    for i, j, fault in ((0, 0, 1), (29, 39, -1), (7, 11, 1 << 60)):
        wrong = c.clone()
        wrong[i, j] += fault
        assert not any(gemm.freivalds(a, b, wrong, seed) for seed in range(20))
    assert gemm.freivalds(a[:0], b, c[:0], 0)
    with pytest.raises(TypeError, match="needs int64"):
        gemm.freivalds(a.double(), b, c, 0)
