"""A fault of the device is the failure of the case that made it: its verdict is recorded, and nothing else is asked."""

import contextlib
from types import SimpleNamespace

import pytest

from conformance.execution.device.fault_search import DeviceFault
from conformance.judging import harness
from conformance.judging.case_recorder import CaseRecorder
from conformance.judging.harness import faults_explained, record_edges
from conformance.records import ConformanceFailure, Verdict

HARNESS = SimpleNamespace(settings=SimpleNamespace(seed=3), together=contextlib.nullcontext)
VERDICT = Verdict("memory/randn", False, "the kernel reads behind 'a'")


def lose(recorder, *, named=True, fault="sticky", monkeypatch):
    asked = []

    def fault_of(*arguments):
        asked.append(arguments)
        return DeviceFault(VERDICT, named)

    monkeypatch.setattr(harness, "device_fault", lambda: fault)
    monkeypatch.setattr(harness, "fault_of", fault_of)
    with faults_explained(HARNESS, recorder, "kernel", "plan", ("randn",)):
        raise ValueError("illegal memory access")
    return asked


@pytest.mark.parametrize("named", [True, False])
def test_the_verdict_is_recorded_and_the_case_fails(monkeypatch, named):
    recorder = CaseRecorder("suite::case")
    with pytest.raises(ConformanceFailure, match="memory/randn: the kernel reads behind 'a'") as raised:
        lose(recorder, named=named, monkeypatch=monkeypatch)
    assert recorder.verdicts == [VERDICT]
    assert recorder.fault_named is named
    assert raised.value.__cause__ is None


def test_an_error_that_leaves_the_device_as_it_was_stays_what_it_is(monkeypatch):
    recorder = CaseRecorder("suite::case")
    with pytest.raises(ValueError, match="illegal memory access"):
        lose(recorder, fault=None, monkeypatch=monkeypatch)
    assert recorder.verdicts == []
    assert not recorder.fault_named


def test_nothing_is_asked_of_a_case_without_an_error(monkeypatch):
    monkeypatch.setattr(harness, "device_fault", lambda: pytest.fail("asked"))
    with faults_explained(HARNESS, CaseRecorder("suite::case"), None, None, None):
        pass


def test_the_record_keeps_that_a_trial_had_no_operands_at_unmapped_pages():
    recorder = CaseRecorder("suite::case")
    for at_edges, kept in (
        ("", None),
        ("transparent", "transparent"),
        ("none: too large", "none: too large"),
        ("transparent", "none: too large"),
    ):
        record_edges(recorder, SimpleNamespace(at_edges=at_edges))
        assert recorder.record().observed.get("unmapped_pages") == kept
