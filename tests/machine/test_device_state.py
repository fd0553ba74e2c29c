"""A device's memory is shared: a case that needs much waits, one that found none tries again alone, and no process
keeps idle memory."""

from __future__ import annotations

import contextlib
import sys
from types import SimpleNamespace

import pytest
import torch

from conformance.families.gemm.problem import Gemm
from conformance.judging.harness import Harness, needed
from conformance.machine import device_state
from conformance.machine.gpus import NotAlone
from conformance.plugin.case_hooks import status_of
from conformance.problems import Layout
from conformance.records import ReasonCode, Status

SHORT = [
    torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 12.88 GiB."),
    RuntimeError("Triton Error [CUDA]: out of memory"),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
]


class Turns:
    """Says in ``taken`` whose turn was taken; ``busy`` lets no process be alone."""

    def __init__(self, busy: bool = False) -> None:
        self.taken: list[str] = []
        self.busy = busy

    @contextlib.contextmanager
    def _turn(self, name: str):
        self.taken.append(name)
        yield
        self.taken.append(f"/{name}")

    def together(self):
        return self._turn("together")

    def with_much_memory(self):
        return self._turn("much")

    def alone(self):
        if self.busy:
            raise NotAlone("busy")
        return self._turn("alone")


@pytest.fixture
def harness(monkeypatch):
    """A harness with a device that is pretended."""
    monkeypatch.setattr("conformance.judging.harness.chosen_targets", lambda chosen: ())
    found = Harness(SimpleNamespace(has_gpu=True, compile_only=False))
    found.turns = Turns()
    yield found
    found.pool.close()


class Work:
    """Raises ``errors`` one after another, then returns 7."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.calls = 0

    def __call__(self) -> int:
        self.calls += 1
        if self.errors:
            raise self.errors.pop(0)
        return 7


def test_cases_run_together(harness):
    assert harness.run(Work()) == 7
    assert harness.turns.taken == ["together", "/together"]


def test_a_case_with_much_memory_waits_for_others_with_much(harness):
    assert harness.run(Work(), device_state.MUCH) == 7
    assert harness.turns.taken == ["much", "together", "/together", "/much"]


@pytest.mark.parametrize("short", SHORT, ids=["torch", "triton", "cublas"])
def test_who_found_no_memory_tries_again_alone(harness, short):
    work = Work(short)
    assert harness.run(work) == 7
    assert harness.turns.taken[-2:] == ["alone", "/alone"]
    assert work.calls == 2


def test_no_memory_alone_is_the_result(harness):
    work = Work(SHORT[0], SHORT[0])
    with pytest.raises(torch.OutOfMemoryError):
        harness.run(work)
    assert work.calls == 2


def test_who_cannot_be_alone_had_no_memory(harness):
    harness.turns = Turns(busy=True)
    with pytest.raises(torch.OutOfMemoryError, match=r"12\.88"):
        harness.run(Work(SHORT[0]))


def test_other_errors_are_not_tried_again(harness):
    work = Work(RuntimeError("Triton Error [CUDA]: an illegal memory access was encountered"))
    with pytest.raises(RuntimeError, match="illegal"):
        harness.run(work)
    assert work.calls == 1


def test_without_a_device_nobody_waits(harness):
    harness.settings.has_gpu = False
    assert harness.run(Work(), device_state.MUCH) == 7
    assert not harness.turns.taken


@pytest.mark.parametrize("short", [*SHORT, MemoryError()], ids=["torch", "triton", "cublas", "host"])
def test_the_status_is_out_of_memory(short):
    assert status_of(short)[0] is Status.OOM


def test_needed_counts_the_gaps():
    problem = Gemm("mm", 3, 16, 8, "bf16", layout_a=Layout(pad=2**30))
    assert needed(problem) == 2 * ((2 * (2**30 + 8) + 8) + 8 * 16 + 3 * 16)


def test_a_case_that_no_device_of_this_size_has_room_for_is_not_run(monkeypatch):
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda: (1 << 20, 16 << 30))
    assert device_state.shortage(12 << 30) is None, "it goes by what the device has, not by what is free now"
    reason = device_state.shortage(13 << 30)
    assert (reason.code, reason.subject) == (ReasonCode.NO_DEVICE, "memory")
    assert reason.detail == "13.0 GiB of device memory are needed, 75% of 16.0 GiB are offered"


def test_what_is_idle_is_given_back(monkeypatch):
    steps = []
    reserved = [300 << 20, 300 << 20]
    cuda = SimpleNamespace(
        is_initialized=lambda: True, memory_reserved=lambda: reserved.pop(0), empty_cache=lambda: steps.append("empty")
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(device_state.gc, "collect", lambda: steps.append("collect"))
    device_state.give_back(301 << 20)
    assert not steps
    reserved[:] = [300 << 20, 100 << 20]
    device_state.give_back(device_state.KEPT)
    assert steps == ["empty"], "to collect takes long, and nothing needed it"
    reserved[:] = [300 << 20, 300 << 20]
    device_state.give_back(device_state.KEPT)
    assert steps == ["empty", "empty", "collect", "empty"], "a cycle of references kept the rest"
    cuda.is_initialized = lambda: False
    device_state.give_back()
    assert len(steps) == 4, "a process without a device has nothing, and must not start one"
