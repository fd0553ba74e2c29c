"""A worker loads what its cases use while it waits for the first, and that waits for it, but not for ever."""

from __future__ import annotations

import importlib
import os
import sys
import threading
import time
from types import SimpleNamespace

import pytest

from conformance.plugin.warm_up import WarmUp

INDUCTOR = "conformance/suites/test_inductor_gemm.py::test_mm[a]"
TUNING = "conformance/suites/test_inductor_tuning.py::test_process[a]"
OTHER = "conformance/suites/test_batching.py::test_inductor_of_none[/test_inductor_]"


def loaded(monkeypatch, *nodeids: str, steps=("_device", "_triton")) -> list[str]:
    """The modules that the warm-up of a worker with the items ``nodeids`` has imported by its first case."""
    imported: list[str] = []
    module = SimpleNamespace(PRELOADED=(), start_server=lambda: imported.append("started"))
    monkeypatch.setattr(importlib, "import_module", lambda name: imported.append(name) or module)
    warm_up = WarmUp(60.0)
    for step in steps:
        monkeypatch.setattr(warm_up, step, lambda: None)
    warm_up.pytest_runtestloop(SimpleNamespace(items=[SimpleNamespace(nodeid=nodeid) for nodeid in nodeids]))
    first_case(warm_up)
    return imported


def first_case(warm_up: WarmUp) -> None:
    hook = warm_up.pytest_runtest_protocol()
    next(hook)
    with pytest.raises(StopIteration):
        hook.send(True)


def test_what_no_selected_case_uses_is_not_imported(monkeypatch):
    assert "torch._dynamo.convert_frame" in loaded(monkeypatch, OTHER, INDUCTOR)
    assert "started" not in loaded(monkeypatch, OTHER, INDUCTOR)
    assert "started" in loaded(monkeypatch, OTHER, INDUCTOR, TUNING)
    assert loaded(monkeypatch, OTHER) == []


def test_an_error_of_one_step_keeps_no_other_from_running_and_ends_no_case(monkeypatch):
    def broken() -> None:
        os.environ["LEFT_BY_WARM_UP"] = "1"
        raise RuntimeError("no device")

    warm_up = WarmUp(60.0)
    ran = []
    monkeypatch.setattr(warm_up, "_device", broken)
    monkeypatch.setattr(warm_up, "_triton", lambda: ran.append(threading.current_thread().name))
    warm_up.pytest_runtestloop(SimpleNamespace(items=[]))
    first_case(warm_up)
    assert ran == ["warm-up"]
    assert "LEFT_BY_WARM_UP" not in os.environ


def test_a_case_waits_for_the_warm_up_but_not_for_ever(monkeypatch):
    for seconds, ended in ((60.0, True), (0.05, False)):
        done = threading.Event()
        warm_up = WarmUp(seconds)
        monkeypatch.setattr(warm_up, "_device", lambda: None)
        monkeypatch.setattr(warm_up, "_triton", lambda done=done: (time.sleep(0.5), done.set()))
        warm_up.pytest_runtestloop(SimpleNamespace(items=[]))
        first_case(warm_up)
        assert done.is_set() == ended
        assert done.wait(10)


def test_a_worker_has_hashed_triton(monkeypatch):
    hashed = []
    monkeypatch.setattr("conformance.execution.compile.compile_worker.hash_triton", lambda: hashed.append(1))
    warm_up = WarmUp(60.0)
    monkeypatch.setattr(warm_up, "_device", lambda: None)
    warm_up.pytest_runtestloop(SimpleNamespace(items=[]))
    first_case(warm_up)
    assert hashed == [1]
    assert "conformance.execution.compile.compile_worker" in sys.modules
