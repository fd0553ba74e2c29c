import math

import pytest
import torch

from conformance import reference
from conformance.problems import Bias, addmm, mm, scaled_mm


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
    wanted = 2 * torch.tensor(slow(inputs["a"], inputs["b"])).double() - 0.5 * bias.expand(5, 4)
    assert torch.equal(reference.value(problem, inputs), wanted)
    # the magnitude is that of the product alone
    assert reference.magnitude(problem, inputs).tolist() == slow(inputs["a"].abs(), inputs["b"].abs())


@pytest.mark.parametrize("scaling", ["row", "tensor"])
def test_scaled_mm(scaling):
    problem = scaled_mm(5, 4, 7, scaling=scaling, bias=Bias())
    inputs = inputs_of(problem)
    raw = torch.tensor(slow(inputs["a"], inputs["b"])).double()
    wanted = raw * inputs["scale_a"].double() * inputs["scale_b"].double() + inputs["bias"].double()
    assert torch.equal(reference.value(problem, inputs), wanted)


def test_zero_factors_ignore_even_nan():
    inputs = inputs_of(addmm(5, 4, 7))
    nan = {name: torch.full_like(t, math.nan) for name, t in inputs.items()}
    without_bias = addmm(5, 4, 7, beta=0.0)
    assert torch.equal(
        reference.value(without_bias, {**inputs, "bias": nan["bias"]}),
        2 * torch.tensor(slow(inputs["a"], inputs["b"])).double(),
    )
    without_product = addmm(5, 4, 7, alpha=0.0)
    found = reference.value(without_product, {**nan, "bias": inputs["bias"]})
    assert torch.equal(found, 0.5 * inputs["bias"].double().expand(5, 4))
    assert not reference.magnitude(without_product, {**nan, "bias": inputs["bias"]}).any()


@pytest.mark.parametrize(("M", "N", "K"), [(0, 4, 7), (5, 0, 7), (5, 4, 0), (0, 0, 0)])
def test_empty_problems(M, N, K):
    problem = mm(M, N, K)
    found = reference.value(problem, inputs_of(problem))
    assert found.shape == (M, N)
    assert not found.any()
    biased = addmm(M, N, K)
    inputs = inputs_of(biased)
    assert torch.equal(reference.value(biased, inputs), (0.5 * inputs["bias"].double()).expand(M, N))


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
    assert all(reference.freivalds(a, b, c, seed) for seed in range(20))
    for i, j, fault in ((0, 0, 1), (29, 39, -1), (7, 11, 1 << 60)):
        wrong = c.clone()
        wrong[i, j] += fault
        assert not any(reference.freivalds(a, b, wrong, seed) for seed in range(20))
    assert reference.freivalds(a[:0], b, c[:0], 0)
    with pytest.raises(TypeError, match="needs int64"):
        reference.freivalds(a.double(), b, c, 0)
