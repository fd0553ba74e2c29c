"""The kernels with an accumulator of their own kind: numbers in the interpreter, refusals, contracts, launches."""

import pytest

from conformance import codegen_checks as codegen
from conformance import targets
from conformance.families.gemm.problem import dual_mm, mm, mm_plus_mm, mm_with_sums
from conformance.heuristics.configs import ChainedConfig, Config
from conformance.judging.plan_rules import expected_grid, objection
from conformance.kernels import catalogue
from conformance.kernels.kernel import NotApplicable, Variant
from conformance.numerics.contract import FMA16
from conformance.problems import Layout
from conformance.records import ReasonCode
from tests.kernels import interpreter_runs

SMALL, LARGE = Config(32, 32, 16, 2, 4), Config(64, 64, 32, 2, 4)
PAIRS, THREES = ChainedConfig(32, 32, 16, 2, 4), ChainedConfig(32, 32, 16, 2, 4, chain=3)
LARGE_PAIRS = ChainedConfig(64, 64, 32, 2, 4)
HOPPER, AMPERE, AMD = (targets.find(name) for name in ("sm_90", "sm_80", "gfx942"))
COLUMN, STATIC = Layout("col"), Variant(static=True)

CASES = [
    *[("mm_chained", mm(40, 24, k, "bf16"), PAIRS) for k in (0, 16, 17, 32, 33, 64)],
    *[("mm_chained", mm(40, 24, k, "bf16"), PAIRS, STATIC) for k in (16, 48, 64)],
    *[("mm_chained", mm(24, 40, k, "fp32", layout_a=COLUMN, layout_b=Layout(step=2)), THREES) for k in (16, 40, 97)],
    ("mm_chained", mm(24, 24, 96, "fp32", precision="tf32", layout_out=COLUMN), THREES, STATIC),
    ("mm_plus_mm_one_loop", mm_plus_mm(40, 24, 24, "fp32", precision="tf32", layout_a=COLUMN), SMALL),
    ("mm_plus_mm_one_loop", mm_plus_mm(24, 40, 16, "bf16", layout_b=Layout(step=2)), SMALL),
    ("mm_plus_mm_one_loop", mm_plus_mm(24, 24, 32, "bf16"), SMALL, STATIC),
    ("mm_plus_mm_one_loop", mm_plus_mm(24, 24, 0, "bf16"), SMALL),
    ("mm_fp16_acc", mm(40, 24, 40, layout_a=COLUMN), SMALL),
    ("mm_fp16_acc", mm(24, 40, 32, layout_b=Layout(step=2)), SMALL, STATIC),
    ("mm_fp16_acc", mm(24, 24, 0), SMALL),
    ("dual_mm", dual_mm(40, 24, 40, "bf16", layout_a=COLUMN), SMALL),
    ("dual_mm", dual_mm(24, 40, 24, "fp32", layout_b=Layout(step=2), layout_out=COLUMN), SMALL),
    ("dual_mm", dual_mm(24, 24, 32, "fp32", precision="tf32", out_dtype="fp16"), SMALL, STATIC),
    ("dual_mm", dual_mm(24, 24, 0), SMALL),
    ("mm_with_sums", mm_with_sums(40, 72, 40, "bf16", layout_a=COLUMN), SMALL),
    ("mm_with_sums", mm_with_sums(24, 40, 32, "fp32", layout_a=Layout(step=2)), SMALL, STATIC),
    ("mm_with_sums", mm_with_sums(40, 0, 24), SMALL),
    ("mm_with_sums", mm_with_sums(40, 24, 0), SMALL),
    ("mm_with_sums", mm_with_sums(0, 24, 24), SMALL),
]


def _name(case):
    name, problem, config, *variant = case
    return "/".join(filter(None, (name, problem.id, config.id, *(v.id for v in variant))))


@pytest.fixture(scope="module")
def all_complaints():
    """The complaints about each case; one child process computes them all."""
    return dict(zip(map(_name, CASES), interpreter_runs.run(CASES), strict=True))


@pytest.mark.parametrize("case", CASES, ids=_name)
def test_numbers(all_complaints, case):
    assert all_complaints[_name(case)] == []


def _plan(name, problem, config=LARGE, target=HOPPER, **variant):
    return catalogue.get(name).plan(problem, config, target, Variant(**variant))


@pytest.mark.parametrize(
    ("name", "problem", "config", "code", "subject"),
    [
        ("mm_chained", mm(64, 64, 64, "bf16"), LARGE, ReasonCode.CONFIG, "chain"),
        ("mm_chained", mm(64, 64, 64, "fp16"), LARGE_PAIRS, ReasonCode.DTYPE, "a"),
        ("mm_chained", mm_plus_mm(64, 64, 64, "bf16"), LARGE_PAIRS, ReasonCode.OPERATION, "mm_plus_mm"),
        ("mm_chained", mm(64, 64, 64, "fp32"), ChainedConfig(128, 128, 64, 2, 4), ReasonCode.SHARED_MEMORY, None),
        ("mm_plus_mm_one_loop", mm(64, 64, 64, "bf16"), LARGE, ReasonCode.OPERATION, "mm"),
        ("mm_fp16_acc", mm(64, 64, 64, "bf16"), LARGE, ReasonCode.DTYPE, "out"),
        ("mm_fp16_acc", mm(64, 64, 64, "bf16", out_dtype="fp16"), LARGE, ReasonCode.DTYPE, "a"),
        ("mm_fp16_acc", mm(64, 64, 64, out_dtype="fp32"), LARGE, ReasonCode.DTYPE, "out"),
        ("mm_with_sums", mm(64, 64, 64), LARGE, ReasonCode.OPERATION, "mm"),
        ("dual_mm", mm(64, 64, 64), LARGE, ReasonCode.OPERATION, "mm"),
        ("dual_mm", dual_mm(64, 64, 64, "e4m3"), LARGE, ReasonCode.DTYPE, "a"),
        ("dual_mm", dual_mm(64, 64, 64, "fp32"), Config(128, 128, 64, 3, 4), ReasonCode.SHARED_MEMORY, None),
    ],
)
def test_typed_reason(name, problem, config, code, subject):
    with pytest.raises(NotApplicable) as refused:
        _plan(name, problem, config)
    reason = refused.value.reason
    assert (reason.code, reason.subject) == (code, subject or config.id), str(reason)
    if code != ReasonCode.SHARED_MEMORY:  # an estimate, which only who chooses among plans asks for
        kernel = catalogue.get(name)
        assert objection(kernel, kernel.draft(problem, config, HOPPER), reason) is None


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
