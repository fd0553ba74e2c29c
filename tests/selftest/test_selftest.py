"""The self-test on this machine: each fault is contained, and one that is not planted or not seen is reported."""

from __future__ import annotations

import pytest

from conformance.machine.gpus import Gpus
from conformance.selftest.faults import FAULTS
from conformance.selftest.session import Selftest

HERE = [fault for fault in FAULTS if not fault.device]


def result_of(faults, folder, **fields):
    return Selftest(faults, Gpus(), folder, say=lambda line: None, **fields).run()


@pytest.mark.long(130)
def test_each_fault_is_contained(tmp_path):
    result = result_of(FAULTS, tmp_path)
    assert [(fault.name, fault.problems) for fault in result.faults if fault.problems] == []
    assert {fault.name for fault in result.faults if fault.not_run} == {fault.name for fault in FAULTS if fault.device}
    assert result.contained


@pytest.mark.long(15)
def test_a_fault_that_is_not_planted_is_reported(tmp_path):
    """One fault of each run: the judgement of every fault is tested without runs."""
    faults = [fault for fault in HERE if fault.name in ("wrong-tile", "damaged-cache")]
    result = result_of(faults, tmp_path, planted_as=lambda fault: fault.unplanted)
    assert [fault.contained for fault in result.faults] == [False, False]
    assert {(fault.observed, fault.passed, fault.innocent) for fault in result.faults} == {("pass", 2, 2)}
