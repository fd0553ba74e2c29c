"""The judgement of the self-test itself: what is not as it must be is reported, for each fault."""

from __future__ import annotations

import signal
import subprocess
from dataclasses import replace

import pytest

from conformance.gate.evidence.selftest_result import FaultResult, SelftestResult, read_selftest, to_json
from conformance.records import CaseRecord, Fault, FaultKind, Reason, ReasonCode, Status, Verdict
from conformance.selftest import planting, session
from conformance.selftest.faults import FAULTS, Edit
from conformance.selftest.judge import SeenRun, judged

NEIGHBOURS = ("innocent_0", "innocent_1")


def record_of(kernel, status="pass", **fields):
    return CaseRecord(f"test_a.py::test[{kernel}]", "a", Status(status), kernel=kernel, **fields)


def as_it_must_be(fault):
    """The record that a run must make of a fault."""
    checks = [Verdict(f"{check}x", False, fault.words) for check in fault.checks[:1]]
    kind = fault.kinds[0]
    of_machine = Fault.of(FaultKind(kind), "text") if kind else None
    return record_of(
        fault.planted_kernel, fault.statuses[0], verdicts=tuple(checks), diagnosis=fault.words, fault=of_machine
    )


def result_of(fault, record, **fields):
    neighbours = {name: [record_of(name)] for name in NEIGHBOURS}
    records = {**neighbours, **({fault.planted_kernel: [record]} if record is not None else {})}
    return judged(fault, SeenRun(**{"records": records, "marks": fault.marks, **fields}), NEIGHBOURS)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_each_deviation_is_reported(fault):
    right = as_it_must_be(fault)
    good = result_of(fault, right)
    assert good.contained
    assert (good.passed, good.innocent) == (2, 2)
    other = next(status for status in ("fail", "crash", "pass") if status not in fault.statuses)
    wrong = {
        "no record": None,
        "another status": replace(right, status=Status(other)),
        "an excuse": replace(right, status=Status.EXPECTED_FAIL),
        "another fault of the machine": replace(right, fault=Fault.of(FaultKind.DISK_FULL, "text")),
    }
    if "fail" in fault.statuses and fault.checks:
        wrong["another check"] = replace(right, status=Status.FAIL, verdicts=(Verdict("grid", False, fault.words),))
        wrong["no check"] = replace(right, status=Status.FAIL, verdicts=())
    if fault.words:
        verdicts = tuple(Verdict(verdict.check, False) for verdict in right.verdicts)
        wrong["another diagnosis"] = replace(right, diagnosis="", verdicts=verdicts)
    for name, record in wrong.items():
        assert not result_of(fault, record).contained, name
    for mark in fault.marks:
        marks = {*fault.marks} - {mark}
        assert f"the fault was not planted: it left no mark {mark}" in result_of(fault, right, marks=marks).problems
    assert not result_of(fault, right, problems=("run-1 did not end",)).contained


@pytest.mark.parametrize("statuses", [(), ("fail",), ("pass", "pass")], ids=["none", "fail", "twice"])
def test_an_innocent_case_that_did_not_pass_is_reported(statuses):
    fault = FAULTS[0]
    records = {"innocent_0": [record_of("innocent_0")], fault.planted_kernel: [as_it_must_be(fault)]}
    records["innocent_1"] = [record_of("innocent_1", status) for status in statuses]
    result = judged(fault, SeenRun(records), NEIGHBOURS)
    assert (result.contained, result.passed, result.innocent) == (False, 1, 2)


def test_only_a_fault_of_a_device_may_be_refused_with_a_reason():
    reason = Reason(ReasonCode.CAPABILITY, "tma", "sm_80 has none")
    for fault in FAULTS:
        refused = record_of(fault.planted_kernel, "not-applicable", reason=reason)
        assert bool(result_of(fault, refused).not_run) == fault.device
        assert not result_of(fault, refused).contained


def test_the_edits_fit_the_source_and_nothing_else_is_changed(tmp_path):
    names = planting.plant(tmp_path, FAULTS)
    assert [name for name in names if name.startswith("planted_")] == [fault.planted_kernel for fault in FAULTS]
    package = tmp_path / planting.PACKAGE
    for fault, before in zip(FAULTS, names[::2], strict=False):
        changed = []
        for module in ("tiles", "pointer", "persistent_tma"):
            innocent = (package / before / f"{module}.py").read_text().replace(before, fault.planted_kernel)
            changed += [module] * (innocent != (package / fault.planted_kernel / f"{module}.py").read_text())
        assert changed == list(dict.fromkeys(edit.module for edit in fault.edits)), fault.name


def test_an_edit_that_does_not_fit_is_refused(tmp_path):
    stale = replace(FAULTS[0], edits=(Edit("tiles", "no such text", ""),))
    with pytest.raises(planting.NotPlantable, match="0 times, once is required"):
        planting.plant(tmp_path, [stale])


def test_nothing_that_was_run_is_no_containment():
    empty = SelftestResult(1, "2026-11-27T10:00:00+00:00", 1.0, "0" * 64, {}, "", ())
    not_run = FaultResult("a", "x", "fail", not_run="no GPU")
    assert not empty.contained
    assert not SelftestResult(1, empty.started, 1.0, empty.code_sha256, {}, "", (not_run,)).contained
    seen = FaultResult("b", "x", "fail", observed="fail")
    both = SelftestResult(1, empty.started, 1.0, empty.code_sha256, {"torch": "2.13"}, "", (not_run, seen), ("c",))
    assert both.contained
    assert str(both) == "1 of 1 faults contained on no GPU; 1 not run; 1 left out"
    assert read_selftest(to_json(both)) == both


@pytest.mark.parametrize(("ignored", "code"), [("", -signal.SIGTERM), ("TERM", -signal.SIGKILL)])
def test_a_run_is_ended_with_the_self_test(monkeypatch, ignored, code):
    monkeypatch.setattr(session, "ENDING_S", 0.5)
    trap = f"trap '' {ignored}; " if ignored else ""
    with subprocess.Popen(["sh", "-c", f"{trap}echo; exec sleep 60"], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        session._end(process)
        assert process.returncode == code


@pytest.mark.parametrize(("load", "factor"), [(0.5, 1), (16, 1), (24, 1.5), (1000, 6)])
def test_deadlines_grow_on_a_machine_with_too_many_processes(monkeypatch, load, factor):
    monkeypatch.setattr(session, "core_count", lambda: 4)
    monkeypatch.setattr(session.os, "getloadavg", lambda: (load, 0, 0))
    assert session.slowness() == factor
