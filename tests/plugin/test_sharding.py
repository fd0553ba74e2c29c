"""The cut of a selection in the process that leads a run, and what run.json says of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from conformance.judging.settings import Settings
from conformance.machine.gpus import Gpus
from conformance.plugin.compile_stage import CannotCut, kernels_of
from conformance.plugin.sharding import Sharding
from conformance.shards.numbers import ShardNumber
from conformance.user_files.expected_failures import ExpectedFailures

SETTINGS = Settings("quick", (), (), (), 0, None, Gpus(), None, 60.0, (), ExpectedFailures())
STACK = {"triton": "3.9.0", "device": "NVIDIA H100"}
NODEIDS = [f"suites/test_a.py::test_x[{number}]" for number in range(6)] + ["tests/test_other.py::test_y"]


class CaseIds:
    """Stands for that of a run: what lies below ``suites`` is a case."""

    suites = ()

    def __call__(self, nodeid):
        return nodeid.removeprefix("suites/") if nodeid.startswith("suites/") else None


def sharding(number=1, count=2, kernels=None, **changes):
    settings = replace(SETTINGS, shard=ShardNumber(number, count), **changes)
    return Sharding(settings, CaseIds(), Path(), kernels)


def test_each_test_has_one_shard_and_others_than_cases_are_in_the_first():
    first, second = (sharding(number).cut(NODEIDS) for number in (1, 2))
    assert sorted([*first, *second]) == [*range(len(NODEIDS))]
    assert len(NODEIDS) - 1 in first
    assert first == sorted(first)


def test_cases_that_share_a_kernel_have_one_shard():
    def kernels(cases):
        return {case: ["k"] for case in cases if case in ("test_a.py::test_x[0]", "test_a.py::test_x[5]")}

    places = [sharding(number, kernels=kernels).cut(NODEIDS) for number in (1, 2)]
    assert any({0, 5} <= {*own} for own in places)


def test_one_shard_plans_nothing():
    def kernels(cases):
        raise AssertionError

    assert sharding(1, 1, kernels).cut(NODEIDS) == [*range(len(NODEIDS))]


def test_the_order_of_the_tests_does_not_change_the_plan():
    plans = []
    for nodeids in (NODEIDS, NODEIDS[::-1]):
        one = sharding()
        one.cut(nodeids)
        plans.append(one.shard(STACK).digest)
    assert plans[0] == plans[1]


@pytest.mark.parametrize(
    "changes",
    [
        *({"seed": 1}, {"tier": "full"}, {"targets": ("sm_90",)}, {"repeats": 2}, {"reruns": 1}, {"ttgir": "never"}),
        *({"compile_only": True}, {"require": "executed"}, {"case_timeout_s": 1.0}, {"compiled": Path("kernels")}),
        *({"gpus": Gpus(entries=("0",))}, {"declared": {"mine": "what a kernel says of itself"}}),
    ],
    ids=str,
)
def test_what_changes_the_judgement_changes_the_plan(changes):
    usual, other = sharding(), sharding(**changes)
    assert usual.cut(NODEIDS) == other.cut(NODEIDS)
    assert usual.shard(STACK).digest != other.shard(STACK).digest


def test_a_file_of_expected_failures_counts_by_its_content(tmp_path):
    file = tmp_path / "expected.toml"
    digests = set()
    for text in ("", "# nothing\n"):
        file.write_text(text)
        one = sharding(expected_failure_files=(str(file),))
        one.cut(NODEIDS)
        digests.add(one.shard(STACK).digest)
    assert len(digests) == 2


@pytest.mark.parametrize("changes", [{"run_dir": Path("other")}, {"reproducers": Path("scripts")}], ids=str)
def test_where_files_go_does_not_change_the_plan(changes):
    usual, other = sharding(), sharding(**changes)
    usual.cut(NODEIDS)
    other.cut(NODEIDS)
    assert usual.shard(STACK).digest == other.shard(STACK).digest


def test_another_stack_is_another_plan_and_another_device_is_not():
    one = sharding()
    one.cut(NODEIDS)
    plan = one.shard(STACK).plan
    assert one.shard({**STACK, "triton": "3.8.0"}).plan != plan
    assert one.shard({**STACK, "device": "NVIDIA H200"}).plan == plan


def test_cases_that_cannot_be_planned_end_the_run(monkeypatch):
    from conformance.judging import compile_stage

    def fails(self, *arguments):
        raise compile_stage.CannotBePlanned("48 cases from a on could not be planned: no memory")

    monkeypatch.setattr(compile_stage.CompileStage, "kernels", fails)
    with pytest.raises(CannotCut, match=r"the shards cannot be cut: 48 cases from a on .*; run this shard again"):
        kernels_of(SETTINGS, None, ["a"])
