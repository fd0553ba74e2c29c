"""Fills that run and are judged together: the verdicts are those of fills judged alone, whatever is wrong with them."""

import dataclasses

import pytest
import torch

from conformance.execution.trial import fill_groups
from conformance.execution.trial import trial as trial_module
from conformance.execution.trial.fill_groups import Kept, fills_at_once, fills_for, kept_group
from conformance.execution.trial.trial import JudgesDiffer, trial
from conformance.families.gemm.problem import mm
from conformance.numerics.verdict import AllowedValues
from conformance.problems import Layout
from tests.execution import test_trial as wrong
from tests.execution.test_trial import KERNEL, PLAN, PROBLEM, TorchExecutor

FAULTS = [
    None,
    wrong.wrong_grid,
    wrong.neighbour_overwritten,
    wrong.operand_overwritten,
    wrong.one_element_off,
    wrong.element_not_written,
    wrong.another_result_each_time,
]
CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _no_groups_are_left(monkeypatch):
    monkeypatch.setattr(fill_groups, "GROUPS", Kept(1 << 20, lambda group: group.size))
    monkeypatch.setattr(fill_groups, "FILLS", Kept(1 << 20, lambda fill: fill.nbytes))


def told(judged):
    return judged.verdicts, judged.digests, judged.diagnosis, judged.grid


@pytest.mark.parametrize("at_once", [1, 1 << 30], ids=["one by one", "all"])
@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: getattr(fault, "__name__", "right"))
def test_together_they_are_judged_as_alone(monkeypatch, fault, at_once):
    monkeypatch.setattr(fill_groups, "AT_ONCE", at_once)
    together = trial(KERNEL, PLAN, TorchExecutor(fault), compare=True)
    assert told(together) == told(trial(KERNEL, PLAN, TorchExecutor(fault)))
    assert together.passed == (fault is None)


@pytest.mark.parametrize(
    ("owner", "name", "blind"),
    [
        (AllowedValues, "judge", lambda self, out: _blind(out)),
        (trial_module.GuardedBatch, "changed", lambda self: torch.zeros(6, 2, dtype=torch.bool)),
    ],
    ids=["numbers", "memory"],
)
def test_a_judge_that_sees_nothing_is_found(monkeypatch, owner, name, blind):
    monkeypatch.setattr(owner, name, blind)
    fault = wrong.one_element_off if owner is AllowedValues else wrong.neighbour_overwritten
    with pytest.raises(JudgesDiffer, match="the device says right"):
        trial(KERNEL, PLAN, TorchExecutor(fault), compare=True)


def test_a_judge_that_sees_too_much_is_found(monkeypatch):
    monkeypatch.setattr(trial_module.GuardedBatch, "changed", lambda self: torch.ones(6, 2, dtype=torch.bool))
    with pytest.raises(JudgesDiffer, match="the device says wrong"):
        trial(KERNEL, PLAN, TorchExecutor(), compare=True)


def _blind(out):
    return torch.zeros(out.shape[:2], dtype=torch.bool), torch.full(out.shape[:1], torch.nan, dtype=torch.float64)


def test_a_zero_for_a_subnormal_is_right_where_the_contract_flushes_them(monkeypatch):
    """The device may only say that such a run may be wrong."""

    class Flushing(TorchExecutor):
        def run(self, launch, programs=None, *, observe=False):
            ran = super().run(launch, programs, observe=observe)
            out = launch.arguments["c_ptr"]
            out[(out.abs() < 2.0**-14)] = 0
            return ran

    class Kernel:
        launch = KERNEL.launch

        def contract(self, plan, executor):
            return dataclasses.replace(KERNEL.contract(plan, executor), flushes_subnormals=True)

    assert not trial(KERNEL, PLAN, Flushing(), compare=True).passed
    assert told(trial(Kernel(), PLAN, Flushing(), compare=True)) == told(trial(Kernel(), PLAN, Flushing()))


def test_layouts_share_a_group_and_nothing_else_does():
    problem, contract = mm(16, 24, 8), KERNEL.contract(PLAN, TorchExecutor.name)
    names = ("randn", "hot")
    group = kept_group(problem, contract, 0, names, CPU)
    assert [fill.name for fill in group.fills] == [*names]
    assert kept_group(dataclasses.replace(problem, layout_a=Layout(pad=8)), contract, 0, names, CPU) is group
    others = [(mm(16, 24, 9), 0, names), (problem, 1, names), (problem, 0, names[:1])]
    assert all(kept_group(other, contract, seed, these, CPU) is not group for other, seed, these in others)
    again = dataclasses.replace(contract, flushes_subnormals=True)
    assert kept_group(problem, again, 0, names, CPU) is not group
    assert group.size == sum(t.nbytes for t in (*group.inputs.values(), *tensors(group.limits["out"])))


def tensors(limits):
    return [getattr(limits.interval, field.name) for field in dataclasses.fields(limits.interval)]


def test_a_fill_is_made_once(monkeypatch):
    contract = KERNEL.contract(PLAN, TorchExecutor.name)
    first = fills_for(PROBLEM, contract, 0)
    padded = fills_for(dataclasses.replace(PROBLEM, layout_a=Layout(pad=8)), contract, 0, ("randn", "hot"))
    assert [fill.name for fill in first if fill in padded] == ["randn", "hot"]


def test_large_problems_run_one_fill_at_a_time():
    assert fills_at_once(mm(64, 64, 64)) > 6
    assert fills_at_once(mm(1200, 1200, 64)) == 1
    assert fills_at_once(mm(4096, 4096, 64)) == 0
    assert fills_at_once(mm(64, 64, 64, layout_a=Layout(pad=2**24))) == 0


@pytest.mark.parametrize("fault", [None, wrong.last_bit_each_time, wrong.another_result_each_time])
def test_together_a_kernel_that_promises_no_equal_bits_is_judged_as_alone(fault):
    kernel = wrong.Undetermined()
    together = trial(kernel, PLAN, TorchExecutor(fault), compare=True)
    assert told(together) == told(trial(kernel, PLAN, TorchExecutor(fault)))
    assert "repeat/randn" not in {verdict.check for verdict in together.verdicts}
