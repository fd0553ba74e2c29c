"""Autograd finds a device only where torch's tables show the functions that it asks.

The watched suite has gradients.
"""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
import torch

from conformance import targets
from conformance.watching import accelerator
from conformance.watching.compiled_functions import CompiledFunctions
from conformance.watching.device_memory import DeviceMemory
from conformance.watching.triton_driver import StandInDriver


@pytest.mark.parametrize("function", [ctypes.pythonapi.PyErr_CheckSignals, ctypes.CDLL(None).abort])
def test_tables_that_are_not_known_stay_as_they_are(monkeypatch: pytest.MonkeyPatch, function: Any) -> None:
    """The functions return 0, or end the process."""
    monkeypatch.setattr(accelerator, "_ONE", ctypes.cast(function, ctypes.c_void_p).value)
    accelerator._device.cache_clear()
    assert not accelerator.prepare()
    with accelerator.accelerator():
        assert torch._C._has_cuda or torch.accelerator.current_accelerator() is None
    accelerator._device.cache_clear()


def test_without_a_device_gradients_are_not_compiled(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(accelerator, "_device", lambda: None)
    memory, target = DeviceMemory(), targets.compile_targets()[0]
    functions = CompiledFunctions(target, memory, StandInDriver(target, lambda *_: None))
    x = torch.ones(2, requires_grad=True)
    memory.mark(x)
    with functions.installed():
        assert torch.compile(torch.nn.ReLU())(x).tolist() == [1.0, 1.0]
    assert functions.notes == ["ReLU ran as it is written: its gradients need a device"]
