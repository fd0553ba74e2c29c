"""The sweep over sizes as production has them: nothing has a rest, and no mask is left where the compiler knows it."""

from __future__ import annotations

import importlib
import itertools

import pytest

from conformance.cases import config_space
from conformance.cases.case_table import cases_of
from conformance.cases.scenarios import rows
from conformance.kernels.catalogue import get, meta_launch, own_kernels
from conformance.kernels.families.examples import EVEN
from conformance.kernels.kernel import Variant
from conformance.problems import itemsize
from conformance.targets import find

HOPPER = find("sm_90")


@pytest.fixture(scope="module")
def suite():
    return importlib.import_module("conformance.suites.test_config_space")


@pytest.mark.parametrize("name", own_kernels())
def test_every_kernel_has_an_example(name):
    kernel = get(name)
    assert kernel.example(kernel.dtype_names()[0], kernel.configs[0], EVEN)


@pytest.mark.parametrize("name", [name for name, kernel in own_kernels().items() if kernel.family == "gemm"])
def test_no_size_has_a_rest_and_unaligned_rows_are_no_multiples_of_16_bytes(suite, name):
    kernel = get(name)
    for dtype, config, form in itertools.product(kernel.dtype_names(), kernel.configs[:4], suite.forms(kernel)):
        problem = suite.even(kernel, dtype, config, form)
        sizes = (problem.M, problem.N, problem.K)
        assert [size % block for size, block in zip(sizes, config.tile, strict=True)] == [0, 0, 0]
        assert config.num_stages * config.block_k < problem.K, "the loop is longer than the pipeline"
        operands = [problem.operand(each) for each in "ab"]
        pitches = [max(operand.strides[-2:]) * itemsize(operand.dtype) for operand in operands]
        assert [pitch % 16 != 0 for pitch in pitches] == [form.endswith("unaligned")] * 2


@pytest.mark.parametrize(("form", "expected"), [("constant", True), ("constant-unaligned", True), ("run-time", False)])
def test_constant_sizes_without_a_rest_leave_out_the_mask_of_k(suite, form, expected):
    kernel = get("mm")
    config = next(config for config in kernel.configs if config.block_k > 16)
    for problem, even in (
        (suite.even(kernel, "bf16", config, form), expected),
        (kernel.example("bf16", config, "ragged"), False),
    ):
        plan = kernel.plan(problem, config, HOPPER, Variant(static=form.startswith("constant")))
        assert meta_launch(plan, HOPPER).arguments["EVEN_K"] is even


def test_the_full_tier_has_every_row_and_the_quick_tier_one_config(suite):
    kernel, scene = get("mm"), cases_of(suite.test_even_sizes)
    swept = {tier: {row[2] for row in rows(scene, kernel, [HOPPER], tier)} for tier in ("quick", "default", "full")}
    assert swept["full"] == set(config_space.space(kernel, HOPPER, "full"))
    assert len(swept["quick"]) == 1
    assert 1 < len(swept["default"]) < len(swept["full"])
    forms = {row[3] for row in rows(scene, kernel, [HOPPER], "quick")}
    assert forms == set(suite.FORMS)
