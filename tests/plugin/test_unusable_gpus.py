"""A torch for the CPU next to a GPU's driver is one sentence with both facts, before anything is collected."""

from __future__ import annotations

from conformance.plugin.run_faults import INFRASTRUCTURE

pytest_plugins = ["pytester"]

FAKE_SMI = """#!/bin/sh
echo "0, NVIDIA H200, 580.65.06"
echo "1, NVIDIA H200, 580.65.06"
"""


def test_a_cpu_torch_next_to_a_driver(bare, monkeypatch):
    smi = bare.path / "bin" / "nvidia-smi"
    smi.parent.mkdir()
    smi.write_text(FAKE_SMI)
    smi.chmod(0o755)
    monkeypatch.setenv("PATH", str(smi.parent), prepend=":")
    words = ("--pyargs", "conformance.suites", "--kernel", "mm", "-p", "no:cacheprovider", "--run-dir=run", "-n", "0")
    result = bare.run(*words)
    assert result.ret == INFRASTRUCTURE
    text = result.stdout.str() + result.stderr.str()
    assert "the driver lists 2 NVIDIA GPUs (NVIDIA H200, driver 580.65.06), and torch " in text
    assert "can use none of them" in text
    assert "Traceback" not in text
    assert "has that" not in text


BROKEN = """
import os
from pathlib import Path
def pytest_configure(config):
    if hasattr(config, "workerinput"):
        Path(config.workerinput["conformance_folder"], "broken-gw0.txt").write_text("torch can use no GPU")
        os._exit(1)
"""


def test_a_worker_that_finds_its_machine_broken_ends_the_run(project):
    """Stand-in for torch that each worker finds when it begins."""
    project.suite("a", "def test_a(recorder): recorder.verdict('x', True)\n")
    (project.path / "conftest.py").write_text(BROKEN)
    result = project.run("-n", "1")
    assert result.ret == INFRASTRUCTURE
    assert [(fault.kind, fault.text) for fault in project.info.faults] == [("device", "torch can use no GPU")]
    assert not [file for file in project.folder.iterdir() if file.name.startswith("broken")]
