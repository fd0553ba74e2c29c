"""Problems, meaning and fills of transposed convolutions."""

import pytest
import torch

from conformance.families.conv.problem import conv2d, conv_transpose2d, input_gradient
from conformance.families.conv.reference import magnitude, value
from conformance.inputs.fills import fill_names, fills
from conformance.numerics.rounding import round_to
from conformance.numerics.verdict import judge
from tests.inputs.fill_quality import contract_of

LAST = {"order_x": "channels-last", "order_w": "channels-last", "order_out": "channels-last"}
PROBLEMS = [
    conv_transpose2d(2, 20, (7, 6), 24, 3, padding=1, stride=2, output_padding=1),
    conv_transpose2d(
        2, 24, (4, 5), 36, (3, 2), "bf16", stride=(2, 3), padding=(1, 0), output_padding=(1, 2), dilation=(1, 2),
        groups=2, bias=True, **LAST,
    ),
    conv_transpose2d(2, 24, (5, 4), 36, (2, 3), "fp32", stride=(2, 3), padding=(1, 2), dilation=(4, 2)),
    conv_transpose2d(2, 3, (6, 5), 20, (2, 4), "fp32", precision="tf32", groups=1, padding=(1, 3)),
    conv_transpose2d(2, 12, (6, 7), 24, 2, groups=12, stride=(1, 2)),
]  # fmt: skip


def drawn(problem):
    generator = torch.Generator().manual_seed(0)
    return {o.name: torch.randint(-9, 10, o.shape, generator=generator).double() for o in problem.operands}


def scattered(problem, x, w):
    """Every element of x adds to the outputs that it meets: independent of which tap an output asks."""
    groups, channels, columns = problem.groups, problem.group_channels, problem.out_channels // problem.groups
    padded = [size + 2 * pad for size, pad in zip(problem.out_size, problem.padding, strict=True)]
    total = torch.zeros(problem.batch, groups, columns, *padded, dtype=torch.float64)
    x, w = (
        x.reshape(problem.batch, groups, channels, *problem.size),
        w.reshape(groups, channels, columns, *problem.kernel),
    )
    for kh in range(problem.kernel[0]):
        for kw in range(problem.kernel[1]):
            where = tuple(
                slice(tap * apart, tap * apart + (size - 1) * step + 1, step)
                for tap, apart, size, step in zip((kh, kw), problem.dilation, problem.size, problem.stride, strict=True)
            )
            total[(..., *where)] += torch.einsum("ngchw,gco->ngohw", x, w[..., kh, kw])
    cut = tuple(slice(pad, pad + size) for pad, size in zip(problem.padding, problem.out_size, strict=True))
    return total[(..., *cut)].flatten(1, 2)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_value_is_that_of_torch_and_of_scattering(problem):
    t = drawn(problem)
    geometry = problem.stride, problem.padding, problem.output_padding, problem.groups, problem.dilation
    result = value(problem, t)
    assert torch.equal(result, torch.nn.functional.conv_transpose2d(t["x"], t["w"], t.get("bias"), *geometry))
    bias = t["bias"].reshape(-1, 1, 1) if problem.bias else 0.0
    assert torch.equal(result, scattered(problem, t["x"], t["w"]) + bias)
    assert torch.equal(magnitude(problem, t), scattered(problem, t["x"].abs(), t["w"].abs()))


@pytest.mark.parametrize(
    "forward",
    [
        conv2d(2, 6, (11, 9), 8, (3, 2), "fp32", stride=(3, 2), padding=(1, 0)),
        conv2d(2, 6, (3, 2), 8, (5, 4), "fp32", stride=(1, 2), padding=(2, 3), groups=2),
        conv2d(2, 6, (9, 8), 6, (3, 2), "fp32", stride=(2, 1), dilation=(2, 3), groups=6),
    ],
    ids=lambda problem: problem.id,
)
def test_gradient_for_the_image_is_that_of_autograd(forward):
    t, problem = drawn(forward), input_gradient(forward)
    x = t["x"].requires_grad_()
    out = torch.nn.functional.conv2d(x, t["w"], None, forward.stride, forward.padding, forward.dilation, forward.groups)
    upstream = torch.randint(-9, 10, out.shape).double()
    (gradient,) = torch.autograd.grad(out, x, upstream)
    assert torch.equal(value(problem, {"x": upstream, "w": t["w"]}), gradient)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_right_results_pass_every_fill(problem):
    contract = contract_of(problem)
    every = fills(problem, contract, seed=3)
    assert [fill.name for fill in every] == list(fill_names(problem))
    for fill in every:
        assert judge(problem, contract, fill, round_to(fill.expected, problem.output.dtype)).passed


def test_an_output_padding_of_a_whole_stride_is_refused():
    with pytest.raises(ValueError, match="output_padding"):
        conv_transpose2d(1, 4, 4, 4, 2, stride=2, output_padding=2)
