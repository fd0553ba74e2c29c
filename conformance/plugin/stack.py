"""The versions under test, found without importing torch or triton."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from conformance.gate.code_digest import code_digest
from conformance.plugin.machine import Gpus


def machine_stack(gpus: Gpus) -> dict[str, str | None]:
    """What all processes of a run share: this harness and what it judges with, python, ptxas, driver and device (its
    distinct names)."""
    return {
        "harness": f"{_version('triton-conformance') or 'checkout'} {code_digest()[:12]}",
        "torch": _version("torch"),
        "triton": _version("triton"),
        "python": platform.python_version(),
        "ptxas": _ptxas_version(),
        "driver": gpus.driver,
        "device": ", ".join(sorted(set(gpus.names))) or None,
    }


def imported_versions() -> dict[str, str]:
    """The versions of torch and triton that this process imported: metadata may describe another build."""
    versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in ("torch", "triton")}
    return {name: str(version) for name, version in versions.items() if version is not None}


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def _ptxas_version() -> str | None:
    """The release of the ptxas that Triton uses: the one its environment variable names, else its own."""
    path = os.environ.get("TRITON_PTXAS_PATH")
    spec = importlib.util.find_spec("triton")
    if path is None and spec is not None and spec.submodule_search_locations:
        path = str(Path(spec.submodule_search_locations[0]) / "backends/nvidia/bin/ptxas")
    if path is None:
        return None
    try:
        output = subprocess.run([path, "--version"], capture_output=True, text=True, timeout=60, check=True).stdout
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\bV([\d.]+)", output)
    return match[1] if match else None
