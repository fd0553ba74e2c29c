"""The self-test on this machine: each fault is contained, and one that is not planted or not seen is reported."""

from __future__ import annotations

import pytest

from conformance.machine.gpus import Gpus
from conformance.selftest.faults import FAULTS
from conformance.selftest.session import Selftest

HERE = [fault for fault in FAULTS if not fault.device]
#: Plugins that switch a guard of the harness off.
NO_VERDICT_FAILS = """
from conformance.judging.case_recorder import CaseRecorder
from conformance.judging import conform
from msgspec.structs import replace
add = CaseRecorder.add
CaseRecorder.add = lambda self, *verdicts: add(self, *(replace(verdict, passed=True) for verdict in verdicts))
conform._raise_if_failed = lambda verdicts, diagnosis="": None
"""


def result_of(faults, folder, **fields):
    return Selftest(faults, Gpus(), folder, say=lambda line: None, **fields).run()


@pytest.mark.long(130)
def test_each_fault_is_contained(tmp_path):
    result = result_of(FAULTS, tmp_path)
    assert [(fault.name, fault.problems) for fault in result.faults if fault.problems] == []
    assert {fault.name for fault in result.faults if fault.not_run} == {fault.name for fault in FAULTS if fault.device}
    assert result.contained


@pytest.mark.long(75)
def test_each_fault_that_is_not_planted_is_reported(tmp_path):
    result = result_of(HERE, tmp_path, planted_as=lambda fault: fault.unplanted)
    assert [fault.name for fault in result.faults if fault.contained] == []
    assert {fault.observed for fault in result.faults} == {"pass"}
    assert {(fault.passed, fault.innocent) for fault in result.faults} == {(2, 2)}


@pytest.mark.long(40)
def test_each_fault_that_no_check_sees_is_reported(tmp_path):
    """Here no verdict fails."""
    (tmp_path / "no_verdict_fails.py").write_text(
        "import pytest\n@pytest.hookimpl(trylast=True)\n"
        "def pytest_sessionstart():\n" + "".join(f"    {line}\n" for line in NO_VERDICT_FAILS.strip().split("\n"))
    )
    seen_by_a_check = [fault for fault in HERE if fault.statuses == ("fail",)]
    words = ("-p", "no_verdict_fails", "-o", f"pythonpath={tmp_path}")
    result = result_of(seen_by_a_check, tmp_path / "out", words=words)
    assert [fault.name for fault in result.faults if fault.contained] == []


@pytest.mark.long(25)
def test_a_fault_that_costs_other_cases_is_reported(tmp_path):
    """Here no worker is replaced."""
    faults = [fault for fault in HERE if fault.name == "host-segfault"]
    result = result_of(faults, tmp_path, words=("-n", "1", "--max-worker-restart=0"))
    assert not result.contained
    assert result.faults[0].passed < 2
