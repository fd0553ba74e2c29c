"""Random problems: a number names one problem, and the stream reaches every corner."""

from __future__ import annotations

import pytest

from conformance.cases import random_problems
from conformance.cases.random_problems import random_plan
from conformance.families import draw
from conformance.families.gemm.problem import mm
from conformance.heuristics.configs import Config
from conformance.kernels.catalogue import catalogue, get
from conformance.kernels.kernel import Kernel, NotApplicable, Variant
from conformance.problems import Layout
from conformance.records import Reason, ReasonCode
from conformance.targets import find

AMPERE, HOPPER, BLACKWELL = find("sm_80"), find("sm_90"), find("sm_100")


@pytest.mark.parametrize("name", [name for name, kernel in catalogue().items() if kernel.offered])
def test_every_kernel_draws_what_it_takes(name):
    kernel = get(name)
    target = next(target for target in (HOPPER, BLACKWELL, AMPERE) if kernel.usable_on(target))
    plan = random_plan(kernel, 0, target, large=False)
    assert plan.kernel == name
    assert kernel.refusal(plan) is None
    assert random_plan(kernel, 0, target, large=False) == plan
    others = [random_plan(kernel, seed, target, large=False) for seed in range(1, 6)]
    assert len({plan, *others}) == 6, "each number names another problem"


def test_a_stream_belongs_to_one_kernel():
    first, second = (random_plan(get(name), 0, HOPPER, large=False) for name in ("mm", "contiguous_mm"))
    assert (first.problem, first.config) != (second.problem, second.config)


def test_configs_replace_those_of_the_kernel():
    small = Config(16, 16, 16, 2, 4)
    assert {random_plan(get("mm"), seed, HOPPER, large=False, configs=(small,)).config for seed in range(9)} == {small}


class Refusing(type(get("mm"))):
    """Takes nothing."""

    def refusal(self, plan):
        return Reason(ReasonCode.LAYOUT, "a", "never")


def test_a_kernel_that_takes_nothing_gives_its_reason(monkeypatch):
    monkeypatch.setattr(random_problems, "PATIENCE", 20)
    kernel: Kernel = Refusing("shy", "mm", "mm")
    with pytest.raises(NotApplicable, match=r"shy refuses: layout \(a\): never"):
        random_plan(kernel, 0, HOPPER, large=False)


class WholeTilesOnly(type(get("mm"))):
    """Takes no dimension with a rest."""

    def refusal(self, plan):
        problem, config = plan.problem, plan.config
        if problem.M % config.block_m or problem.N % config.block_n or 2 * config.block_m > problem.M:
            return Reason(ReasonCode.EXTENT, "a", "whole tiles only")
        return super().refusal(plan)


def test_a_kernel_that_refuses_what_is_drawn_gets_an_example(monkeypatch):
    monkeypatch.setattr(random_problems, "PATIENCE", 3)
    plan = random_plan(WholeTilesOnly("whole", "mm", "mm"), 0, HOPPER, large=False)
    assert (2 * plan.config.block_m, 2 * plan.config.block_n) == (plan.problem.M, plan.problem.N)


def corners(plans):
    """The kinds of problem among ``plans``."""
    features = set()
    for plan in plans:
        problem, config = plan.problem, plan.config
        layouts = (problem.layout_a, problem.layout_b, problem.layout_out)
        for name, size, block in (
            ("M", problem.M, config.block_m), ("N", problem.N, config.block_n), ("K", problem.K, config.block_k),
        ):  # fmt: skip
            features |= {f"{name} {size}"} if size in (0, 1) else {f"{name} tail"} if size % block else {f"{name} even"}
        features |= {f"{layout.order}" for layout in layouts}
        features |= {"padded" for layout in layouts if layout.pad}
        features |= {"strided" for layout in layouts if layout.step > 1}
        features |= {"shifted" for layout in layouts if layout.offset}
        features |= {problem.dtype, problem.precision, "static" if plan.variant.static else "dynamic"}
        features |= {"widened" for _ in "x" if problem.out_dtype == "fp32" != problem.dtype}
    return features


EXPECTED = {
    *("M 1", "M tail", "N 1", "N tail", "K 0", "K 1", "K tail", "K even"),
    *("row", "col", "padded", "strided", "shifted", "static", "dynamic", "widened"),
    *("bf16", "fp16", "fp32", "ieee", "tf32"),
}


def test_200_seeds_reach_every_corner():
    plans = [random_plan(get("mm"), seed, HOPPER, large=False) for seed in range(200)]
    assert EXPECTED - corners(plans) == set()
    assert len(set(plans)) > 195


def test_a_stream_without_corners_is_seen(monkeypatch):
    monkeypatch.setattr(draw, "SIZES", (64,))
    monkeypatch.setattr(draw, "K_SIZES", (64,))
    monkeypatch.setattr(draw.Draw, "layout", lambda self, *arguments: Layout())
    plans = [random_plan(get("mm"), seed, HOPPER, large=False) for seed in range(50)]
    assert EXPECTED - corners(plans) >= {"M 1", "K 0", "K 1", "col", "padded", "strided", "shifted"}


def test_large_sizes_are_for_a_device():
    def largest(large):
        plans = [random_plan(get("mm"), seed, HOPPER, large=large) for seed in range(60)]
        return max(max(plan.problem.M, plan.problem.N, plan.problem.K) for plan in plans)

    assert largest(False) <= max(*draw.SIZES, *draw.K_SIZES) < largest(True)


def test_variants_of_a_descriptor_kernel():
    variants = {random_plan(get("mm_persistent_tma"), seed, HOPPER, large=False).variant for seed in range(60)} - {
        Variant()
    }
    for field, values in (
        ("tma_store", {False, True}), ("descriptors", {"host", "device"}), ("epilogue_subtile", {1, 2, 4}),
        ("flatten", {False, True}), ("static", {False, True}), ("sms", {None, 2, 3}),
    ):  # fmt: skip
        assert {getattr(variant, field) for variant in variants} == values, field


def test_the_refusing_kernel_is_not_the_only_one_that_refuses():
    """The kernels' own refusals are asked: of what is drawn for contiguous_mm only a B worth copying is left."""
    plans = [random_plan(get("contiguous_mm"), seed, HOPPER, large=False) for seed in range(20)]
    assert all(plan.problem.operand("b").strides != (plan.problem.N, 1) for plan in plans)
    contiguous = mm(8, 8, 8)
    kernel = get("contiguous_mm")
    assert kernel.refusal(kernel.draft(contiguous, plans[0].config, HOPPER)) is not None
