"""Steps that cases share."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from conformance.families.gemm.problem import mm
from conformance.judging.case_recorder import CaseEnded, CaseRecorder
from conformance.judging.harness import need_device, needed, record
from conformance.judging.inductor_judge import Inductor
from conformance.machine import device_state
from conformance.problems import Layout
from conformance.records import Reason, ReasonCode, Status, Verdict
from conformance.targets import find


def test_every_verdict_is_recorded_and_a_failed_one_fails_the_case() -> None:
    recorder = CaseRecorder("a case")
    record(recorder, [Verdict("numbers", False, "3 wrong", {"wrong": 3}), Verdict("source", True)], "call 1/")
    assert [verdict.check for verdict in recorder.verdicts] == ["call 1/numbers", "call 1/source"]
    assert recorder.verdicts[0].details == {"wrong": 3}
    assert recorder.objection() == "check call 1/numbers failed, but the test did not: 3 wrong"


@pytest.mark.parametrize(("has_gpu", "compile_only"), [(False, False), (True, True)])
def test_a_case_ends_where_nothing_runs_on_a_device(has_gpu: bool, compile_only: bool) -> None:
    harness: Any = SimpleNamespace(settings=SimpleNamespace(has_gpu=has_gpu, compile_only=compile_only))
    with pytest.raises(CaseEnded, match="timing: a GPU is required") as ended:
        need_device(harness, CaseRecorder("a case"), "timing")
    assert (ended.value.status, ended.value.reason.code) == (Status.NOT_RUN, ReasonCode.NO_DEVICE)


def test_a_case_goes_on_with_a_device() -> None:
    harness: Any = SimpleNamespace(settings=SimpleNamespace(has_gpu=True, compile_only=False))
    need_device(harness, CaseRecorder("a case"), "timing")


def test_a_case_ends_where_code_is_only_compiled_for_its_target() -> None:
    harness: Any = SimpleNamespace(settings=SimpleNamespace(has_gpu=True, compile_only=False))
    inductor = Inductor(harness, CaseRecorder("a case"))
    with pytest.raises(CaseEnded, match="timing: a GPU is required, and for sm_90 code is only compiled") as ended:
        inductor.need_device("timing", find("sm_90"))
    assert (ended.value.status, ended.value.reason.code) == (Status.NOT_RUN, ReasonCode.NO_DEVICE)
    inductor.need_device("timing", replace(find("sm_90"), device_index=0))


@pytest.mark.parametrize("short", [True, False])
def test_a_case_ends_before_it_compiles_what_a_device_has_no_memory_for(
    monkeypatch: pytest.MonkeyPatch, short: bool
) -> None:
    problem = mm(50257, 768, 2048, "bf16", layout_a=Layout("col", pad=47))
    reason = Reason(ReasonCode.NO_DEVICE, "memory", "0.3 GiB of device memory are needed")
    asked: list[int] = []
    monkeypatch.setattr(device_state, "shortage", lambda size: (asked.append(size), reason if short else None)[1])
    harness: Any = SimpleNamespace(settings=SimpleNamespace(has_gpu=True, compile_only=False, tier="quick"))
    inductor = Inductor(harness, CaseRecorder("a case"))

    def compiled(*arguments: Any) -> Any:
        raise ZeroDivisionError

    monkeypatch.setattr(inductor, "compile", compiled)
    run = inductor.pinned(problem, replace(find("sm_90"), device_index=0), "mm")
    with pytest.raises(CaseEnded if short else ZeroDivisionError) as ended:
        next(run)
    assert asked == [needed(problem)]
    if short:
        assert isinstance(ended.value, CaseEnded)
        assert (ended.value.status, ended.value.reason) == (Status.NOT_RUN, reason)


def test_a_device_has_the_large_of_two_sizes() -> None:
    for has_gpu, size in ((True, 2560), (False, 64)):
        harness: Any = SimpleNamespace(settings=SimpleNamespace(has_gpu=has_gpu))
        assert Inductor(harness, CaseRecorder("a case")).sized(2560, 64) == size
