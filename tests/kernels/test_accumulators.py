"""The kernels with an accumulator of their own kind: contracts, orders and launches; the rest is in test_family.py."""

import ast
import inspect
import math
from collections import Counter

import pytest

from conformance import codegen_checks as codegen
from conformance import targets
from conformance.families.gemm.problem import dual_mm, mm, mm_plus_mm, mm_with_sums
from conformance.heuristics.configs import ChainedConfig, Config
from conformance.judging.plan_rules import expected_grid
from conformance.kernels import catalogue, product_loops
from conformance.kernels.kernel import Variant
from conformance.numerics.contract import FMA16

LARGE, LARGE_PAIRS = Config(64, 64, 32, 2, 4), ChainedConfig(64, 64, 32, 2, 4)
HOPPER, AMPERE, AMD = (targets.find(name) for name in ("sm_90", "sm_80", "gfx942"))


def _plan(name, problem, config=LARGE, target=HOPPER, **variant):
    return catalogue.get(name).plan(problem, config, target, Variant(**variant))


def test_one_block_of_two_products_is_no_reason_to_refuse_one_loop():
    assert _plan("mm_plus_mm_one_loop", mm_plus_mm(64, 64, 32, "bf16")).grid == (1,)


def test_a_chain_has_no_mask_only_where_it_is_whole():
    for k, even in ((64, True), (96, False), (128, True)):
        launch = catalogue.meta_launch(_plan("mm_chained", mm(64, 64, k, "bf16"), LARGE_PAIRS, static=True), HOPPER)
        assert launch.arguments["EVEN_K"] is even


def test_rows_are_summed_where_there_is_no_column():
    for n, programs in ((0, 2), (1, 2), (65, 4)):
        plan = _plan("mm_with_sums", mm_with_sums(100, n, 64))
        assert plan.grid == (programs,) == expected_grid(catalogue.get("mm_with_sums"), plan, 0)
    assert _plan("mm_with_sums", mm_with_sums(0, 64, 64)).grid == (0,)


def test_contracts():
    kernel, plan = catalogue.get("mm_fp16_acc"), _plan("mm_fp16_acc", mm(64, 64, 64))
    assert kernel.contract(plan, "interpreter").accumulator == FMA16
    assert FMA16.exact_bits == 11
    for target in (AMPERE, HOPPER, AMD):
        there = kernel.contract(_plan("mm_fp16_acc", mm(64, 64, 64), target=target), "device")
        assert (there.accumulator.dtype, there.accumulator.result_bits, there.accumulator.assumed) == ("fp16", 10, True)
        assert there.accumulator.exact_bits == 10
    for name in ("mm_chained", "mm_plus_mm_one_loop"):
        problem = mm(64, 64, 64, "bf16") if name == "mm_chained" else mm_plus_mm(64, 64, 64, "bf16")
        plan = _plan(name, problem, LARGE_PAIRS)
        plain = _plan("mm", mm(64, 64, 64, "bf16"))
        assert catalogue.get(name).contract(plan, "device") == catalogue.get("mm").contract(plain, "device")


def test_the_sign_of_a_gated_zero_is_open():
    plan = _plan("dual_mm", dual_mm(64, 64, 64))
    assert catalogue.get("dual_mm").contract(plan, "interpreter").zero_sign == "any"
    assert catalogue.get("dual_mm").order(plan) is None


def test_orders():
    pairs = catalogue.get("mm_chained").order(_plan("mm_chained", mm(64, 64, 64, "bf16"), LARGE_PAIRS))
    assert pairs == catalogue.get("mm").order(_plan("mm", mm(64, 64, 64, "bf16")))
    both = _plan("mm_plus_mm_one_loop", mm_plus_mm(64, 64, 64, "bf16"))
    assert catalogue.get("mm_plus_mm_one_loop").order(both) is None
    assert catalogue.get("mm_fp16_acc").order(_plan("mm_fp16_acc", mm(64, 64, 64))) is None


def test_matrix_units():
    plan = _plan("mm_fp16_acc", mm(64, 64, 64))
    assert codegen.WGMMA in catalogue.get("mm_fp16_acc").features(plan).required


@pytest.mark.parametrize("kernel", product_loops.KERNELS, ids=lambda kernel: kernel.name)
def test_a_row_states_what_a_turn_of_its_function_loads_and_multiplies(kernel):
    """The calls in its innermost loop say it. A function without a loop calls ``accumulate``, which loads and
    multiplies one tile of each."""
    loop, config = kernel.loop, kernel.configs[0]
    turns = [node for node in ast.walk(ast.parse(inspect.getsource(loop.function.fn))) if isinstance(node, ast.For)]
    calls = Counter(
        ast.unparse(node.func) for turn in turns[-1:] for node in ast.walk(turn) if isinstance(node, ast.Call)
    )
    counted = (calls["load_rows"], calls["load_columns"], calls["tl.dot"]) if turns else (1, 1, 1)
    assert (loop.rows, loop.columns, loop.products) == counted
    links, dtype = getattr(config, "chain", 1), kernel.dtypes[0]
    problem = kernel.example(dtype, config)
    assert kernel.multiply_adds(problem, config) == loop.products * links * math.prod(config.tile)
    staged = loop.rows * config.block_m + loop.columns * config.block_n
    plan = kernel.plan(problem, config, HOPPER, Variant())
    assert kernel.shared_memory(plan) == staged * config.block_k * links * config.num_stages * 2  # bytes of bf16, fp16
