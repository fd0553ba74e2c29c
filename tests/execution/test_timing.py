"""Device times come from the runs after the device was warm, each with all that was launched in it."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from conformance.execution.device import executor as device
from conformance.execution.device.executor import DeviceExecutor

STEP = SimpleNamespace(function=SimpleNamespace(fn=SimpleNamespace(__name__="ours")))
LAUNCHES = [SimpleNamespace(place=place, steps=(STEP,)) for place in range(3)]


class Profiled(DeviceExecutor):
    """A device on which each run is of ``kernels``; run number i takes i microseconds in each of them. What the library
    launches in addition takes longer."""

    device = torch.device("meta")

    def __init__(self, monkeypatch, kernels: int, lost: int = 0) -> None:
        self.kernels, self.runs, self.log, self.places = kernels, 0, [], []
        monkeypatch.setattr(device, "kernel_events", lambda profiler: self.events()[lost:])

    def events(self):
        runs = range(1, self.runs + 1)
        ours = [
            {"name": "ours", "ts": run + part / 10, "dur": run}
            for run in reversed(runs)
            for part in range(self.kernels)
        ]
        return [*ours, *({"name": "fill", "ts": run - 0.1, "dur": 1000} for run in runs)]

    def run(self, launch, programs=None, *, observe=False):
        self.runs += 1
        self.log.append("run")
        self.places.append(launch.place)

    @contextlib.contextmanager
    def within(self, name, idle_s=math.inf):
        self.log.append(f"{name} begins")
        yield idle_s
        self.log.append(f"{name} ends")

    def _profile(self):
        return self.within("profiler")


@pytest.mark.parametrize("kernels", [1, 3])
def test_the_first_runs_do_not_count(monkeypatch, kernels):
    executor = Profiled(monkeypatch, kernels)
    times = executor.microseconds(LAUNCHES, 4)
    last = executor.runs
    assert last > 4
    assert times == [kernels * run for run in range(last - 3, last + 1)]


def test_only_the_runs_are_alone(monkeypatch):
    executor = Profiled(monkeypatch, 1)
    monkeypatch.setattr(device, "WARM_SECONDS", 0.0)
    executor.microseconds(LAUNCHES, 2, executor.within("alone"))
    expected = ["profiler begins", "alone begins", "run", "run", "run", "alone ends", "profiler ends"]
    assert executor.log == expected


@pytest.mark.parametrize(("idle_s", "first"), [(0.001, 1), (0.5, 10), (-5.0, 10)])
def test_a_device_is_warmed_unless_it_is_warm(monkeypatch, idle_s, first):
    """A clock that was set back says nothing about the device."""
    executor = Profiled(monkeypatch, 1)
    clock = itertools.count(0.0, device.WARM_SECONDS / 10)
    monkeypatch.setattr(device.time, "perf_counter", lambda: next(clock))
    times = executor.microseconds(LAUNCHES, 2, executor.within("alone", idle_s))
    assert times[0] == first + 1


def test_each_timed_run_begins_with_other_bytes_in_the_caches(monkeypatch):
    executor = Profiled(monkeypatch, 1)
    monkeypatch.setattr(device, "WARM_SECONDS", 0.0)
    cleared = []

    class Bytes:
        def zero_(self):
            cleared.append(executor.runs)

    def empty(size, *, dtype, device):
        assert (size * dtype.itemsize, device) == (256 * 2**20, executor.device)
        return Bytes()

    monkeypatch.setattr(torch, "empty", empty)
    executor.microseconds(LAUNCHES, 3)
    assert cleared == [1, 2, 3]


def test_places_of_the_operands_take_turns(monkeypatch):
    executor = Profiled(monkeypatch, 1)
    executor.microseconds(LAUNCHES, 7)
    assert executor.places[-7:] == [0, 1, 2, 0, 1, 2, 0]
    assert set(executor.places[:-7]) == {0, 1, 2}


def test_a_kernel_that_the_profiler_missed_is_an_error(monkeypatch):
    with pytest.raises(RuntimeError, match="the profiler saw"):
        Profiled(monkeypatch, 2, lost=1).microseconds(LAUNCHES, 4)


def test_two_devices_of_one_kind_are_told_apart_and_neither_by_its_uuid(monkeypatch):
    def identity(**properties):
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index: SimpleNamespace(**properties))
        executor = DeviceExecutor.__new__(DeviceExecutor)
        executor.device = torch.device("cuda", 0)
        return executor.identity

    assert identity(name="H200") is None
    first, second = identity(uuid="GPU-1234"), identity(uuid="GPU-5678")
    assert first == identity(uuid="GPU-1234") != second
    assert len(first) == 12
    assert "1234" not in first


def test_events_of_kernels_bear_the_names_of_functions():
    events = [
        {"cat": "kernel", "name": "gemm_pointer", "dur": 2.0},
        {"cat": "kernel", "name": "gemm_batched.kd", "dur": 3.0},
        {"cat": "gpu_memset", "name": "Memset (Device)", "dur": 1.0},
        {"ph": "M"},
    ]
    profiler = SimpleNamespace(
        export_chrome_trace=lambda path: Path(path).write_text(json.dumps({"traceEvents": events}))
    )
    assert [(event["name"], event["dur"]) for event in device.kernel_events(profiler)] == [
        ("gemm_pointer", 2.0),
        ("gemm_batched", 3.0),
    ]
