"""NVIDIA's tools that Triton calls: where they lie."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import subprocess
from pathlib import Path

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
