"""The versions under test and NVIDIA's tools that Triton calls, found without importing torch or triton."""

from __future__ import annotations

import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

from packaging.version import InvalidVersion, Version

from conformance.machine.gpus import Gpus
from conformance.machine.kept_answers import code_digest
from conformance.machine.package_metadata import unreadable_metadata

#: NVIDIA's assemblers: Triton brings the second since 3.6.
ASSEMBLERS = ("ptxas", "ptxas-blackwell")


def nvidia_tool(name: str) -> Path | None:
    """Returns the path of ``ptxas``, ``ptxas-blackwell``, ``cuobjdump`` or ``nvdisasm``, without importing Triton. It
    is the file that Triton's variable names (``TRITON_PTXAS_PATH`` and so on), or else Triton's own. None if neither
    can be run."""
    named = os.environ.get(f"TRITON_{name.upper().replace('-', '_')}_PATH")
    package = importlib.util.find_spec("triton")
    places = (package.submodule_search_locations if package else None) or []
    own = [Path(place) / "backends" / "nvidia" / "bin" / name for place in places]
    paths = [Path(named), *own] if named else own
    return next((path for path in paths if os.access(path, os.X_OK)), None)


def assemblers() -> dict[str, Path]:
    """Returns the assemblers that Triton can call, by name. Which of them it calls for a target depends on its
    release."""
    paths = {name: nvidia_tool(name) for name in ASSEMBLERS}
    return {name: path for name, path in paths.items() if path is not None}


def assembler_versions() -> dict[str, str | None]:
    """The version of each assembler; None for one that is not there."""
    tools = assemblers()
    return {name: assembler_version(tools[name]) if name in tools else None for name in ASSEMBLERS}


@functools.cache
def assembler_version(assembler: Path) -> str | None:
    """The version of the ``assembler``, such as "12.9.86"; None if it does not say it."""
    try:
        done = subprocess.run([assembler, "--version"], capture_output=True, text=True, timeout=60, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\bV([\d.]+)", done.stdout)
    return match[1] if match else None


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
            if unreadable := unreadable_metadata():
                return unreadable
            first_line = (str(error).strip().splitlines() or [""])[0]
            return f"{name} is installed and cannot be loaded: {type(error).__name__}: {first_line}"
    return None


def not_installed() -> str | None:
    """Returns a sentence about those of torch and triton that are not installed; None if both are. Imports neither."""
    names = [name for name in ("torch", "triton") if importlib.util.find_spec(name) is None]
    return f"{' and '.join(names)} {'are' if names[1:] else 'is'} not installed" if names else None


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
