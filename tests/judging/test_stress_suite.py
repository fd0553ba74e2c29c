"""The suite of stress: its cases by tier, not run without a device, and a race that it catches."""

import contextlib
import dataclasses
from types import SimpleNamespace

import pytest
import torch

from conformance.cases.case_table import Selection, cases_of
from conformance.execution.compile.compilation import CompileResult
from conformance.execution.trial.fill_groups import fills_for
from conformance.judging.case_recorder import CaseEnded, CaseRecorder
from conformance.kernels.catalogue import catalogue, get
from conformance.records import ExecutorName, ReasonCode, Status
from conformance.suites import test_stress as suite
from conformance.targets import find
from tests.execution.test_trial import TorchExecutor

CPU = torch.device("cpu")


def cases(tier, kernels=()):
    return set(cases_of(suite.test_thousand_launches).table(Selection((), tier, kernels), ("kernel", "dtype")).rows)


def test_the_full_tier_has_each_kernel_with_each_dtype():
    assert cases("full") == {f"{k.name}-{dtype}" for k in catalogue().values() for dtype in k.dtype_names()}
    assert cases("exhaustive", ("mm",)) == {f"mm-{dtype}" for dtype in get("mm").dtype_names()}
    assert cases("default") == {f"{name}-{get(name).dtype_names()[0]}" for name in suite.SAMPLE}
    assert cases("quick") == set()


@pytest.mark.parametrize("name", [name for name, kernel in catalogue().items() if kernel.usable_on(find("sm_90"))])
def test_there_is_more_work_than_multiprocessors(name):
    kernel, target = get(name), find("sm_90")
    plan = suite.stressed_plan(kernel, kernel.dtype_names()[0], [target])
    programs = torch.Size(plan.grid).numel()
    assert kernel.persistent or programs > target.limits.multiprocessors


class Racing(TorchExecutor):
    """On a device, so it says; every ``every`` launches another program comes last and writes its value."""

    name = ExecutorName.DEVICE
    on_device = True

    def __init__(self, every=None):
        super().__init__()
        self.every = every

    def start(self, launch, *, observe=False):
        self.runs += 1
        out = launch.arguments["c_ptr"]
        out.fill_(1.0)
        if self.every and self.runs % self.every == 0:
            out[5, 7] = 2.0


def harness(executor, repeats=1):
    result = CompileResult(Status.PASS, SimpleNamespace(stages={}, resources=None), "", 0.0)
    settings = SimpleNamespace(has_gpu=True, compile_only=False, seed=0, repeats=repeats)
    pool = SimpleNamespace(submit=lambda *job: SimpleNamespace(result=lambda: result))
    return SimpleNamespace(
        settings=settings,
        targets=(find("sm_90"),),
        pool=pool,
        executor=executor,
        run=lambda work: work(),
        together=contextlib.nullcontext,
    )


@pytest.fixture
def small(monkeypatch):
    kernel = get("mm")
    problem = kernel.problem("fp16", 40, 24, 16)
    monkeypatch.setattr(type(kernel), "timed", lambda self, dtype: problem)
    monkeypatch.setattr(suite, "over_memory", lambda resources, target: [])
    monkeypatch.setattr(suite, "LAUNCHES", 60)
    monkeypatch.setattr(suite, "second_stream", lambda device, seed: contextlib.nullcontext(lambda number: None))


def judged(executor, kernel=None, repeats=1):
    recorder = CaseRecorder("test_stress.py::case")
    suite.test_thousand_launches(harness(executor, repeats), recorder, kernel or get("mm"), "fp16")
    return recorder


@pytest.mark.usefixtures("small")
def test_launches_that_agree_pass():
    recorder = judged(Racing())
    assert recorder.objection() is None
    assert [verdict.text for verdict in recorder.verdicts] == ["60 launches during other work agree in every bit"]
    assert recorder.record().executor == "device"


@pytest.mark.usefixtures("small")
def test_a_race_fails_and_the_verdict_says_how_often():
    recorder = judged(Racing(every=20))
    assert recorder.objection().startswith("check repeat/stress failed")
    assert "3 of 60 launches" in recorder.verdicts[0].text
    assert "launches 20, 40, 60; 1 elements of 'out', most often [5, 7], in 3 launches" in recorder.verdicts[0].text


@pytest.mark.usefixtures("small")
def test_repeats_make_more_launches():
    assert "6 of 120 launches" in judged(Racing(every=20), repeats=2).verdicts[0].text


class Undetermined:
    """mm with a contract that promises no equal bits."""

    def __init__(self, problem=None):
        self.kernel, self.problem = get("mm"), problem

    def __getattr__(self, name):
        return getattr(self.kernel, name)

    def timed(self, dtype):
        return self.problem or self.kernel.timed(dtype)

    def contract(self, plan, executor):
        return dataclasses.replace(self.kernel.contract(plan, executor), deterministic=False)


@pytest.mark.usefixtures("small")
def test_exact_values_stress_a_kernel_that_promises_no_equal_bits():
    kernel = Undetermined()
    plan = suite.stressed_plan(kernel, "fp16", [find("sm_90")])
    tensors = suite.tensors_of(kernel, plan, CPU, 0)
    exact, *_ = fills_for(plan.problem, kernel.contract(plan, ExecutorName.DEVICE), 0)
    assert torch.equal(tensors["a"], exact.inputs["a"])
    assert not torch.equal(tensors["a"], suite.tensors_of(get("mm"), plan, CPU, 0)["a"])
    assert "3 of 60" in judged(Racing(every=20), kernel).verdicts[0].text


@pytest.mark.usefixtures("small")
def test_without_an_exact_fill_such_a_kernel_is_not_applicable():
    addmm = get("addmm")
    inexact = addmm.problem("fp16", 40, 24, 16, alpha=0.3)
    kernel = Undetermined(inexact)
    kernel.kernel = addmm
    with pytest.raises(CaseEnded) as ended:
        judged(Racing(), kernel)
    assert (ended.value.status, ended.value.reason.subject) == (Status.NOT_APPLICABLE, "deterministic")


@pytest.mark.parametrize("changed", [{"has_gpu": False}, {"compile_only": True}])
def test_without_a_device_it_is_not_run_for_a_typed_reason(changed):
    without = harness(Racing())
    vars(without.settings).update(changed)
    with pytest.raises(CaseEnded) as ended:
        suite.test_thousand_launches(without, CaseRecorder("case"), get("mm"), "fp16")
    assert (ended.value.status, ended.value.reason.code) == (Status.NOT_RUN, ReasonCode.NO_DEVICE)
