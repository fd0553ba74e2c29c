"""Problems, meaning, fills and bounds of convolutions."""

import dataclasses
import pickle

import pytest
import torch

from conformance.families.conv.problem import Conv, conv2d, conv3d
from conformance.families.conv.reference import error_bound, magnitude, value
from conformance.families.gemm.integer_budget import BudgetError, check_budget
from conformance.inputs.fills import fill_names, fills
from conformance.numerics.contract import FMA, Accumulator, Contract
from conformance.numerics.rounding import bits, round_to
from conformance.numerics.verdict import AllowedValues, judge
from tests.inputs.fill_quality import check_operands, contract_of

LAST = {"order_x": "channels-last", "order_w": "channels-last", "order_out": "channels-last"}

PROBLEMS = [
    conv2d(2, 20, (7, 6), 24, 3, padding=1),
    conv2d(2, 24, (9, 11), 36, (3, 2), "bf16", padding=(1, 0), stride=(2, 1), groups=2, bias=True),
    conv2d(2, 24, (9, 11), 36, (3, 2), "fp32", padding=2, stride=(1, 3)),
    conv2d(3, 24, (9, 11), 36, (3, 2), "fp32", precision="tf32", bias=True),
    conv2d(2, 3, (12, 11), 20, 7, "bf16", padding=3, bias=True),
    conv2d(2, 12, (6, 7), 24, 2, "fp16", groups=12, padding=1),
    conv2d(2, 21, (6, 7), 24, 1, "fp16", out_dtype="fp32"),
    conv3d(2, 5, (3, 4, 5), 18, (2, 1, 3), padding=(1, 0, 2), stride=(1, 2, 1), bias=True),
    conv2d(2, 20, (9, 8), 24, (3, 2), "bf16", padding=(2, 1), stride=(1, 2), dilation=(2, 3), groups=2),
    conv3d(2, 5, (5, 4, 7), 18, (2, 1, 3), "fp32", padding=(1, 0, 2), dilation=(3, 1, 2), bias=True),
]


def drawn(problem, seed=0):
    generator = torch.Generator().manual_seed(seed)
    return {o.name: torch.randint(-9, 10, o.shape, generator=generator).double() for o in problem.operands}


def unfolded(problem, x, w, bias):
    """By windows of the padded x, gathered whole; independent of the sum over taps."""
    rank = len(problem.size)
    windows = torch.nn.functional.pad(x, [p for pad in reversed(problem.padding) for p in (pad, pad)])
    for axis in range(rank):
        windows = windows.unfold(2 + axis, problem.reach[axis], problem.stride[axis])
    windows = windows[(..., *(slice(None, None, apart) for apart in problem.dilation))]
    letters, taps = "dhw"[:rank], "xyz"[:rank]
    windows = windows.unflatten(1, (problem.groups, -1))
    weights = w.unflatten(0, (problem.groups, -1))
    out = torch.einsum(f"ngc{letters}{taps},goc{taps}->ngo{letters}", windows, weights).flatten(1, 2)
    return out if bias is None else out + bias.reshape(-1, *[1] * rank)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_value_is_that_of_torch_and_of_windows(problem):
    x = drawn(problem)
    convolve = torch.nn.functional.conv2d if problem.op == "conv2d" else torch.nn.functional.conv3d
    result = value(problem, x)
    assert result.shape == problem.output.shape
    operands = x["x"], x["w"], x.get("bias")
    expected = convolve(*operands, problem.stride, problem.padding, problem.dilation, problem.groups)
    assert torch.equal(result, expected)
    assert torch.equal(result, unfolded(problem, *operands))
    sizes = {name: tensor.abs() for name, tensor in x.items()}
    assert torch.equal(magnitude(problem, x), unfolded(problem, sizes["x"], sizes["w"], None))


def test_a_weight_of_nan_meets_padding_or_not():
    problem = conv2d(1, 1, (3, 3), 1, 3, padding=1)
    x = {"x": torch.ones(1, 1, 3, 3), "w": torch.ones(1, 1, 3, 3)}
    x["w"][0, 0, 0, 0] = float("nan")
    assert value(problem, x).isnan().all()
    skipped = value(problem, x, skip_padding=True)[0, 0]
    assert skipped[1:, 1:].isnan().all()
    assert skipped.tolist()[0] == [4.0, 6.0, 4.0]
    assert magnitude(problem, x)[0, 0, 0].tolist() == [4.0, 6.0, 4.0]


@pytest.mark.parametrize("problem", [PROBLEMS[0], PROBLEMS[2], PROBLEMS[7]], ids=lambda problem: problem.id)
def test_kernels_may_skip_padding_or_multiply_it_unless_they_declare_one(problem):
    (fill,) = fills(problem, contract_of(problem), seed=1, names=["special"])
    assert bool((fill.or_nan & fill.expected.isfinite()).any())
    ways = {
        "skipped": value(problem, fill.inputs, skip_padding=True),
        "multiplied": value(problem, fill.inputs),
        "dropped": value(problem, {**fill.inputs, "w": fill.inputs["w"].nan_to_num(0.0, torch.inf, -torch.inf)}),
    }
    accepted = {"open": {"skipped", "multiplied"}, "skipped": {"skipped"}, "multiplied": {"multiplied"}}
    for declared, right in accepted.items():
        contract = dataclasses.replace(contract_of(problem), hidden_nan=declared)
        (fill,) = fills(problem, contract, seed=1, names=["special"])
        outputs = {way: round_to(wide, problem.output_dtype) for way, wide in ways.items()}
        assert {way for way, out in outputs.items() if judge(problem, contract, fill, out).passed} == right
        # on a device the limits of several fills are one: the same verdicts
        others = [*fills(problem, contract, seed=1, names=["transparent", "randn"]), fill]
        limits = AllowedValues.of(problem, contract, others, problem.output.name)
        for way, out in outputs.items():
            runs = torch.stack([round_to(other.expected, problem.output_dtype) for other in others[:-1]] + [out])
            wrong, _ = limits.judge(bits(runs).unsqueeze(1))
            assert wrong[:, 0].tolist() == [False, False, way not in right]


def test_operands_must_be_there_and_fit():
    problem = PROBLEMS[1]
    inputs = drawn(problem)
    with pytest.raises(KeyError, match="needs the input 'bias'"):
        value(problem, {"x": inputs["x"], "w": inputs["w"]})
    with pytest.raises(ValueError, match="'w' has shape"):
        value(problem, {**inputs, "w": inputs["w"][1:]})


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda problem: problem.id)
def test_fills_hold_what_they_promise(problem):
    contract = contract_of(problem)
    every_fill = fills(problem, contract, seed=3)
    assert tuple(fill.name for fill in every_fill) == fill_names(problem)
    for fill in every_fill:
        check_operands(problem, fill)
        assert torch.equal(fill.expected, value(problem, fill.inputs)) or fill.name == "special"
        rounded = round_to(fill.expected, problem.output_dtype).double()
        assert (rounded != 0).double().mean() > 0.5
        if fill.method != "exact":
            finite = fill.expected.isfinite()
            assert finite.double().mean() > 0.2
            assert bool((fill.error[finite & (fill.expected != 0)] > 0).all())
            assert bool(finite.all()) == (fill.name != "special")
            continue
        assert fill.error is None
        assert fill.meta["max_subset_sum"] < 2 ** fill.meta["budget_bits"]
        assert torch.equal(round_to(fill.expected, "fp32").double(), fill.expected)
        if fill.name == "transparent":
            assert torch.equal(rounded, fill.expected)
        # another order of summation, in fp32: all of it is exact
        single = unfolded(problem, *(fill.inputs[name].float() for name in "xw"), None)
        if "bias" in fill.inputs:
            single = single + fill.inputs["bias"].float().reshape(-1, *[1] * len(problem.size))
        assert torch.equal(single.double(), fill.expected)


def test_wide_fills_use_their_budget():
    for problem in (PROBLEMS[0], PROBLEMS[3], PROBLEMS[7]):
        for fill in fills(problem, contract_of(problem), names=["wide-A", "wide-B"]):
            assert fill.meta["max_subset_sum"] > 2 ** (fill.meta["budget_bits"] - 2)


def test_one_window_sees_one_element_where_no_more_fits():
    problem = PROBLEMS[2]
    (fill,) = fills(problem, contract_of(problem), names=["wide-B"])
    seen = value(problem, {"x": (fill.inputs["x"] != 0).double(), "w": torch.ones_like(fill.inputs["w"])})
    assert int(seen.max()) == 1
    assert (seen == 1).double().mean() > 0.5


def test_too_large_sums_are_refused():
    problem = PROBLEMS[0]
    with pytest.raises(BudgetError, match=r"max\(P, N\) is \d+ units"):
        check_budget(problem.product, contract_of(problem), "x", 2**24, 2**24)


def test_fills_do_not_depend_on_layouts_but_on_the_seed():
    problem = PROBLEMS[1]
    other = dataclasses.replace(problem, **LAST, pad=3, batch_pad=5)
    assert other.dense == problem
    for first, same, seeded in zip(
        fills(problem, contract_of(problem)),
        fills(other, contract_of(other)),
        fills(problem, contract_of(problem), seed=1),
        strict=True,
    ):
        assert all(torch.equal(first.inputs[name].double(), same.inputs[name].double()) for name in "xw") or (
            first.name == "special"
        )
        assert not torch.equal(first.inputs["x"].double(), seeded.inputs["x"].double())


def test_an_empty_batch_has_one_fill():
    problem = conv2d(0, 4, 5, 6, 3, bias=True)
    (fill,) = fills(problem, contract_of(problem))
    assert fill.expected.shape == (0, 6, 3, 3)
    assert judge(problem, contract_of(problem), fill, torch.empty(0, 6, 3, 3, dtype=torch.float16)).passed


def test_unknown_fills_and_other_contracts():
    problem = PROBLEMS[0]
    with pytest.raises(ValueError, match=r"\['far'\] are unknown"):
        fills(problem, contract_of(problem), names=["far"])
    with pytest.raises(ValueError, match="its contract says bf16"):
        fills(problem, Contract("bf16", Accumulator()))


@pytest.mark.parametrize("problem", PROBLEMS[:4], ids=lambda problem: problem.id)
def test_the_bound_takes_fp32_sums_and_refuses_narrow_ones(problem):
    """Summed in fp32 in another order every bounded fill passes; through operands of 9 bits none does."""
    contract = contract_of(problem)
    for fill in fills(problem, contract, names=["randn", "hot", "special"]):
        bias = fill.inputs.get("bias")
        x, w = (fill.inputs[name].float() for name in "xw")
        out = unfolded(problem, x, w, None if bias is None else bias.float())
        assert judge(problem, contract, fill, round_to(out.double(), problem.output_dtype)).passed
        narrow = round_to(round_to(x.double(), "e5m2").double(), "fp32")
        out = unfolded(problem, narrow, w, None if bias is None else bias.float())
        assert not judge(problem, contract, fill, round_to(out.double(), problem.output_dtype)).passed


def test_subnormal_operands_count_as_the_smallest_normal():
    problem = conv2d(1, 16, 4, 8, 1)
    tiny = {"x": torch.full((1, 16, 4, 4), 2.0**-24).half(), "w": torch.ones(8, 16, 1, 1).half()}
    expected = value(problem, tiny)
    wide, plain = (error_bound(problem, contract_of(problem, unit), expected, tiny) for unit in (Accumulator(), FMA))
    assert float((wide / plain).min()) > 100


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (lambda: Conv("conv1d", 1, 1, (1,), 1, (1,), (1,), (0,)), "unknown"),
        (lambda: conv2d(1, 1, (4, 4, 4), 1, 1), "2 numbers >= 1"),
        (lambda: conv2d(1, 1, 4, 1, 1, stride=0), "stride"),
        (lambda: conv2d(1, 1, 4, 1, 1, padding=-1), "padding"),
        (lambda: conv2d(-1, 1, 4, 1, 1), "batch"),
        (lambda: conv2d(1, 0, 4, 1, 1), "channels"),
        (lambda: conv2d(1, 6, 4, 8, 1, groups=4), "must divide both"),
        (lambda: conv2d(1, 1, 4, 1, 5), "does not fit"),
        (lambda: conv2d(1, 1, 4, 1, 1, "int4"), "int4"),
        (lambda: conv2d(1, 1, 4, 1, 1, order_x="nhwc"), "nhwc"),
        (lambda: conv2d(1, 1, 4, 1, 1, precision="high"), "precision"),
        (lambda: conv2d(1, 1, 4, 1, 1, batch_pad=-1), "batch_pad"),
    ],
)
def test_problems_that_make_no_sense(make, says):
    with pytest.raises(ValueError, match=says):
        make()


def test_problems_have_ids_of_their_own_and_lie_as_asked():
    plain = conv2d(2, 6, (4, 5), 8, (3, 2), bias=True)
    variants = [
        plain,
        dataclasses.replace(plain, bias=False),
        dataclasses.replace(plain, stride=(2, 1)),
        dataclasses.replace(plain, padding=(0, 1)),
        dataclasses.replace(plain, groups=2),
        dataclasses.replace(plain, order_x="channels-last"),
        dataclasses.replace(plain, pad=1),
        dataclasses.replace(plain, batch_pad=1),
        dataclasses.replace(plain, out_dtype="fp32"),
        dataclasses.replace(plain, dtype="fp32"),
        dataclasses.replace(plain, dtype="fp32", precision="tf32"),
    ]
    assert len({problem.id for problem in variants}) == len(variants)
    assert all(pickle.loads(pickle.dumps(problem)) == problem for problem in variants)
    last = dataclasses.replace(plain, **LAST, pad=2, batch_pad=3)
    assert last.operand("x").strides == (4 * 5 * 8 + 3, 1, 5 * 8, 8)
    assert last.operand("w").strides == (3 * 2 * 8, 1, 2 * 8, 8)
    assert plain.operand("x").strides == (120, 20, 5, 1)
    assert (plain.product.M, plain.product.N, plain.product.K) == (2 * 2 * 4, 8, 36)
