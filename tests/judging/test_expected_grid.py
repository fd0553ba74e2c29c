"""The harness's own formula of a grid: what each kernel plans, and what one program more or less gives."""

from __future__ import annotations

import dataclasses

import pytest

from conformance import targets
from conformance.judging.conform import CaseJudge
from conformance.judging.plan_rules import expected_grid
from conformance.kernels import carveout, catalogue
from conformance.kernels.kernel import Variant

TARGETS = targets.compile_targets()
KERNELS = [kernel for kernel in catalogue.own_kernels().values() if kernel.offered]


@pytest.mark.parametrize("kernel", KERNELS, ids=lambda kernel: kernel.name)
def test_each_kernel_plans_the_grid_of_the_formula(kernel):
    count = 0
    for config in kernel.configs:
        target = next((t for t in TARGETS if kernel.example_refusal(kernel.dtype_names()[0], config, t) is None), None)
        if target is None:
            continue
        problem, variant = kernel.example(kernel.dtype_names()[0], config), config.in_variant(kernel.example_variant())
        plan = kernel.plan(problem, config, target, variant)
        assert expected_grid(kernel, plan, carveout.current()) == plan.grid
        assert not CaseJudge(None, None, kernel, plan).grid_verdicts()
        for wrong in (1, -1):
            other = dataclasses.replace(plan, grid=(plan.grid[0] + wrong, *plan.grid[1:]))
            verdicts = CaseJudge(None, None, kernel, other).grid_verdicts()
            assert [verdict.passed for verdict in verdicts] == [False]
            assert "is required by the sizes and blocks" in verdicts[0].text
        count += 1
    assert count


@pytest.mark.parametrize(("reserve", "programs"), [(0, 30), (27, 3), (29, 1), (30, 1), (None, 30)])
def test_a_reserve_leaves_one_program_at_least(reserve, programs):
    kernel, target = catalogue.get("mm_persistent_tma"), targets.find("sm_90")
    config = kernel.configs[0]
    problem = kernel.problem("fp16", 6 * config.block_m, 6 * config.block_n, config.block_k)
    with carveout.reserved(reserve):
        plan = kernel.plan(problem, config, target, Variant(sms=30))
        assert plan.grid == expected_grid(kernel, plan, carveout.current()) == (programs,)
