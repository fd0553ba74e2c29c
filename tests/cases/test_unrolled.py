"""fp32 is unrolled: the sampled tiers keep it to configs that compile within seconds, and lose nothing else by it."""

from __future__ import annotations

import math

import pytest

from conformance.cases import kernel_answers, random_problems, selected_rows, unrolled
from conformance.cases.random_problems import random_plan
from conformance.cases.scenarios import Scenario, every_kernel
from conformance.cases.unrolled import LIMIT, UNROLLED, multiply_adds, within_limit
from conformance.families.gemm.problem import mm
from conformance.heuristics.configs import Config
from conformance.kernels.catalogue import catalogue, get
from conformance.kernels.kernel import NotApplicable
from conformance.targets import compile_targets, find
from tests.cases.case_rows import rows

HOPPER = find("sm_90")
TEST = Scenario(every_kernel, {"order": "ab"})
SWEEP = Scenario(every_kernel, {"shape": ["ragged"]}, every_config=True)
SMALL, LARGE = Config(32, 32, 16, 1, 2), Config(128, 128, 64, 3, 4)
BOTH = (SMALL, LARGE)


def test_multiply_adds_of_a_thread():
    kernel = get("mm")
    assert multiply_adds(kernel, kernel.example("fp32", LARGE), LARGE) == 128 * 128 * 64 / 128
    assert multiply_adds(kernel, kernel.example("fp32", SMALL), SMALL) == 256 <= LIMIT
    # scores and values, with a mask and without, of 64 channels; the gradients have twice as many products
    for name, products in (("attention", 4), ("attention_backward", 8)):
        config = get(name).configs[0]
        each = math.prod(config.tile) * 64 / (32 * config.num_warps)
        assert multiply_adds(get(name), get(name).example("fp32", config), config) == products * each
    config = get("attention_decode").configs[0]
    few = get("attention_decode").example("fp32", config)
    assert multiply_adds(get("attention_decode"), few, config) == 4 * 16 * config.block_n * 64 / (32 * config.num_warps)


@pytest.mark.parametrize(
    ("dtype", "precision", "config", "others", "kept"),
    [
        ("fp32", "ieee", SMALL, BOTH, True),
        ("fp32", "ieee", LARGE, BOTH, False),
        ("fp32", "ieee", LARGE, (LARGE,), True),  # the least that there is
        ("fp32", "tf32", LARGE, BOTH, True),  # matrix units multiply it
        ("bf16", "ieee", LARGE, BOTH, True),
    ],
)
def test_what_is_within_the_limit(dtype, precision, config, others, kept):
    problem = mm(64, 64, 64, dtype, precision=precision)
    assert within_limit(get("mm"), problem, config, others) is kept


def long_compilations(scene, tier):
    """(kernel, config) of fp32 that one thread has more multiply-adds of than the limit and the kernel's least."""
    over = []
    for name, kernel in catalogue().items():
        whole, shown = (of(scene, kernel, one, UNROLLED) for one in ("full", tier))
        work = {c: multiply_adds(kernel, kernel.example(UNROLLED, c), c) for c in (*whole, *shown)}
        most = max(LIMIT, min((work[config] for config in whole), default=0))
        over += [(name, config) for config in shown if work[config] > most]
    return over


def of(scene, kernel, tier, dtype):
    """The configs that a dtype of a kernel has."""
    if dtype not in kernel.dtype_names():
        return []
    selected = [
        (d, c)
        for t, d, c, *_ in rows(scene, kernel, compile_targets() if tier == "quick" else [HOPPER], tier)
        if d == dtype
    ]
    return [c for d, c in selected if tier == "quick" or kernel.example_refusal(d, c, HOPPER) is None]


@pytest.mark.parametrize("tier", ["quick", "default"])
@pytest.mark.parametrize("scene", [TEST, SWEEP], ids=["test", "sweep"])
def test_sampled_tiers_keep_to_the_limit(scene, tier, monkeypatch):
    assert long_compilations(scene, tier) == []
    monkeypatch.setattr(unrolled, "LIMIT", 10**9)
    assert long_compilations(scene, tier)


def test_the_full_tier_keeps_everything():
    assert {name for name, _ in long_compilations(SWEEP, "full")} >= {"mm", "attention", "attention_backward"}


def test_no_dtype_is_lost_by_the_limit(monkeypatch):
    def dtypes():
        return {name: {row[1] for row in rows(SWEEP, get(name), [HOPPER], "default")} for name in catalogue()}

    limited = dtypes()
    monkeypatch.setattr(unrolled, "LIMIT", 10**9)
    assert limited == dtypes()
    assert "fp32" in limited["mm"]
    assert "fp32" in limited["attention_backward"]


def test_the_quick_tier_has_the_dtype_where_a_config_keeps_to_the_limit(monkeypatch):
    def having():
        return {name for name in catalogue() if of(SWEEP, get(name), "quick", UNROLLED)}

    assert {"mm", "scaled_mm"} & having() == {"mm"}
    assert not having() & {"attention", "attention_backward"}
    monkeypatch.setattr(unrolled, "LIMIT", 10**9)
    assert having() >= {"mm", "attention", "attention_backward"}


def test_the_quick_tier_keeps_the_least_of_a_kernel_that_has_no_other_dtype():
    kernel = get("attention")
    rows = [("fp32", config, HOPPER) for config in kernel.configs]
    kept = kernel_answers.soon_compiled(kernel, rows, "quick")
    assert [config for _, config, _ in kept] == [min(kernel.configs, key=lambda config: math.prod(config.tile))]
    with_another = [*rows, ("bf16", kernel.configs[0], HOPPER)]
    assert kernel_answers.soon_compiled(kernel, with_another, "quick") == with_another[-1:]


def drawn(**options):
    """Random plans of mm that are unrolled."""
    plans = [random_plan(get("mm"), seed, HOPPER, large=True, **options) for seed in range(120)]
    return [plan for plan in plans if (plan.problem.dtype, plan.problem.precision) == (UNROLLED, "ieee")]


def test_random_problems_keep_to_the_limit_if_asked(monkeypatch):
    def over(plans):
        return [plan for plan in plans if multiply_adds(get("mm"), plan.problem, plan.config) > LIMIT]

    assert over(drawn())
    assert drawn(soon_compiled=True)
    assert not over(drawn(soon_compiled=True))
    monkeypatch.setattr(random_problems, "within_limit", lambda *arguments: True)
    assert over(drawn(soon_compiled=True))


def test_selected_rows_keep_to_the_limit_and_every_dtype(monkeypatch):
    def over():
        return [
            (name, config)
            for name, kernel in catalogue().items()
            for _, dtype, config, size in selected_rows.rows(kernel, [HOPPER], "default")
            if dtype == UNROLLED and not allowed(kernel, config, size)
        ]

    def allowed(kernel, config, size):
        table = selected_rows.selected(kernel, UNROLLED, HOPPER)
        others = [row[0] for row, problem in table.items() if takes(kernel, problem, row[0])]
        return within_limit(kernel, table[config, size], config, others)

    def takes(kernel, problem, config):
        try:
            return bool(kernel.plan(problem, config, HOPPER, kernel.example_variant()))
        except NotApplicable:
            return False

    assert over() == []
    dtypes = {dtype for _, dtype, *_ in selected_rows.rows(get("attention"), [HOPPER], "default")}
    assert dtypes == set(get("attention").dtype_names())
    monkeypatch.setattr(selected_rows, "_soon_compiled", lambda kernel, rows, target: rows)
    assert over()
