"""A torch for the CPU next to a GPU's driver is one sentence with both facts, before anything is collected."""

from __future__ import annotations

import pytest

from conformance.plugin.run_faults import INFRASTRUCTURE

pytest_plugins = ["pytester"]

FAKE_SMI = """#!/bin/sh
echo "0, NVIDIA H200, 580.65.06"
echo "1, NVIDIA H200, 580.65.06"
"""


@pytest.mark.parametrize("workers", [("-n", "0"), ("-n", "1")], ids=["alone", "xdist"])
def test_a_cpu_torch_next_to_a_driver(bare, monkeypatch, workers):
    smi = bare.path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(FAKE_SMI)
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(smi.parent), prepend=":")
    words = ("--pyargs", "conformance.suites", "--kernel", "mm", "-p", "no:cacheprovider", "--run-dir=run")
    result = bare.run(*words, *workers)
    assert result.ret == INFRASTRUCTURE
    text = result.stdout.str() + result.stderr.str()
    assert "the driver lists 2 NVIDIA GPUs (NVIDIA H200, driver 580.65.06), and torch " in text
    assert "can use none of them" in text
    assert "Traceback" not in text
    assert "has that" not in text
