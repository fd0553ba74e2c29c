"""The executor's own proof: it holds, and an executor with a fault has an objection."""

import pytest

from conformance.ttgir import machine, proof, regions
from conformance.ttgir.machine import Agent, Barrier
from conformance.ttgir.steps import nothing


@pytest.fixture(autouse=True)
def _not_kept():
    proof.objection.cache_clear()
    yield
    proof.objection.cache_clear()


def test_it_holds():
    assert proof.objection() == ""


@pytest.mark.parametrize(
    ("owner", "name", "faulty", "said"),
    [
        (Agent, "learn", lambda self, clock: None, "may still be"),
        (Barrier, "_advance", lambda self: None, "deadlock"),
        (machine.Pending, "finish", lambda self: setattr(self, "done", True), "wrong numbers"),
    ],
)
def test_a_faulty_machine_has_an_objection(monkeypatch, owner, name, faulty, said):
    monkeypatch.setattr(owner, name, faulty)
    assert said in proof.objection()


def test_so_has_one_that_sees_no_missing_wait(monkeypatch):
    monkeypatch.setattr("conformance.ttgir.memory._overlap", lambda first, second: False)
    assert "without ttg.async_wait is at fault, and the executor says: the program ends" in proof.objection()


def test_so_has_one_that_does_not_know_an_operation(monkeypatch):
    monkeypatch.delitem(regions.STEPS, "ttg.async_wait")
    assert "not known: ttg.async_wait" in proof.objection()


def test_so_has_one_that_passes_over_barriers(monkeypatch):
    monkeypatch.setitem(regions.STEPS, "ttng.arrive_barrier", nothing)
    assert "deadlock" in proof.objection()
