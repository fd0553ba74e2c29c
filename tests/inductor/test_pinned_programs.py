"""Facts that are read from generated source, and the demands on it."""

from __future__ import annotations

import dataclasses
import re
from typing import Any

import pytest

from conformance import codegen_checks
from conformance.cases.case_table import ATTRIBUTE, Selection
from conformance.cases.generated_cases import Thin, generated, generated_for
from conformance.families.attention.problem import Attention
from conformance.families.conv.problem import conv2d
from conformance.families.gemm.problem import Bias, Fusion, addmm, bmm, fused_mm, mixed_mm, mm, mm_plus_mm, scaled_mm
from conformance.families.grouped.problem import GroupedGemm
from conformance.heuristics.configs import Config, FlexConfig, FlexDecodeConfig
from conformance.inductor.compile.program import Choice
from conformance.inductor.replay.pinned_programs import (
    PinnedKernel,
    config_of,
    constant,
    described_config,
    expected_grid,
    option,
)
from conformance.inductor.source import spellings
from conformance.inductor.source.source_checks import exactly
from conformance.inductor.topics.gemm import graph_of
from conformance.kernels.kernel import Plan, Variant
from conformance.records import ExecutorName
from conformance.targets import KNOWN, Target, compile_targets, find

SOURCE = """
@triton_heuristics.template(
    num_stages=3,
    num_warps=8,
)
@triton.jit
def triton_tem_fused_mm_0(arg_A, arg_B, out_ptr0):
    EVEN_K : tl.constexpr = True
    GROUP_M : tl.constexpr = 4
    BLOCK_M : tl.constexpr = 64
    BLOCK_N : tl.constexpr = 128
    BLOCK_K : tl.constexpr = 32
    num_warps = 1
"""


def test_the_config_is_read_from_the_source() -> None:
    assert config_of(SOURCE) == Config(64, 128, 32, 3, 8, group_m=4)
    assert constant(SOURCE, "NUM_SMS") is None
    assert option(SOURCE, "num_ctas") is None


@pytest.mark.parametrize("line", ["BLOCK_K : tl.constexpr = 32", "num_stages=3"])
def test_what_the_source_lacks_is_said(line: str) -> None:
    with pytest.raises(ValueError, match=line.replace("=", " ").split()[0]):
        config_of(SOURCE.replace(line, ""))


def test_the_config_is_read_from_a_description() -> None:
    text = "BLOCK_K=32, BLOCK_M=64, BLOCK_N=128, EVEN_K=True, GROUP_M=4, num_stages=3, num_warps=8"
    assert described_config(Choice("triton_mm_0", text, "triton")) == Config(64, 128, 32, 3, 8, group_m=4)
    assert described_config(Choice("mm", "", "extern")) is None


@pytest.mark.parametrize(
    ("names", "config"),
    [
        ("QK_HEAD_DIM=16, BLOCK_M=64, BLOCK_N=32", FlexConfig(64, 32, 3, 4)),
        ("BLOCK_M1=32, BLOCK_N1=64, BLOCK_M2=64, BLOCK_N2=32", FlexConfig(32, 64, 3, 4)),
        ("BLOCK_M=16, BLOCK_N=32, SPLIT_KV=5", FlexDecodeConfig(32, 3, 4)),
        ("BLOCK_M=64, BLOCK_N=32", None),
    ],
)
def test_a_config_of_attention(names: str, config: Any) -> None:
    assert (
        described_config(Choice("triton_flex_attention_0", f"{names}, num_stages=3, num_warps=4", "triton")) == config
    )


def test_functions_before_the_kernel_hide_no_option() -> None:
    assert option(f"@triton.jit\ndef helper(num_warps=2): ...\n{SOURCE}", "num_warps") == 8


ATTENTION = Attention("attention", batch=2, heads=4, queries=100, keys=70, head_dim=64, kv_heads=2)
BACKWARD = dataclasses.replace(ATTENTION, op="attention_backward")


@pytest.mark.parametrize(
    ("problem", "blocks", "programs"),
    [
        (ATTENTION, {"BLOCK_M": 64}, 2 * 4 * 2),
        (ATTENTION, {"BLOCK_M": 256, "SPLIT_KV": 5}, 2 * 2 * 5),
        (BACKWARD, {"BLOCK_M2": 32, "BLOCK_N1": 64}, 2 * 2 * (4 * 2 + 2)),
    ],
)
def test_the_programs_of_attention(problem: Attention, blocks: dict[str, int], programs: int) -> None:
    source = "".join(f"    {name} : tl.constexpr = {size}\n" for name, size in blocks.items())
    assert expected_grid(problem, FlexConfig(64, 64, 3, 4), find("sm_90"), None, source) == (programs,)


def test_the_programs_of_groups_are_as_many_as_the_multiprocessors() -> None:
    problem = GroupedGemm("2d-3d", (8, 0), None, 16, 16)
    assert expected_grid(problem, Config(64, 128, 32, 3, 8), find("sm_90"), 7) == (7, 1, 1)


@pytest.mark.parametrize(
    ("problem", "sms", "grid"),
    [
        (mm(130, 260, 40), None, (9, 1, 1)),
        (mm(130, 260, 40), 4, (4, 1, 1)),
        (mm(130, 260, 40), 132, (9, 1, 1)),
        (bmm(130, 100, 40, batch=5), None, (3, 5, 1)),
        (conv2d(2, 8, (10, 10), 48, (3, 3), padding=(1, 1), groups=2), None, (4, 1, 2)),
    ],
)
def test_the_grid(problem: Any, sms: int | None, grid: tuple[int, ...]) -> None:
    assert expected_grid(problem, Config(64, 128, 32, 3, 8), find("sm_90"), sms) == grid


@pytest.mark.parametrize(
    ("scaling", "executor", "operand", "accumulator"),
    [
        ("row", ExecutorName.DEVICE, "exact", {"result_bits": 13, "promote": 64}),
        ("1x128/128x128", ExecutorName.DEVICE, "tf32", {"result_bits": 23, "promote": None, "chunk": 8}),
        ("1x128/128x128", ExecutorName.INTERPRETER, "exact", {"kind": "fma"}),
    ],
)
def test_the_contract_of_scaled_products(scaling: str, executor: Any, operand: str, accumulator: Any) -> None:
    problem, config, sm90 = scaled_mm(256, 256, 256, scaling=scaling), Config(128, 128, 64, 3, 8), find("sm_90")
    plan = Plan("scaled_mm", problem, config, Variant(), sm90, (4, 1, 1))
    contract = PinnedKernel(lambda *_: ((), ())).contract(plan, executor)
    assert contract.operand == operand
    assert {name: getattr(contract.accumulator, name) for name in accumulator} == accumulator


@pytest.mark.parametrize(
    ("problem", "function", "names"),
    [
        (mm(8, 8, 8), "mm", set()),
        (addmm(8, 8, 8), "addmm", {"alpha", "beta"}),
        (mm_plus_mm(8, 8, 8), "mm_plus_mm", set()),
        (conv2d(1, 4, (5, 5), 4, (3, 3)), "convolution", {"stride", "padding", "groups"}),
        (GroupedGemm("2d-3d", (8, 0), None, 16, 16), "grouped_mm", set()),
        (fused_mm(8, 8, 8, fusion=Fusion(epilogue=("bias", "relu")), bias=Bias()), "fused_mm", {"epilogue", "names"}),
    ],
)
def test_the_graph_of_a_problem(problem: Any, function: str, names: set[str]) -> None:
    graph, arguments = graph_of(problem)
    assert graph == f"conformance.inductor.topics.gemm:{function}"
    assert set(dict(arguments)) == names


@pytest.mark.parametrize("problem", [mixed_mm(8, 8, 8), fused_mm(8, 8, 8, fusion=Fusion(prologue="scale"))])
def test_a_problem_without_a_graph(problem: Any) -> None:
    with pytest.raises(ValueError, match="has no graph"):
        graph_of(problem)


@pytest.mark.parametrize(("count", "passes"), [(0, False), (1, False), (2, True), (3, False)])
def test_counts_are_exact(count: int, passes: bool) -> None:
    text = "a = tl.store(x)\nb = 1\nc = tl.store(y)\n"
    assert codegen_checks.filecheck(exactly(count, spellings.POINTER_STORE), text).passed is passes
    assert codegen_checks.filecheck(exactly(0, spellings.POINTER_STORE), "b = 1\n").passed


def test_the_expression_of_a_template_matches_no_other() -> None:
    names = ["triton_mm_12", "triton_mm_persistent_tma_3", "triton_mm_plus_mm_1", "mm"]
    assert [name for name in names if re.search(spellings.only("mm"), name)] == ["triton_mm_12"]


def test_a_template_that_is_not_there_is_a_typed_reason() -> None:
    with pytest.raises(spellings.NoSuchTemplate, match="no template"):
        spellings.text_of("mm_by_hand")


def test_the_dialect_is_that_of_the_installed_template() -> None:
    name = spellings.template("persistent TMA")
    dialect = spellings.dialect(name)
    assert codegen_checks.filecheck(f"CHECK: {{{{{dialect.load}}}}}", spellings.text_of(name)).passed


def target(arch: int | str, index: int | None = None) -> Target:
    backend = next(one.backend for one in KNOWN if one.arch == arch)
    return Target(backend, arch, 32, index)


def test_tiers_thin_a_parameter() -> None:
    sizes, fewer = Thin([1, 2, 3], quick=2), Thin([1, 2, 3], quick=0, default=1)
    tiers = ("quick", "default", "full", "exhaustive")
    assert [list(sizes.of(tier)) for tier in tiers] == [[1, 2], [1, 2, 3], [1, 2, 3], [1, 2, 3]]
    assert [list(fewer.of(tier)) for tier in tiers] == [[], [1], [1, 2, 3], [1, 2, 3]]


@pytest.mark.parametrize(("tier", "whole"), [("quick", False), ("default", False), ("full", True)])
def test_the_default_tier_does_not_cross_the_parameters_of_a_sampled_test(tier: str, whole: bool) -> None:
    def test(first: int, second: int) -> None: ...

    values = {"first": [1, 2, 3], "second": [4, 5]}
    sampled = generated(sampled=True, **values)(test)
    rows = getattr(sampled, ATTRIBUTE).table(Selection(compile_targets(), tier), ()).rows.values()
    assert len(rows) == (6 * len(generated_for(compile_targets(), False)) if whole else 3)
    for place, of_parameter in enumerate(values.values()):
        assert {row[place] for row in rows} == set(of_parameter)


def test_code_is_generated_for_some_architectures_unless_asked() -> None:
    targets_here = [target(arch) for arch in (80, 90, 100, "gfx942", "gfx1201")]
    assert [one.id for one in generated_for(targets_here, all_of_them=False)] == ["sm_90", "sm_100", "gfx942"]
    assert [one.id for one in generated_for(targets_here, all_of_them=True)] == [one.id for one in targets_here]
    assert [one.id for one in generated_for(targets_here, False, ("amd", "nvidia"))] == ["gfx942", "sm_90", "sm_100"]
    assert [one.id for one in generated_for([target(80, 0)], all_of_them=False)] == ["sm_80"]
