"""The versions under test, found without importing torch or triton, and whether these two can be loaded."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import platform
import sys

from packaging.version import InvalidVersion, Version

from conformance.machine.code_digest import code_digest
from conformance.machine.gpus import Gpus
from conformance.machine.nvidia_tools import assembler_versions

#: Triton's oldest version whose API the kernels here know, by pointers and with the descriptors of its time.
OLDEST_TRITON = "3.2"


def machine_stack(gpus: Gpus) -> dict[str, str | None]:
    """Returns the versions that all processes of a run share. They are those of this harness and what it judges with,
    Python, NVIDIA's assemblers, driver and device (its distinct names)."""
    return {
        "harness": f"{_version('triton-conformance') or 'checkout'} {code_digest()[:12]}",
        "torch": _version("torch"),
        "triton": _version("triton"),
        "python": platform.python_version(),
        **assembler_versions(),
        "driver": gpus.driver,
        "device": ", ".join(sorted(set(gpus.names))) or None,
    }


def imported_versions() -> dict[str, str]:
    """The versions of torch and triton that this process imported: metadata may describe another build."""
    versions = {name: getattr(sys.modules.get(name), "__version__", None) for name in ("torch", "triton")}
    return {name: str(version) for name, version in versions.items() if version is not None}


def unloadable() -> str | None:
    """Imports torch and triton, as far as they are installed. Returns a sentence about the first of them that cannot be
    loaded, such as one whose libraries are missing, or that is too old; None if there is none."""
    for name in ("torch", "triton"):
        try:
            if importlib.util.find_spec(name) is not None:
                module = importlib.import_module(name)
                if name == "triton" and (sentence := _too_old(getattr(module, "__version__", ""))):
                    return sentence
        except Exception as error:  # whatever a broken package raises
            first_line = (str(error).strip().splitlines() or [""])[0]
            return f"{name} is installed and cannot be loaded: {type(error).__name__}: {first_line}"
    return None


def _too_old(triton: str) -> str | None:
    """A sentence if ``triton`` is a version before :data:`OLDEST_TRITON`; None also for what is no version."""
    try:
        if Version(triton) >= Version(OLDEST_TRITON):
            return None
    except InvalidVersion:
        return None
    required = f"{OLDEST_TRITON} or later is required: pip install 'triton>={OLDEST_TRITON}'"
    return f"triton {triton} is installed, and {required}"


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None
