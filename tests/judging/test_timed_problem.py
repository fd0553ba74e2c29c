"""A config is timed alone, and other work on the device shares it."""

from __future__ import annotations

import contextlib
from concurrent.futures import Future
from types import SimpleNamespace

import pytest

from conformance.execution.device import executor as device
from conformance.heuristics.configs import Config
from conformance.judging import sweep
from conformance.records import Status

CONFIG = Config(64, 64, 64, 2, 4)


@pytest.mark.parametrize(("gigabytes", "places"), [(0, 3), (0.5, 3), (0.9, 2), (9, 1)])
def test_nothing_takes_the_device_outside_a_turn(monkeypatch, gigabytes, places):
    held, seen = [], []
    tensors = [SimpleNamespace(span=int(gigabytes * 2**28), dtype="fp32")]

    @contextlib.contextmanager
    def turn(name):
        held.append(name)
        yield
        held.remove(name)

    def takes_device(name, result=None):
        seen.append((name, *held))
        return result

    class Executor(device.DeviceExecutor):
        identity = "a1"

        def __init__(self):
            self.device = "cpu"

        def run(self, launch):
            takes_device("run")

        def microseconds(self, launches, *, alone):
            assert launches == [None] * places
            with alone:
                return takes_device("time", [3.0, 1.0, 2.0])

    monkeypatch.setattr(sweep, "launches_to_compile", lambda plan: {})
    monkeypatch.setattr(sweep, "PLACES", 3)
    monkeypatch.setattr(sweep, "random_tensors", lambda problem, where: takes_device("tensors"))
    kernel = SimpleNamespace(
        timed=lambda dtype: SimpleNamespace(id="p", tensors=tensors),
        timed_variant=lambda: None,
        plan=lambda *facts, estimated: None,
        launch=lambda plan, tensors: takes_device("launch"),
    )
    turns = SimpleNamespace(timing=lambda: turn("alone"))
    harness = SimpleNamespace(executor=Executor(), together=lambda: turn("together"), turns=turns)
    run = sweep.measure(harness, kernel, "fp16", CONFIG, None)["run"]
    assert run == {"problem": "p", "us": 2.0, "samples_us": [3.0, 1.0, 2.0], "device": "a1"}
    names = ("tensors", "launch") * places + ("run",) * places
    assert seen == [*((name, "together") for name in names), ("time", "alone")]


def test_a_larger_problem_that_does_not_fit_is_refused_before_it_is_launched(monkeypatch):
    compiled: Future = Future()
    compiled.set_result(SimpleNamespace(status=Status.PASS, artefact=SimpleNamespace(resources=None)))
    kernel = SimpleNamespace(
        timed=lambda dtype: SimpleNamespace(id="p"),
        timed_variant=lambda: None,
        plan=lambda *facts, estimated: None,
        launch=lambda plan, tensors: pytest.fail("launched"),
    )
    monkeypatch.setattr(sweep, "launches_to_compile", lambda plan: {"": ()})
    monkeypatch.setattr(sweep, "over_memory", lambda resources, target: ["shared memory: 3 bytes, 2 are there"])
    harness = SimpleNamespace(pool=SimpleNamespace(submit=lambda: compiled))
    refused = {"problem": "p", "refused": "shared memory: 3 bytes, 2 are there"}
    assert sweep.measure(harness, kernel, "fp16", CONFIG, None) == {"run": refused}
