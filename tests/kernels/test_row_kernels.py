"""Functions of rows: what problems and kernels refuse, their grid, their fills, and what an output needs."""

import dataclasses
import pickle

import numpy as np
import pytest
import torch

from conformance import reference, targets
from conformance.families.family import family_of
from conformance.families.gemm.problem import mm
from conformance.families.rows import functions
from conformance.families.rows.cross_entropy import IGNORED, LOSSES, SMOOTHING
from conformance.families.rows.dropout import DROPOUT, uniform
from conformance.families.rows.elementwise import ELEMENTWISE
from conformance.families.rows.indexing import INDEXED
from conformance.families.rows.narrow import NARROW
from conformance.families.rows.norm_gradients import NORM_GRADIENTS
from conformance.families.rows.ordering import ORDERS
from conformance.families.rows.problem import RowProblem
from conformance.families.rows.quantisation import QUANTISATIONS
from conformance.families.rows.reductions import REDUCTIONS, ROW_MAX
from conformance.families.rows.reference import evaluated
from conformance.families.rows.rotary import ROTATIONS
from conformance.heuristics.configs import RowConfig
from conformance.inputs.fills import REGISTERED, FillError, fill_set, fills, register_fills
from conformance.judging.plan_rules import expected_grid
from conformance.kernels import catalogue
from conformance.kernels.kernel import NotApplicable, Variant
from conformance.kernels.refusal_rules import objection
from conformance.numerics.contract import FMA, Contract
from conformance.problems import Layout
from conformance.records import ReasonCode

HOPPER = targets.find("sm_90")
CONFIG = RowConfig(4, 32, 1, 1)
WITH_TORCH = (
    *(*functions.NORMALISATIONS, *ELEMENTWISE, *ROTATIONS, *LOSSES, *REDUCTIONS, *NORM_GRADIENTS),
    *(*INDEXED, *ORDERS, DROPOUT),
)
EVERY = (*WITH_TORCH, *QUANTISATIONS, *NARROW)
ROWS = [kernel for kernel in catalogue.own_kernels().values() if kernel.family == "rows"]


@pytest.mark.parametrize("kernel", ROWS, ids=lambda kernel: kernel.name)
@pytest.mark.parametrize(
    ("config", "variant", "code", "subject"),
    [
        (RowConfig(3, 32, 1, 1), Variant(), ReasonCode.CONFIG, "block size"),
        (RowConfig(4, 48, 1, 1), Variant(), ReasonCode.CONFIG, "block size"),
        (CONFIG, Variant(flatten=True), ReasonCode.CONFIG, "variant"),
    ],
)
def test_typed_reason(kernel, config, variant, code, subject):
    problem = kernel.problem("fp16", 9, 40)
    with pytest.raises(NotApplicable) as refused:
        kernel.plan(problem, config, HOPPER, variant)
    reason = refused.value.reason
    assert (reason.code, reason.subject) == (code, subject), str(reason)
    assert objection(kernel, kernel.draft(problem, config, HOPPER, variant), reason) is None
    assert objection(kernel, kernel.draft(problem, CONFIG, HOPPER, Variant(static=True)), reason) is not None


@pytest.mark.parametrize("kernel", ROWS, ids=lambda kernel: kernel.name)
def test_grid_and_other_problems(kernel):
    plan = kernel.plan(kernel.problem("bf16", 9, 40), CONFIG, HOPPER)
    assert plan.grid == expected_grid(kernel, plan, 0) == (3,)
    assert kernel.refusal(kernel.draft(mm(64, 64, 64), CONFIG, HOPPER)).code is ReasonCode.OPERATION
    assert pickle.loads(pickle.dumps(plan)) == plan


@pytest.mark.parametrize(
    ("field", "value", "text"),
    [
        ("dtype", "int8", "dtype 'int8' is unknown"),
        ("rows", -1, "rows is -1"),
        ("columns", -2, "columns is -2"),
        ("eps", 0.0, "eps is 0.0: it must be positive"),
    ],
)
def test_a_problem_that_has_no_result_is_refused(field, value, text):
    with pytest.raises(ValueError, match=text):
        dataclasses.replace(RowProblem(functions.SOFTMAX, 3, 4), **{field: value})


def rotated(x, neighbours):
    """Returns x with its pairs of columns turned as complex numbers."""
    half = x["cos"].shape[1]
    pairs = x["x"][:, : 2 * half].reshape(-1, half, 2) if neighbours else x["x"][:, : 2 * half].reshape(-1, 2, half).mT
    turned = torch.view_as_real(torch.view_as_complex(pairs.contiguous()) * torch.complex(x["cos"], x["sin"]))
    turned = turned if neighbours else turned.mT
    return torch.cat([turned.reshape(-1, 2 * half), x["x"][:, 2 * half :]], 1)


def loss(x, smoothing):
    target = x["target"].long()
    return torch.nn.functional.cross_entropy(
        x["x"], target, ignore_index=IGNORED, label_smoothing=smoothing, reduction="none"
    )


def loss_gradient(x, smoothing):
    """Returns the gradient by its formula, since lse is an operand."""
    target = x["target"].long()[:, None]
    counts = target != IGNORED
    weight = torch.zeros_like(x["x"]).scatter(1, target.clamp(min=0), 1 - smoothing) + smoothing / x["x"].shape[1]
    return torch.where(counts, ((x["x"] - x["lse"][:, None]).exp() - weight) * x["grad"][:, None], 0.0)


def norm_gradient(x):
    """Returns the gradient by its formula, since the mean and the root are operands."""
    mean, rstd = x.get("mean", torch.zeros_like(x["rstd"]))[:, None], x["rstd"][:, None]
    y, g = (x["x"] - mean) * rstd, x["grad"] * x["weight"]
    even = g.mean(1, keepdim=True) if "mean" in x else 0.0
    return (g - y * (y * g).mean(1, keepdim=True) - even) * rstd


def dropped(x):
    """Returns x with the elements that Triton's random numbers drop."""
    numbers = uniform(int(x["seed"]), np.arange(x["x"].numel(), dtype=np.uint64))
    keep = torch.from_numpy(numbers).reshape(x["x"].shape) >= x["p"].float()
    return torch.where(keep, x["x"] / (1 - x["p"]), 0.0)


TORCH = {
    "gather": lambda x: x["table"][x["index"].long()],
    "scatter_add": lambda x: torch.zeros(10, 41, dtype=torch.float64).index_add(0, x["index"].long(), x["x"]),
    "sort": lambda x: torch.sort(x["x"], 1).values,
    "top_k": lambda x: torch.topk(x["x"], 4, 1).values,
    "dropout": dropped,
    "rotary": lambda x: rotated(x, False),
    "rotary_neighbours": lambda x: rotated(x, True),
    "cross_entropy": lambda x: loss(x, 0.0),
    "cross_entropy_smoothed": lambda x: loss(x, SMOOTHING),
    "cross_entropy_backward": lambda x: loss_gradient(x, 0.0),
    "cross_entropy_smoothed_backward": lambda x: loss_gradient(x, SMOOTHING),
    "row_sum": lambda x: x["x"].sum(1),
    "row_max": lambda x: x["x"].amax(1),
    "layer_norm_backward": norm_gradient,
    "rms_norm_backward": norm_gradient,
    "softmax": lambda x: torch.softmax(x["x"], -1),
    "log_softmax": lambda x: torch.log_softmax(x["x"], -1),
    "rms_norm": lambda x: torch.nn.functional.rms_norm(x["x"], x["x"].shape[-1:], x["weight"], 2.0**-20),
    "add_rms_norm": lambda x: torch.nn.functional.rms_norm(
        x["x"] + x["residual"], x["x"].shape[-1:], x["weight"], 2.0**-20
    ),
    "layer_norm": lambda x: torch.nn.functional.layer_norm(x["x"], x["x"].shape[-1:], x["weight"], x["bias"], 2.0**-20),
    "relu": lambda x: torch.relu(x["x"]),
    "leaky_relu": lambda x: torch.nn.functional.leaky_relu(x["x"], 2.0**-3),
    "elu": lambda x: torch.nn.functional.elu(x["x"]),
    "gelu": lambda x: x["x"] * torch.special.ndtr(x["x"]),
    "gelu_tanh": lambda x: torch.nn.functional.gelu(x["x"], approximate="tanh"),
    "silu": lambda x: torch.nn.functional.silu(x["x"]),
    "sigmoid": lambda x: torch.sigmoid(x["x"]),
    "tanh": lambda x: torch.tanh(x["x"]),
    "swiglu": lambda x: torch.nn.functional.silu(x["x"]) * x["gate"],
    "geglu": lambda x: x["x"] * torch.special.ndtr(x["x"]) * x["gate"],
    "l2_norm": lambda x: x["x"] / torch.sqrt((x["x"] ** 2).sum(-1, keepdim=True) + 2.0**-20),
}


@pytest.mark.parametrize("function", WITH_TORCH, ids=lambda function: function.name)
def test_the_value_is_what_torch_computes_in_fp64(function):
    problem = RowProblem(function, 7, 41, "fp32")
    for fill in fills(problem, Contract(problem.output_dtype, FMA), 3):
        expected = TORCH[function.name]({name: tensor.double() for name, tensor in fill.inputs.items()})
        torch.testing.assert_close(fill.expected, expected, rtol=1e-12, atol=1e-14, equal_nan=True)
        assert torch.equal(reference.value(problem, fill.inputs).nan_to_num(7), fill.expected.nan_to_num(7))


@pytest.mark.parametrize("function", EVERY, ids=lambda function: function.name)
def test_a_fill_is_exact_where_every_kernel_must_round_alike(function):
    methods = {}
    for dtype in ("bf16", "fp16", "fp32"):
        problem = RowProblem(function, 7, 64, dtype)
        for output in problem.outputs:
            fill = fills(problem, Contract(problem.output_dtype, FMA), 0, ("exact-rows",))[0].of(output.name)
            methods[dtype, output.name] = fill.method
            exact = output.dtype != "fp32" or function.exact_steps(output.name)
            if function.name != "cross_entropy_smoothed_backward":  # 1 - 1 / 512 has a bit too many for bf16 alone
                assert fill.method == ("exact" if exact else "bounded"), methods


@pytest.mark.parametrize("sizes", [(0, 5), (5, 0), (1, 1), (2, 3)])
@pytest.mark.parametrize("function", EVERY, ids=lambda function: function.name)
def test_the_smallest_problems_have_fills(function, sizes):
    problem = RowProblem(function, *sizes)
    names = [fill.name for fill in fills(problem, Contract(problem.output_dtype, FMA))]
    assert names == (["exact-rows"] if 0 in sizes else ["exact-rows", "randn", "spread"])


def test_an_output_without_expected_values_is_refused(monkeypatch):
    problem = RowProblem(functions.ADD_RMS_NORM, 5, 7)
    whole = fill_set(problem)
    forgetful = dataclasses.replace(whole, build=lambda request: dataclasses.replace(whole.build(request), parts={}))
    monkeypatch.setattr("conformance.inputs.fills.fill_set", lambda problem: forgetful)
    with pytest.raises(FillError, match="the outputs added have no expected values: give a part for each output"):
        fills(problem, Contract("bf16", FMA))


def test_fills_of_a_sample_are_refused_when_they_are_registered():
    problem = RowProblem(functions.ADD_RMS_NORM, 5, 7)
    whole, before = fill_set(problem), dict(REGISTERED)
    forgetful = dataclasses.replace(
        whole, build=lambda request: dataclasses.replace(whole.build(request), parts={}), sample=problem
    )
    with pytest.raises(FillError, match="the outputs added have no expected values"):
        register_fills(RowProblem, forgetful)
    assert before == REGISTERED
    assert fill_set(problem) is whole


def test_what_an_output_needs():
    problem = RowProblem(functions.LAYER_NORM, 5, 7)
    stored = (torch.arange(5) == 2, torch.arange(7) == 3)
    needed = family_of(problem).needed(problem, {}, "out", stored)
    assert [needed["x"][0].tolist(), needed["x"][1].all()] == [stored[0].tolist(), True]
    assert [indices.tolist() for indices in needed["weight"]] == [stored[1].tolist()]
    axes = family_of(problem).axes
    assert (axes(problem, "x"), axes(problem, "bias"), axes(problem, "out")) == (
        ("row", "column"),
        ("column",),
        ("row", "column"),
    )


def test_layouts_are_in_the_id_and_go_with_dense():
    problem = RowProblem(functions.SOFTMAX, 5, 7, layout_x=Layout("col", pad=1), eps=1e-5)
    assert problem.id == "softmax-5x7-bf16-col+1.row-eps1e-05"
    assert problem.dense.id == "softmax-5x7-bf16-eps1e-05"
    assert problem.operand("x").strides == (1, 6)


@pytest.mark.parametrize("kernel", ROWS, ids=lambda kernel: kernel.name)
def test_only_far_operands_have_wide_offsets(kernel):
    for pad, wide in ((3, False), (2**30, True)):
        plan = kernel.plan(kernel.problem("bf16", 5, 40, layout_x=Layout(pad=pad)), CONFIG, HOPPER)
        assert catalogue.meta_launch(plan, HOPPER).arguments["WIDE_INDEX"] is wide


def test_the_gradients_of_norms_are_those_of_torch():
    x = torch.randn(5, 40, dtype=torch.float64, requires_grad=True)
    weight, bias = (torch.randn(40, dtype=torch.float64, requires_grad=True) for _ in range(2))
    grad = torch.randn(5, 40, dtype=torch.float64)
    torch.nn.functional.layer_norm(x, (40,), weight, bias, 2.0**-20).backward(grad)
    mean, rstd = x.mean(1), (x.var(1, correction=0) + 2.0**-20).rsqrt()
    inputs = {"x": x, "grad": grad, "weight": weight, "mean": mean, "rstd": rstd}
    outputs = evaluated(RowProblem(NORM_GRADIENTS[0], 5, 40, "fp32"), {k: v.detach() for k, v in inputs.items()})
    for name, expected in (("out", x.grad), ("grad_weight", weight.grad), ("grad_bias", bias.grad)):
        torch.testing.assert_close(outputs[name].value, expected)


def test_of_equal_maxima_the_first_counts_and_nan_is_the_largest():
    x = torch.tensor([[1.0, 3.0, 3.0], [2.0, float("nan"), float("nan")], [-float("inf")] * 3])
    outputs = evaluated(RowProblem(ROW_MAX, 3, 3, "fp32"), {"x": x})
    assert outputs["index"].value.tolist() == [1, 1, 0]
    assert outputs["out"].value.isnan().tolist() == [False, True, False]


def test_equal_elements_stay_in_order_and_nan_is_the_largest():
    x = torch.tensor([[2.0, float("nan"), -0.0, 2.0, 0.0, -float("inf"), float("nan")]])
    for function, expected in zip(ORDERS, ([5, 2, 4, 0, 3, 1, 6], [1, 6, 0, 3]), strict=True):
        outputs = evaluated(RowProblem(function, 1, 7, "fp32"), {"x": x})
        assert outputs["index"].value.tolist() == [expected]


def test_dropout_keeps_all_none_or_its_share():
    problem = RowProblem(DROPOUT, 40, 97, "fp32")
    for p in (0.0, 0.25, 1.0):
        inputs = {"x": torch.ones(40, 97), "seed": torch.tensor([2**31 - 5]), "p": torch.tensor([p])}
        kept = evaluated(problem, inputs)["out"].value != 0
        assert abs(float(kept.double().mean()) - (1 - p)) <= 0.03 * (0 < p < 1)


def test_rows_of_one_entry_are_added():
    inputs = {"x": torch.arange(6.0).reshape(3, 2), "index": torch.tensor([1, 3, 1])}
    outputs = evaluated(RowProblem(INDEXED[1], 3, 2, "fp32"), inputs)["out"]
    assert outputs.value.tolist() == [[0, 0], [4, 6], [0, 0], [2, 3]]
    assert outputs.error()[1].min() > outputs.error()[3].max() > 0


def test_what_rows_by_number_need():
    gather, scatter = (RowProblem(function, 4, 2) for function in INDEXED)
    inputs = {"index": torch.tensor([5, 0, 5, 2])}
    needed = family_of(gather).needed(gather, inputs, "out", (torch.tensor([1, 0, 0, 1]).bool(), torch.ones(2).bool()))
    assert needed["table"][0].nonzero()[:, 0].tolist() == [2, 5]
    needed = family_of(scatter).needed(scatter, inputs, "out", (torch.arange(6) == 5, torch.ones(2).bool()))
    assert needed["x"][0].tolist() == [True, False, True, False]
