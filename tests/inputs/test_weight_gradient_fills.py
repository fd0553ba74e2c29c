"""Problems, meaning and fills of gradients of convolutions for their weights and their bias."""

import pytest
import torch

from conformance.families.conv import reference as conv
from conformance.families.conv.problem import conv2d, conv3d
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.families.weight_gradient.reference import factors, joined, magnitude, matrices, value
from conformance.inputs.fills import fill_names, fills
from conformance.numerics.rounding import round_to
from conformance.numerics.verdict import judge
from tests.inputs.fill_quality import contract_of

LAST = {"order_x": "channels-last", "order_w": "channels-last", "order_out": "channels-last"}
PROBLEMS = [
    WeightGradient(forward)
    for forward in (
        conv2d(2, 20, (7, 6), 24, 3, padding=1, bias=True),
        conv2d(3, 8, (9, 8), 36, (3, 2), "bf16", stride=(2, 1), padding=(1, 0), dilation=(1, 2), groups=2, **LAST),
        conv2d(2, 24, (5, 4), 36, (2, 3), "fp32", stride=(2, 3), padding=(1, 2), bias=True),
        conv2d(5, 6, (6, 5), 20, (2, 4), "fp32", precision="tf32", padding=(3, 3), stride=(3, 1)),
        conv2d(2, 12, (6, 7), 24, (3, 2), groups=12, stride=(1, 2), padding=(1, 0), bias=True),
    )
]


def drawn(problem):
    generator = torch.Generator().manual_seed(0)
    return {o.name: torch.randint(-9, 10, o.shape, generator=generator).double() for o in problem.operands}


def of_torch(forward, x, grad_out):
    """grad_w and grad_bias by torch's own operation."""
    w = torch.zeros(forward.weights_shape, dtype=torch.float64)
    geometry = forward.stride, forward.padding, forward.dilation, False, [0, 0], forward.groups
    bias_sizes = [forward.out_channels]
    mask = [False, True, True]
    return torch.ops.aten.convolution_backward(grad_out, x, w, bias_sizes, *geometry, mask)[1:]


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_value_is_that_of_torch(problem):
    t = drawn(problem)
    grad_w, _ = of_torch(problem.forward, t["x"], t["grad_out"])
    assert torch.equal(value(problem, t), grad_w)
    sizes = of_torch(problem.forward, t["x"].abs(), t["grad_out"].abs())
    assert torch.equal(magnitude(problem, t), sizes[0])
    total = torch.stack([a @ b for a, b in factors(problem, t)])
    assert torch.equal(total, matrices(problem, grad_w))
    assert torch.equal(joined(problem, total), grad_w)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_the_correlation_has_the_same_sums(problem):
    t, same = drawn(problem), problem.correlation
    exchanged = {"x": problem.correlated("x", t["x"]), "w": problem.correlated("grad_out", t["grad_out"])}
    assert same.product.K == problem.product.K
    assert torch.equal(problem.correlated("grad_w", value(problem, t)), conv.value(same, exchanged))
    for name, other in (("x", "x"), ("grad_out", "w")):
        assert torch.equal(problem.stored(name, exchanged[other]), t[name])


def test_without_an_image_the_gradients_are_zero():
    problem = WeightGradient(conv2d(0, 4, (5, 4), 6, 3, bias=True))
    (fill,) = fills(problem, contract_of(problem), seed=3)
    assert fill.inputs["x"].shape == (0, 4, 5, 4)
    for name, shape in (("grad_w", (6, 4, 3, 3)), ("grad_bias", (6,))):
        assert torch.equal(fill.of(name).expected, torch.zeros(shape, dtype=torch.float64))
        assert fill.of(name).method == "exact"


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_right_results_pass_every_fill(problem):
    contract = contract_of(problem)
    every = fills(problem, contract, seed=3)
    assert [fill.name for fill in every] == list(fill_names(problem))
    for fill in every:
        for operand in problem.outputs:
            part = fill.of(operand.name)
            assert tuple(part.expected.shape) == operand.shape
            assert judge(problem, contract, fill, round_to(part.expected, operand.dtype), operand.name).passed
        grad_w, grad_bias = of_torch(problem.forward, fill.inputs["x"].double(), fill.inputs["grad_out"].double())
        if fill.method == "exact":
            assert torch.equal(fill.expected, grad_w)
        if problem.bias and fill.of("grad_bias").method == "exact":
            assert torch.equal(fill.of("grad_bias").expected, grad_bias)


@pytest.mark.parametrize("problem", [problem for problem in PROBLEMS if problem.bias], ids=lambda problem: problem.id)
def test_a_wrong_bias_gradient_shows_in_every_fill(problem):
    contract, shown = contract_of(problem), []
    for fill in fills(problem, contract, seed=3):
        without_last = fill.inputs["grad_out"].clone()
        without_last[-1, :, -1, -1] = 0
        out = round_to(without_last.double().sum((0, 2, 3)), problem.out_dtype)
        shown.append(not judge(problem, contract, fill, out, "grad_bias").passed)
    assert any(shown), shown


def test_a_convolution_in_three_dimensions_is_refused():
    with pytest.raises(ValueError, match="conv3d"):
        WeightGradient(conv3d(1, 4, 4, 4, 2))


def test_ids_and_layouts_are_those_of_the_convolution():
    forward = conv2d(2, 24, (13, 11), 40, 3, "bf16", stride=(2, 1), padding=1, groups=2, bias=True, pad=3, **LAST)
    problem = WeightGradient(forward)
    assert problem.id == forward.id.replace("conv2d", "conv2d_weight_gradient")
    assert problem.op == "conv2d_weight_gradient"
    pairs = (("x", "x"), ("grad_out", "out"), ("grad_w", "w"), ("grad_bias", "bias"))
    for name, of_forward in pairs:
        mine, other = problem.operand(name), forward.operand(of_forward)
        assert (mine.shape, mine.strides, mine.dtype) == (other.shape, other.strides, other.dtype)
    assert [operand.name for operand in problem.outputs] == ["grad_w", "grad_bias"]
    assert problem.dense.forward == forward.dense
