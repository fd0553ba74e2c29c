"""The kernel of gradients for the weights: refusals, grid, launch arguments, and its sums against torch's."""

import pytest

from conformance import codegen_checks, targets
from conformance.families.conv.problem import conv2d
from conformance.families.family import family_of
from conformance.families.gemm.problem import mm
from conformance.families.weight_gradient.problem import WeightGradient
from conformance.heuristics.configs import Config
from conformance.judging.plan_rules import expected_grid
from conformance.kernels import catalogue
from conformance.kernels.catalogue import meta_launch
from conformance.kernels.kernel import NotApplicable, Variant
from conformance.kernels.refusal_rules import objection
from conformance.records import ReasonCode
from tests.kernels.interpreter_runs import in_interpreter

HOPPER, AMPERE = targets.find("sm_90"), targets.find("sm_80")
SMALL = Config(32, 32, 16, 2, 4)
NAME = "conv2d_weight_gradient"
LAST = {"order_x": "channels-last", "order_w": "channels-last", "order_out": "channels-last"}


def gradient(*sizes, **fields):
    return WeightGradient(conv2d(*sizes, **fields))


ONE = gradient(1, 16, 4, 16, 1)


@pytest.mark.parametrize(
    ("problem", "config", "variant", "code", "subject"),
    [
        (mm(16, 16, 16), SMALL, {}, ReasonCode.OPERATION, "mm"),
        (conv2d(1, 16, 4, 16, 1), SMALL, {}, ReasonCode.OPERATION, "conv2d"),
        (gradient(1, 16, 4, 16, 1, "e4m3"), SMALL, {}, ReasonCode.DTYPE, "x"),
        (ONE, Config(8, 32, 16, 2, 4), {}, ReasonCode.CONFIG, "block size"),
        (ONE, SMALL, {"tma_store": True}, ReasonCode.CONFIG, "variant"),
        (gradient(1, 2**16, 2, 2**16, 1, groups=2**16), SMALL, {}, ReasonCode.EXTENT, "groups"),
        (gradient(1, 2**21, 2, 1, 2), SMALL, {}, ReasonCode.EXTENT, "channels"),
        (ONE, Config(256, 256, 64, 4, 8), {}, ReasonCode.SHARED_MEMORY, "256x256x64-s4-w8"),
    ],
)
def test_typed_reason(problem, config, variant, code, subject):
    kernel = catalogue.get(NAME)
    with pytest.raises(NotApplicable) as caught:
        kernel.plan(problem, config, HOPPER, Variant(**variant))
    reason = caught.value.reason
    assert (reason.code, reason.subject) == (code, subject), str(reason)
    assert len(reason.detail) > 20
    if code != ReasonCode.SHARED_MEMORY:
        assert objection(kernel, kernel.draft(problem, config, HOPPER, Variant(**variant)), reason) is None
    if problem.op == ONE.op and code in (ReasonCode.EXTENT, ReasonCode.CONFIG):
        assert objection(kernel, kernel.draft(ONE, SMALL, HOPPER), reason) is not None


def test_grid_and_tiles():
    kernel = catalogue.get(NAME)
    problem = gradient(3, 24, (9, 11), 100, 3, padding=1, groups=2, bias=True)
    plan = kernel.plan(problem, SMALL, HOPPER)
    assert plan.grid == expected_grid(kernel, plan, 0) == (2, 4, 2)  # 50 output channels, 108 taps and channels
    assert family_of(plan.problem).code_tiles(kernel, plan, "") == {(32, 32, 16)}
    assert [step.grid for step in meta_launch(plan, HOPPER).steps] == [(2, 4, 2), (4,)]
    empty = kernel.plan(gradient(0, 24, 9, 100, 3), SMALL, HOPPER)
    assert empty.grid == expected_grid(kernel, empty, 0) == (4, 7, 1)
    assert len(meta_launch(empty, HOPPER).steps) == 1


@pytest.mark.parametrize(
    ("problem", "wide"),
    [
        (gradient(3, 16, 4, 16, 1), False),
        (gradient(3, 16, 4, 16, 1, batch_pad=2**30), True),
        (gradient(2, 16, 4, 16, 1, batch_pad=2**30), False),
    ],
)
def test_offsets_are_wide_where_operands_span_2_31_elements(problem, wide):
    launch = meta_launch(catalogue.get(NAME).plan(problem, SMALL, HOPPER), HOPPER)
    assert launch.arguments["WIDE_INDEX"] is wide


def test_known_positions_without_a_rest_leave_out_their_mask():
    kernel = catalogue.get(NAME)
    for positions, static, expected in ((8, True, True), (8, False, False), (7, True, False)):
        plan = kernel.plan(gradient(2, 16, (4, positions), 16, 1), SMALL, HOPPER, Variant(static=static))
        assert meta_launch(plan, HOPPER).arguments["EVEN_POSITIONS"] is expected


def test_contract_and_code_are_those_of_the_product():
    kernel = catalogue.get(NAME)
    plan = kernel.plan(gradient(2, 16, 9, 64, 3, "bf16"), Config(64, 64, 32, 2, 4), HOPPER)
    assert kernel.contract(plan, "device").accumulator.kind == "tensor-core"
    assert kernel.contract(plan, "interpreter").accumulator.kind == "fma"
    features = kernel.features(plan)
    assert {codegen_checks.WGMMA, codegen_checks.POINTER_LOAD, codegen_checks.POINTER_STORE} <= features.required
    assert {codegen_checks.TMA_LOAD, codegen_checks.TMA_STORE} <= features.forbidden
    tf32 = kernel.plan(gradient(2, 16, 9, 64, 3, "fp32", precision="tf32"), SMALL, AMPERE)
    assert kernel.contract(tf32, "device").operand == "tf32"


@pytest.mark.parametrize("shape", ["ragged", "smaller-than-a-tile", "several-tiles", "many-k-blocks", "even"])
def test_examples_are_products_of_the_sizes_of_their_class(shape):
    from conformance.families.examples import matrix_sizes

    kernel = catalogue.get(NAME)
    for config in kernel.configs:
        product = kernel.example("bf16", config, shape).product
        assert matrix_sizes(config, "bf16", shape) == (product.M, product.N, product.K)


INTERPRETED = [
    (gradient(2, 20, (5, 7), 40, (2, 1), "bf16", bias=True, padding=(1, 0), **LAST, pad=3), {}),
    (gradient(1, 32, (9, 11), 36, (1, 2), "fp32", stride=(2, 3), padding=(2, 1), groups=2), {"static": True}),
    (gradient(2, 5, (4, 4), 33, 1, order_w="channels-last"), {"static": True}),
    (gradient(0, 5, (4, 5), 33, 3, bias=True), {}),
    (gradient(2, 10, (9, 8), 34, (3, 2), padding=(2, 1), stride=(1, 2), dilation=(2, 3), groups=2, bias=True), {}),
    (gradient(3, 9, (5, 7), 18, (3, 2), "bf16", padding=(2, 1), groups=9), {}),
]


def test_sums_are_those_of_torch():
    """Small integers, so that every sum is exact."""
    assert in_interpreter(wrong_sums) == []


def wrong_sums():
    """The cases of ``INTERPRETED`` whose results are not torch's, or whose guards were disturbed."""
    import functools

    import torch

    from conformance.execution.interpreter.executor import InterpreterExecutor
    from conformance.execution.trial.trial import run_guarded
    from conformance.problems import DTYPES

    executor, generator, failures = InterpreterExecutor(), torch.Generator().manual_seed(0), []
    kernel = catalogue.get(NAME)
    for problem, fields in INTERPRETED:
        plan, forward = kernel.plan(problem, SMALL, HOPPER, Variant(**fields)), problem.forward
        values = {o.name: torch.randint(-3, 4, o.shape, generator=generator).double() for o in problem.operands}
        stored = {o.name: values[o.name].to(DTYPES[o.dtype]) for o in problem.operands}
        geometry = forward.stride, forward.padding, forward.dilation, False, [0, 0], forward.groups
        w = torch.zeros(forward.weights_shape, dtype=torch.float64)
        sizes, mask = [forward.out_channels], [False, True, True]
        expected = dict(
            zip(
                ("grad_w", "grad_bias"),
                torch.ops.aten.convolution_backward(values["grad_out"], values["x"], w, sizes, *geometry, mask)[1:],
                strict=True,
            )
        )
        outputs, disturbed, _ = run_guarded(functools.partial(kernel.launch, plan), problem, stored, executor, 0)
        for name, output in outputs.items():
            wrong = int((output != expected[name].to(DTYPES[problem.output_dtype])).sum())
            if wrong or disturbed:
                failures.append(f"{name} of {problem.id}: {wrong} wrong {disturbed}")
    return failures
