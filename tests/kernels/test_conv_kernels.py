"""Convolution kernels: refusals, grids and launch arguments, and their sums in the interpreter against torch's."""

import pytest

from conformance import codegen_checks, targets
from conformance.families.conv.problem import conv2d, conv3d
from conformance.families.gemm.problem import mm
from conformance.heuristics.configs import Config, DepthwiseConfig
from conformance.kernels import catalogue, conv
from conformance.kernels.catalogue import meta_launch
from conformance.kernels.kernel import NotApplicable, Variant
from conformance.records import ReasonCode
from tests.kernels.interpreter_runs import in_interpreter

HOPPER, AMPERE = targets.find("sm_90"), targets.find("sm_80")
SMALL = Config(32, 32, 16, 2, 4)
TILE = DepthwiseConfig(16, 8, 1, 1)
LAST = {"order_x": "channels-last", "order_w": "channels-last", "order_out": "channels-last"}
ONE = conv2d(2, 20, (5, 7), 40, 1, "bf16", **LAST)


@pytest.mark.parametrize(
    ("name", "problem", "config", "variant", "code", "subject"),
    [
        ("conv2d", conv3d(1, 16, 4, 16, 1), SMALL, {}, ReasonCode.OPERATION, "conv3d"),
        ("conv3d", conv2d(1, 16, 4, 16, 1), SMALL, {}, ReasonCode.OPERATION, "conv2d"),
        ("conv2d", mm(16, 16, 16), SMALL, {}, ReasonCode.OPERATION, "mm"),
        ("conv2d", conv2d(1, 16, 4, 16, 1, "e4m3"), SMALL, {}, ReasonCode.DTYPE, "x"),
        ("conv2d", conv2d(1, 16, 4, 16, 1), Config(8, 32, 16, 2, 4), {}, ReasonCode.CONFIG, "block size"),
        ("conv2d", conv2d(1, 16, 4, 16, 1), SMALL, {"tma_store": True}, ReasonCode.CONFIG, "variant"),
        ("conv2d", conv2d(1, 2**16, 2, 2**16, 1, groups=2**16), SMALL, {}, ReasonCode.EXTENT, "groups"),
        (
            "conv2d",
            conv2d(1, 16, 4, 16, 1),
            Config(256, 256, 64, 4, 8),
            {},
            ReasonCode.SHARED_MEMORY,
            "256x256x64-s4-w8",
        ),
        ("conv1x1_as_mm", conv2d(1, 16, 4, 16, 3, **LAST), SMALL, {}, ReasonCode.OPERATION, "kernel"),
        ("conv1x1_as_mm", conv2d(1, 16, 4, 16, 1, stride=2, **LAST), SMALL, {}, ReasonCode.OPERATION, "stride"),
        ("conv1x1_as_mm", conv2d(1, 16, 4, 16, 1, padding=1, **LAST), SMALL, {}, ReasonCode.OPERATION, "padding"),
        ("conv1x1_as_mm", conv2d(1, 16, 4, 16, 1, groups=2, **LAST), SMALL, {}, ReasonCode.OPERATION, "groups"),
        ("conv1x1_as_mm", conv2d(0, 16, 4, 16, 1, **LAST), SMALL, {}, ReasonCode.EXTENT, "batch"),
        ("conv1x1_as_mm", conv2d(1, 16, 4, 16, 1), SMALL, {}, ReasonCode.LAYOUT, "x"),
        ("conv1x1_as_mm", conv2d(2, 16, 4, 16, 1, batch_pad=8, **LAST), SMALL, {}, ReasonCode.LAYOUT, "x"),
        ("conv2d_depthwise", conv2d(1, 4, 4, 4, 1, groups=2), TILE, {}, ReasonCode.OPERATION, "groups"),
        ("conv2d_depthwise", conv3d(1, 4, 4, 4, 1, groups=4), TILE, {}, ReasonCode.OPERATION, "conv3d"),
        ("conv2d_depthwise", conv2d(1, 4, 4, 4, 1, "e4m3", groups=4), TILE, {}, ReasonCode.DTYPE, "x"),
        (
            "conv2d_depthwise",
            conv2d(1, 4, 4, 4, 1, "fp32", groups=4, precision="tf32"),
            TILE,
            {},
            ReasonCode.PRECISION,
            "tf32",
        ),
        (
            "conv2d_depthwise",
            conv2d(1, 4, 4, 4, 1, groups=4),
            TILE,
            {"descriptors": "host"},
            ReasonCode.CONFIG,
            "variant",
        ),
        ("conv2d_depthwise", conv2d(1, 2**20, 2, 2**20, 1, groups=2**20), TILE, {}, ReasonCode.EXTENT, "out_channels"),
    ],
)
def test_typed_reason(name, problem, config, variant, code, subject):
    with pytest.raises(NotApplicable) as caught:
        catalogue.get(name).plan(problem, config, HOPPER, Variant(**variant))
    reason = caught.value.reason
    assert (reason.code, reason.subject) == (code, subject), str(reason)
    assert len(reason.detail) > 20


def test_grids_cover_the_columns_of_one_group_only():
    problem = conv2d(3, 24, (9, 11), 100, 3, padding=1, groups=2)
    assert catalogue.get("conv2d").plan(problem, SMALL, HOPPER).grid == (10, 2, 2)  # 297 positions, 50 columns
    assert catalogue.get("conv2d").plan(conv2d(0, 24, 9, 100, 3), SMALL, HOPPER).grid == (0, 4, 1)
    assert catalogue.get("conv1x1_as_mm").plan(ONE, SMALL, HOPPER).grid == (3 * 2,)


def test_tables():
    names = {kernel.name: (kernel.family, kernel.table, len(kernel.configs)) for kernel in conv.KERNELS}
    assert names == {"conv2d": ("conv", "conv", 7), "conv3d": ("conv", "conv", 7), "conv1x1_as_mm": ("conv", "mm", 19)}


@pytest.mark.parametrize(
    ("problem", "wide"),
    [
        (conv2d(3, 16, 4, 16, 1), False),
        (conv2d(3, 16, 4, 16, 1, batch_pad=2**30), True),
        (conv2d(2, 16, 4, 16, 1, batch_pad=2**30), False),
    ],
)
def test_offsets_are_wide_where_operands_span_2_31_elements(problem, wide):
    launch = meta_launch(catalogue.get("conv2d").plan(problem, SMALL, HOPPER), HOPPER)
    assert launch.arguments["WIDE_INDEX"] is wide


def test_matrices_of_a_single_tap_are_views():
    for problem in (ONE, conv2d(2, 20, (5, 7), 40, 1, order_x="channels-last", order_out="channels-last", pad=3)):
        launch = meta_launch(catalogue.get("conv1x1_as_mm").plan(problem, SMALL, HOPPER), HOPPER)
        arguments = launch.arguments
        assert (arguments["M"], arguments["N"], arguments["K"]) == (70, 40, 20)
        assert (arguments["stride_am"], arguments["stride_ak"]) == (20 + problem.pad, 1)
        assert (arguments["stride_cm"], arguments["stride_cn"]) == (40 + problem.pad, 1)
        assert (arguments["stride_bn"], arguments["stride_bk"]) == problem.operand("w").strides[:2]


def test_contract_and_code_are_those_of_the_product():
    kernel = catalogue.get("conv2d")
    plan = kernel.plan(conv2d(2, 16, 9, 64, 3, "bf16"), Config(64, 64, 32, 2, 4), HOPPER)
    assert kernel.contract(plan, "device").accumulator.kind == "tensor-core"
    assert kernel.contract(plan, "interpreter").accumulator.kind == "fma"
    features = kernel.features(plan)
    assert {codegen_checks.WGMMA, codegen_checks.POINTER_LOAD, codegen_checks.POINTER_STORE} <= features.required
    assert {codegen_checks.TMA_LOAD, codegen_checks.TMA_STORE} <= features.forbidden
    tf32 = kernel.plan(conv2d(2, 16, 9, 64, 3, "fp32", precision="tf32"), SMALL, AMPERE)
    assert kernel.contract(tf32, "device").operand == "tf32"


INTERPRETED = [
    ("conv2d", conv2d(2, 20, (5, 7), 40, (2, 1), "bf16", bias=True, padding=(1, 0), **LAST, pad=3), {}),
    ("conv2d", conv2d(1, 32, (9, 11), 36, (1, 2), "fp32", stride=(2, 3), padding=(2, 1), groups=2), {"static": True}),
    ("conv2d", conv2d(2, 5, (4, 5), 33, 1, order_w="channels-last"), {}),
    ("conv3d", conv3d(2, 5, (3, 4, 5), 9, (2, 1, 2), padding=(1, 0, 2), stride=(1, 2, 1), bias=True), {}),
    ("conv2d", conv2d(0, 5, (4, 5), 33, 3), {}),
    ("conv2d", conv2d(2, 10, (9, 8), 34, (3, 2), padding=(2, 1), stride=(1, 2), dilation=(2, 3), groups=2), {}),
    ("conv3d", conv3d(2, 5, (5, 4, 5), 9, (2, 1, 2), padding=(1, 0, 2), dilation=(3, 2, 1)), {"static": True}),
    ("conv2d_depthwise", conv2d(2, 9, (5, 7), 18, (3, 2), "bf16", padding=(2, 1), groups=9, bias=True, pad=3), {}),
    ("conv2d_depthwise", conv2d(2, 5, (9, 8), 5, (3, 2), stride=(1, 2), dilation=(2, 3), groups=5, **LAST), {}),
    ("conv2d_depthwise", conv2d(2, 5, 2, 5, 4, "fp32", padding=3, groups=5), {"static": True}),
    ("conv2d_depthwise", conv2d(0, 5, 2, 5, 4, padding=3, groups=5), {}),
    ("conv1x1_as_mm", conv2d(2, 20, (3, 7), 40, 1, "bf16", bias=True, **LAST, pad=8), {}),
    ("conv1x1_as_mm", conv3d(2, 20, (2, 3, 4), 9, 1, order_x="channels-last", order_out="channels-last", pad=2), {}),
]


def test_sums_are_those_of_torch():
    """Small integers, so that every sum is exact."""
    assert in_interpreter(wrong_sums) == []


def wrong_sums():
    """The cases of ``INTERPRETED`` whose result is not torch's, or whose guards were disturbed."""
    import functools

    import torch

    from conformance.execution.interpreter.executor import InterpreterExecutor
    from conformance.execution.trial.trial import run_guarded
    from conformance.problems import DTYPES

    executor, generator, failures = InterpreterExecutor(), torch.Generator().manual_seed(0), []
    for name, problem, fields in INTERPRETED:
        kernel = catalogue.get(name)
        plan = kernel.plan(problem, TILE if kernel.depthwise else SMALL, HOPPER, Variant(**fields))
        values = {o.name: torch.randint(-3, 4, o.shape, generator=generator).double() for o in problem.operands}
        stored = {o.name: values[o.name].to(DTYPES[o.dtype]) for o in problem.operands}
        convolve = torch.nn.functional.conv2d if problem.op == "conv2d" else torch.nn.functional.conv3d
        operands = (values["x"], values["w"], values.get("bias"))
        expected = convolve(*operands, problem.stride, problem.padding, problem.dilation, problem.groups)
        outputs, disturbed, _ = run_guarded(functools.partial(kernel.launch, plan), problem, stored, executor, 0)
        wrong = int((outputs["out"] != expected.to(DTYPES[problem.output_dtype])).sum())
        if wrong or disturbed:
            failures.append(f"{name} {problem.id}: {wrong} wrong {disturbed}")
    return failures
