"""Launches on a device are made over copies first, and each fault shows there. The device is memory of the CPU here."""

from __future__ import annotations

import ctypes
import random
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor

from conformance.execution.device.page_edges import MappedRegion
from conformance.watching import device_run
from conformance.watching.device_run import DeviceRunner, Unguarded
from conformance.watching.launch_run import LaunchRun

Kernel = Callable[[Tensor, Tensor], None]


class Edges:
    """Maps one region, and knows the addresses before and behind it."""

    def __init__(self) -> None:
        self.memory = torch.zeros(4096, dtype=torch.uint8)

    def region(self, size: int) -> MappedRegion:
        return MappedRegion(self.memory)

    def holds(self, tensor: Tensor) -> bool:
        return self.memory.untyped_storage().data_ptr() == tensor.untyped_storage().data_ptr()


EDGES = Edges()


@pytest.fixture(autouse=True)
def device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device_run, "_HOST", "")
    monkeypatch.setattr(device_run, "_edges", lambda index: EDGES)
    monkeypatch.setattr(device_run, "device_fault", lambda: None)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)


def launched(kernel: Kernel, ttgir: str = "module", x: Any = None, out: Any = None) -> LaunchRun:
    """Returns what a launch of ``kernel`` showed."""
    x = torch.arange(8.0) if x is None else x
    out = torch.zeros(8) if out is None else out

    def again(change: Callable[[Any], Any]) -> None:
        kernel(change(x), change(out))

    return DeviceRunner({"x_ptr": x, "out_ptr": out}, again, ttgir, lambda text: None).run()


def byte(address: int) -> Any:
    return ctypes.c_uint8.from_address(address)


def doubles(x: Tensor, out: Tensor) -> None:
    torch.mul(x, 2, out=out)


def failing(run: LaunchRun) -> list[str]:
    return [f"{verdict.check}: {verdict.text}" for verdict in run.verdicts if not verdict.passed]


def test_a_right_launch_passes_and_leaves_its_results() -> None:
    out = torch.zeros(8)
    run = launched(doubles, out=out)
    assert failing(run) == []
    assert {verdict.check for verdict in run.verdicts} == {"memory/bounds", "repeat"}
    assert out.tolist() == [2.0 * x for x in range(8)]
    assert run.notes["edges"] == 4
    assert set(run.outputs) == {"out_ptr"}
    assert run.integers == {}


@pytest.mark.parametrize(("offset", "text"), [(40, "1 bytes behind 'out_ptr' .* 8 bytes"), (-3, "before .* 2 bytes")])
def test_a_store_outside_is_seen(offset: int, text: str) -> None:
    def stores(x: Tensor, out: Tensor) -> None:
        if out.data_ptr() != own.data_ptr():
            byte(out.data_ptr() + offset).value = 1

    own = torch.zeros(8)
    (failure,) = failing(launched(stores, out=own))
    assert failure.startswith("memory/bounds: ")
    assert re.search(text, failure)


def test_a_load_beyond_a_tensor_that_reaches_the_result_is_seen() -> None:
    def loads(x: Tensor, out: Tensor) -> None:
        out[0] = byte(x.data_ptr() + 32).value

    assert failing(launched(loads)) == [
        "memory/bounds: byte 2 of 'out_ptr' depends on the bytes around the tensors: a load reaches beyond one of them"
    ]


@pytest.mark.parametrize("edge", ["behind", "before"])
def test_a_load_beyond_a_tensor_faults_at_an_unmapped_page(monkeypatch: pytest.MonkeyPatch, edge: str) -> None:
    def loads(x: Tensor, out: Tensor) -> None:
        doubles(x, out)
        first, begin = x.data_ptr(), EDGES.memory.data_ptr()
        if EDGES.holds(x) and (first == begin if edge == "before" else first + 32 == begin + 4096):
            monkeypatch.setattr(device_run, "device_fault", lambda: "an illegal memory access")
            raise RuntimeError("an illegal memory access")

    run = launched(loads)
    assert run.lost
    (failure,) = failing(run)
    assert f"with 'x_ptr' at an unmapped page {edge} the" in failure
    assert "an illegal memory access" in failure


@pytest.mark.parametrize(("ttgir", "fails"), [("module", True), ("tt.atomic_rmw fadd", False)])
def test_other_bits_each_time_fail_unless_the_code_is_atomic(ttgir: str, fails: bool) -> None:
    def draws(x: Tensor, out: Tensor) -> None:
        out[3] = random.random()

    run = launched(draws, ttgir)
    assert [failure[:12] for failure in failing(run)] == ["repeat: byte"] * fails
    assert "repeat" in run.notes
    assert run.outputs == {}


class Wrapped:
    """Has an address, and no size."""

    def data_ptr(self) -> int:
        return 0


SHARED = torch.zeros(64, dtype=torch.uint8)
OVERLAPPING = torch.frombuffer((ctypes.c_uint8 * 32).from_address(SHARED.data_ptr() + 16), dtype=torch.float32)


@pytest.mark.parametrize(
    ("ttgir", "x", "why"),
    [
        ("tt.int_to_ptr", None, "takes addresses from memory"),
        ("module", Wrapped(), "the size of the memory behind 'x_ptr' is not known"),
        ("module", OVERLAPPING, "two of its tensors share memory and no storage"),
    ],
)
def test_what_cannot_be_copied_is_launched_once(ttgir: str, x: Any, why: str) -> None:
    launches = []

    def counts(x: Any, out: Tensor) -> None:
        launches.append(out)

    out = SHARED[:32].view(torch.float32)
    with pytest.raises(Unguarded, match=why):
        launched(counts, ttgir, x, out)
    assert [one is out for one in launches] == [True]


def test_a_launch_that_is_captured_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    def waits() -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
    monkeypatch.setattr(torch.cuda, "synchronize", waits)
    out = torch.zeros(8)
    with pytest.raises(Unguarded, match="a CUDA graph is captured"):
        launched(doubles, out=out)
    assert out[1] == 2


def test_arguments_in_tuples_and_descriptors_are_copied() -> None:
    class Descriptor:
        def __init__(self, base: Tensor) -> None:
            self.base = base

    seen = []

    def looks(x: Any, out: Any) -> None:
        seen.append((x[0].base.data_ptr(), x[1], out.data_ptr()))

    x, out = torch.ones(8), torch.zeros(8)
    assert failing(launched(looks, x=(Descriptor(x[2:]), 5), out=out)) == []
    assert seen[-1] == (x.data_ptr() + 8, 5, out.data_ptr())
    assert all(place != x.data_ptr() + 8 and number == 5 for place, number, _ in seen[:-1])
