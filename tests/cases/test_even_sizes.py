"""The sweep over sizes as production has them: nothing has a rest, and no mask is left where the compiler knows it."""

from __future__ import annotations

import importlib
import itertools

import pytest

from conformance.cases import config_space
from conformance.cases.case_table import cases_of
from conformance.cases.scenarios import SAME_CODE
from conformance.families.examples import EVEN
from conformance.kernels.catalogue import get, meta_launch, own_kernels
from conformance.kernels.kernel import Variant
from conformance.problems import itemsize
from conformance.suites import test_dynamic_shapes
from conformance.targets import compile_targets, find
from tests.cases.case_rows import rows

HOPPER, BLACKWELL = find("sm_90"), find("sm_100")
TARGETS = {"quick": compile_targets(), "default": [HOPPER], "full": [HOPPER]}


@pytest.fixture(scope="module")
def suite():
    return importlib.import_module("conformance.suites.test_config_space")


@pytest.mark.parametrize("name", own_kernels())
def test_every_kernel_has_an_example(name):
    kernel = get(name)
    assert kernel.example(kernel.dtype_names()[0], kernel.configs[0], EVEN)


GEMMS = [name for name, kernel in own_kernels().items() if kernel.family == "gemm" and kernel.offered]


@pytest.mark.parametrize("name", GEMMS)
def test_no_size_has_a_rest_and_unaligned_rows_are_no_multiples_of_16_bytes(suite, name):
    kernel = get(name)
    for dtype, config, aligned in itertools.product(kernel.dtype_names(), kernel.configs[:4], suite.alignments(kernel)):
        problem = suite.even(kernel, dtype, config, aligned)
        sizes = (problem.M, problem.N, problem.K)
        assert [size % block for size, block in zip(sizes, config.tile, strict=True)] == [0, 0, 0]
        assert config.num_stages * config.block_k < problem.K, "the loop is longer than the pipeline"
        operands = [problem.operand(each) for each in "ab"]
        pitches = [max(operand.strides[-2:]) * itemsize(operand.dtype) for operand in operands]
        assert [pitch % 16 == 0 for pitch in pitches] == [aligned] * 2


@pytest.mark.parametrize("aligned", [True, False])
def test_constant_sizes_without_a_rest_leave_out_the_mask_of_k(suite, aligned):
    kernel = get("mm")
    config = next(config for config in kernel.configs if config.block_k > 16)
    even, ragged = suite.even(kernel, "bf16", config, aligned), kernel.example("bf16", config, "ragged")
    for problem, static, expected in ((even, True, True), (even, False, False), (ragged, True, False)):
        plan = kernel.plan(problem, config, HOPPER, Variant(static=static))
        assert meta_launch(plan, HOPPER).arguments["EVEN_K"] is expected


@pytest.mark.parametrize(
    "name",
    [
        *("int4_mm", "microscaled_mm", "microscaled_mm_grouped"),
        *("gated_linear_attention", "linear_attention_transposed"),
    ],
)
def test_known_depths_without_a_rest_leave_out_the_mask_of_k(suite, name):
    kernel = get(name)
    assert suite.knows_depth(kernel)
    dtype, config = kernel.dtype_names()[0], max(kernel.configs, key=lambda config: config.tile[-1])
    for shape, static, expected in ((EVEN, True, True), (EVEN, False, False), ("ragged", True, False)):
        plan = kernel.plan(kernel.example(dtype, config, shape), config, BLACKWELL, Variant(static=static))
        assert meta_launch(plan, BLACKWELL).arguments["EVEN_K"] is expected


def test_the_full_tier_has_every_row_and_the_quick_tier_one_config(suite):
    kernel = get("mm")
    for test in (suite.test_even_sizes, suite.test_even_constant_sizes):
        scene = cases_of(test)
        swept = {
            tier: {row[2] for row in rows(scene, kernel, TARGETS[tier], tier)} for tier in ("quick", "default", "full")
        }
        assert swept["full"] == set(config_space.space(kernel, HOPPER, "full"))
        assert len(swept["quick"]) == 1
        assert 1 < len(swept["default"]) < len(swept["full"])
        assert {row[3] for row in rows(scene, kernel, TARGETS["quick"], "quick")} == {True, False}


@pytest.mark.parametrize("name", [name for name in GEMMS if name not in SAME_CODE])
def test_every_product_has_a_quick_case_with_constant_sizes(name):
    """A loop without the mask of K is another loop: a fault in it must not wait for a tier that has every form. In
    this test, too, the compiler knows that K is a number of whole blocks."""
    kernel = get(name)
    able = [target for target in compile_targets() if kernel.usable_on(target)]
    assert rows(cases_of(test_dynamic_shapes.test_tile_edges), kernel, able, "quick")
