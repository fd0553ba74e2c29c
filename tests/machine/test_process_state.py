"""The state of a process that code has changed is restored, as far as it can be."""

from __future__ import annotations

import functools
import io
import sys
from collections.abc import Callable

import pytest

from conformance.machine.process_state import ProcessState

torch = pytest.importorskip("torch")

#: Settings of torch under which later cases would fail, and the names of the parts that are restored.
SETTINGS: dict[str, tuple[Callable[[], object], str]] = {
    "device": (functools.partial(torch.set_default_device, "meta"), "settings of torch"),
    "precision": (functools.partial(torch.set_float32_matmul_precision, "medium"), "settings of torch"),
    "subnormal": (functools.partial(torch.set_flush_denormal, True), "floating-point arithmetic"),
}


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_of_torch_are_restored(setting):
    change, part = SETTINGS[setting]
    state = ProcessState()
    change()
    assert state.restore() == ([part], [])
    assert state.restore() == ([], [])
    assert (torch.empty(1).device.type, sys.float_info.min / 2 > 0) == ("cpu", True)


def test_a_stream_whose_buffer_is_gone_gets_another(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", errors="replace")
    monkeypatch.setattr(sys, "stdout", stream)
    state = ProcessState(needed=True)
    stream.detach().close()
    assert state.restore() == (["standard streams"], [])
    stream.write("\xe9")
    stream.seek(0)
    assert stream.read() == "?"
