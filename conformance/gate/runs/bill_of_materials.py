"""Everything that makes code in a run, by name: commits, libraries, assemblers, driver and variables.

What cannot be found out is said as :data:`UNKNOWN`: a package need not say of which commit it is. Nothing
here imports Triton.
"""

from __future__ import annotations

import base64
import csv
import functools
import hashlib
import importlib.metadata
import importlib.util
import os
import re
from collections.abc import Mapping
from importlib.metadata import Distribution
from pathlib import Path

from conformance.gate.runs.nvidia_tools import assemblers
from conformance.gate.runs.run_environment import variables

UNKNOWN = "unknown"
NONE = "none"
#: Before the name of a variable.
VARIABLE = "env "

#: Files of Triton whose content decides the code, below its package, and where a variable may name another.
_LIBRARIES = {
    "libtriton": ("_C/libtriton.so", ""),
    "libdevice": ("backends/nvidia/lib/libdevice.10.bc", "TRITON_LIBDEVICE_PATH"),
    "ocml": ("backends/amd/lib/ocml.bc", ""),
    "ockl": ("backends/amd/lib/ockl.bc", ""),
}
#: AMD's code generator has an LLVM of its own since 3.9.
_AMD_GENERATOR = "backends/amd/lib/libtriton_amd_codegen.so"
_LLVM = re.compile(rb"LLVM version [^(\0]{0,40}\(([0-9a-f]{40})\)")
_COMMIT = re.compile(r"\+(?:git)?([0-9a-f]{7,40})\b")
#: Variables that change code. Those that only say where something lies are told by the digest of what lies there.
_CHANGES_CODE = re.compile(r"(TRITON|PTXAS|NVPTX|AMDGCN|LLVM|MLIR|DISABLE|ALLOW)_\w+|USE_IR_LOC")
_CHANGES_NONE = re.compile(
    r"TRITON_(CACHE\w*|HOME|DUMP_DIR|INTERPRET|PRINT_\w+|ALWAYS_COMPILE|KERNEL_DUMP|\w*_PATH|STORE_BINARY_ONLY)"
)
_CHUNK = 1 << 22


def bill_of_materials(driver: str | None, environ: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Name and value of each part; ``driver`` is that of the GPUs, None without one."""
    folder = _package()
    bill = {"Triton commit": _triton_commit(), "LLVM commit": UNKNOWN, "LLVM commit for AMD": UNKNOWN}
    if folder is not None:
        bill["LLVM commit"] = _llvm_commit(folder / _LIBRARIES["libtriton"][0])
        own = folder / _AMD_GENERATOR
        bill["LLVM commit for AMD"] = _llvm_commit(own) if own.exists() else bill["LLVM commit"]
    for name, (place, variable) in _LIBRARIES.items():
        named = environ.get(variable) if variable else None
        path = Path(named) if named else folder / place if folder else None
        bill[f"{name} sha256"] = _digest(path) if path and path.is_file() else UNKNOWN
    tools = assemblers()
    for name in ("ptxas", "ptxas-blackwell"):
        bill[f"{name} sha256"] = _digest(tools[name]) if name in tools else NONE
    bill["driver"] = driver or NONE
    changing = {name: value for name, value in variables(environ).items() if _CHANGES_CODE.fullmatch(name)}
    bill |= {f"{VARIABLE}{name}": value for name, value in changing.items() if not _CHANGES_NONE.fullmatch(name)}
    return bill


def _package() -> Path | None:
    """The folder of the Triton that would be imported."""
    spec = importlib.util.find_spec("triton")
    return Path(spec.origin).parent if spec and spec.origin else None


def _triton_commit() -> str:
    """The commit in the version of a build from source, such as 3.8.0+git0a1b2c3d; a release names none."""
    distribution = _distribution()
    match = _COMMIT.search(distribution.version) if distribution else None
    return match[1] if match else UNKNOWN


def _llvm_commit(library: Path) -> str:
    """The commit that a library with LLVM names in its text. The first match ends the search, after a tenth of it."""
    try:
        with library.open("rb") as file:
            before = b""
            while chunk := file.read(_CHUNK):
                match = _LLVM.search(before + chunk)
                if match:
                    return match[1].decode()
                before = chunk[-128:]
    except OSError:
        pass
    return UNKNOWN


def _distribution() -> Distribution | None:
    """The metadata that lie beside the Triton that would be imported; a copy before it on the path may have none."""
    folder = _package()
    for distribution in importlib.metadata.distributions(name="triton"):
        if folder is not None and Path(str(distribution.locate_file("triton"))).resolve() == folder.resolve():
            return distribution
    return None


@functools.cache
def _listed() -> dict[Path, tuple[str, str]]:
    """Digest and size of Triton's files, as its wheel lists them: to read them would take a second."""
    distribution = _distribution()
    rows = csv.reader((distribution.read_text("RECORD") or "").splitlines()) if distribution else ()
    return {
        Path(str(distribution.locate_file(row[0]))).resolve(): (row[1].removeprefix("sha256="), row[2])
        for row in rows
        if distribution and len(row) == 3 and row[1].startswith("sha256=")
    }


def _digest(path: Path) -> str:
    """The SHA-256 of the file, in hexadecimal: from the wheel's list if its size is as listed."""
    try:
        digest, size = _listed().get(path.resolve(), ("", ""))
        if digest and size == str(path.stat().st_size):
            return base64.urlsafe_b64decode(digest + "=").hex()
        digest_of_all = hashlib.sha256()
        with path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                digest_of_all.update(chunk)
        return digest_of_all.hexdigest()
    except (OSError, ValueError):
        return UNKNOWN
