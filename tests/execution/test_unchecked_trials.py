"""A trial past the check runs in a process of its own, and whatever becomes of that process is its outcome."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Connection
from pathlib import Path

import pytest

from conformance.execution.device.fault_search import READY
from conformance.execution.trial import unchecked_trials
from conformance.execution.trial.unchecked_trials import UncheckedOutcome, unchecked_trial
from conformance.kernels.catalogue import get
from conformance.targets import find


def tell(pipe: int, *, seed: int) -> None:
    """Runs in the process, and reports what it was given."""
    asker = Connection(pipe)
    asker.send(READY)
    plan = asker.recv()
    asker.send(UncheckedOutcome(plan.kernel, f"{seed} {os.environ.get('GIVEN')} {os.getpid()}"))


def die(pipe: int, *, seed: int) -> None:
    asker = Connection(pipe)
    asker.send(READY)
    asker.recv()
    os.abort()


def die_early(pipe: int, *, seed: int) -> None:
    raise ImportError("planted")


def hang(pipe: int, *, seed: int) -> None:
    asker = Connection(pipe)
    asker.send(READY)
    asker.recv()
    Path(os.environ["HANGS"]).write_text(str(os.getpid()))
    time.sleep(600)


def tried(monkeypatch: pytest.MonkeyPatch, answer: str) -> UncheckedOutcome:
    monkeypatch.setattr(unchecked_trials, "ANSWER", f"tests.execution.test_unchecked_trials:{answer}")
    kernel = get("mm")
    plan = kernel.plan(kernel.example("bf16", kernel.configs[0]), kernel.configs[0], find("sm_90"), unchecked=True)
    return unchecked_trial(plan, seed=7)


def test_the_process_has_the_plan_the_seed_and_the_environment_of_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GIVEN", "value")
    outcome = tried(monkeypatch, "tell")
    seed, given, pid = outcome.text.split()
    assert (outcome.kind, seed, given) == ("mm", "7", "value")
    assert int(pid) != os.getpid()


def test_a_process_that_dies_or_hangs_is_an_outcome(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert tried(monkeypatch, "die") == UncheckedOutcome("died", "the process ended without an answer")
    monkeypatch.setattr(unchecked_trials, "DEADLINE", 1.0)
    monkeypatch.setenv("HANGS", str(tmp_path / "pid"))
    assert tried(monkeypatch, "hang") == UncheckedOutcome("died", "no answer within 1 s")
    pid = int((tmp_path / "pid").read_text())
    for _ in range(100):
        if not Path(f"/proc/{pid}").exists():
            break
        time.sleep(0.05)
    else:
        pytest.fail("the process that hangs was left behind")


def test_a_process_that_dies_before_it_has_the_device_shows_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError, match=r"did not get the device: (?s:.*)ImportError: planted"):
        tried(monkeypatch, "die_early")


def test_without_a_device_the_trial_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    kernel = get("mm")
    plan = kernel.plan(kernel.example("bf16", kernel.configs[0]), kernel.configs[0], find("sm_90"), unchecked=True)
    with pytest.raises(RuntimeError, match=r"did not get the device: (?s:.*)no accelerator"):
        unchecked_trial(plan)
