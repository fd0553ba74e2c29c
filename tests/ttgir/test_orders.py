"""The orders in which a text runs, and the problems of other sizes that it serves."""

from __future__ import annotations

import dataclasses

import pytest

from conformance import targets
from conformance.execution.compile.specialisation import specialisation
from conformance.families.gemm.problem import mm
from conformance.heuristics.configs import Config
from conformance.kernels.catalogue import get, meta_launch
from conformance.kernels.kernel import Variant
from conformance.problems import Layout
from conformance.ttgir.machine import SCHEDULES, Agent, ProgramRun, Schedule, agents_of, orders_of
from conformance.ttgir.memory import GlobalMemory
from conformance.ttgir.problem_sizes import EMPTINESS, TILES, problems_of
from conformance.ttgir.text import parse

ONE = "module {\n  tt.func public @f() {\n    tt.return\n  }\n}"
COPIES = ONE.replace("    tt.return", "    %0 = ttg.async_wait {num = 0 : i32}\n    tt.return")
PARTITIONS = """module {
  tt.func public @f(%n: i32) {
    ttg.warp_specialize(%n) attributes {requestedRegisters = array<i32: 24, 24>}
    default {
      ttg.warp_yield
    }
    partition0(%a: i32) num_warps(4) {
      ttg.warp_return
    }
    partition1(%a: i32) num_warps(1) {
      ttg.warp_return
    } : (i32) -> ()
    tt.return
  }
}"""


def test_each_agent_is_last_in_turn():
    module = parse(PARTITIONS)
    assert agents_of(module) == ["the program", "partition0", "partition1"]
    orders = orders_of(module, seeds=2)
    assert [order.starved for order in orders if order.starved] == [name for name in agents_of(module) for _ in "ab"]
    assert len({order.name for order in orders}) == len(orders) == len(SCHEDULES) + 6 + 2


def test_what_is_not_asynchronous_has_one_order():
    assert [order.name for order in orders_of(parse(ONE))] == ["eager"]
    assert [order.name for order in orders_of(parse(COPIES), seeds=1)] == [*(s.name for s in SCHEDULES), "random 0"]


def test_the_agent_that_is_last_goes_when_no_other_can():
    program = ProgramRun((0, 0, 0), (1, 1, 1), GlobalMemory(()), Schedule("first last", starved="first"))
    went = []

    def steps(agent, count):
        for _ in range(count):
            went.append(agent.name)
            agent.tick()
            yield

    agents = [Agent(program, name, {}) for name in ("first", "second")]
    program.spawn(agents[1], steps(agents[1], 3))
    program.run(agents[0], steps(agents[0], 2))
    assert went == ["second"] * 3 + ["first"] * 2


def plan_of(kernel, problem, config, target, variant=None):
    return get(kernel).plan(problem, config, targets.find(target), variant)


def served(plan):
    """Returns the specialisation of a plan's main launch, but for constants that say whether operands are empty."""
    key = specialisation(meta_launch(plan, plan.target), plan.target)
    return [pair for pair in key.arguments if pair[0] not in EMPTINESS]


@pytest.mark.parametrize("k", [176, 183])
def test_the_loop_has_few_and_many_steps(k):
    plan = plan_of("mm", mm(136, 56, k, layout_a=Layout(pad=-k % 8 + 8)), Config(64, 64, 32, 3, 4), "sm_90")
    problems = problems_of(plan)
    assert problems[0] is plan
    steps = {-(-one.problem.K // 32) for one in problems[1:]}
    assert steps >= {1, 2, 5}
    assert 0 in steps or k % 16  # an operand of no k has rows 16 elements apart, or one
    assert all((one.problem.M, one.problem.N) == (8, 56) for one in problems[1:])
    assert all(served(one) == served(plan) for one in problems)


def test_one_program_wraps_its_accumulators_twice():
    variant = Variant(flatten=True, sms=2)
    plan = plan_of("mm_blackwell_ws", mm(600, 56, 176), Config(128, 64, 64, 3, 4), "sm_100", variant)
    problems = problems_of(plan)
    assert max(-(-one.problem.M // 128) for one in problems if one.grid == (1,)) == TILES
    assert {one.problem.K for one in problems} >= {0}
    assert all(served(one) == served(plan) for one in problems)


def test_sizes_that_the_code_knows_are_not_changed():
    plan = plan_of("mm", mm(136, 56, 176), Config(64, 64, 32, 3, 4), "sm_90", Variant(static=True))
    assert problems_of(plan) == [plan]


def test_gradients_walk_through_keys_and_queries():
    kernel, target = get("attention_backward"), targets.find("sm_90")
    config = next(config for config in kernel.configs if config.num_stages == 3)
    way = kernel.fitted("bf16", config, target)
    plan = kernel.plan(way.example("bf16", config, "ragged"), config, target)
    most = max(problems_of(plan), key=lambda one: one.problem.keys)
    blocks = dataclasses.astuple(config)[:2]
    assert -(-most.problem.queries // blocks[0]) >= config.num_stages + 2
    assert -(-most.problem.keys // blocks[1]) >= config.num_stages + 2
