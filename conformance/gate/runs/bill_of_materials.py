"""Everything that makes code in a run, by name: commits, libraries, assemblers, driver and variables.

What cannot be found out is said as :data:`UNKNOWN`: a package need not say of which commit it is. Nothing here imports
Triton, so what a backend says of itself is added by the processes that compile (:func:`with_backend_hashes`).
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
from collections.abc import Iterator, Mapping
from importlib.metadata import Distribution
from pathlib import Path

from conformance.gate.runs.run_environment import variables
from conformance.machine.kept_answers import file_digest, kept_while_unchanged
from conformance.machine.versions import assemblers

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
#: Bytes up to which a backend's file is read; for a larger one the wheel's list serves, if its size is as listed.
_SMALL = 1 << 20
#: Begins the names of the two rows of a backend: the digest of its files, and what its compiler's hash() says.
BACKEND = "backend "
_FILES, _HASH = " sha256", " hash()"


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
    for backend, files in sorted(_backends(folder)):
        bill[f"{backend}{_FILES}"] = folder_digest(files) if files is not None else UNKNOWN
        bill[f"{backend}{_HASH}"] = UNKNOWN
    changing = {name: value for name, value in variables(environ).items() if _CHANGES_CODE.fullmatch(name)}
    bill |= {f"{VARIABLE}{name}": value for name, value in changing.items() if not _CHANGES_NONE.fullmatch(name)}
    return bill


def with_backend_hashes(bill: Mapping[str, str], hashes: Mapping[str, str]) -> dict[str, str]:
    """``bill`` with what the compiler of each backend says of itself; ``hashes`` are by the backends' names in
    ``triton.backends``. A text of several lines, or a long one, is there as its SHA-256."""
    extended = dict(bill)
    for name, text in hashes.items():
        own = next(
            (row for row in bill if re.fullmatch(rf"{BACKEND}{re.escape(name)}( \(.*\))?{re.escape(_HASH)}", row)), ""
        )
        short = len(text) <= 64 and text.isprintable()
        extended[own or f"{BACKEND}{name}{_HASH}"] = text if short else hashlib.sha256(text.encode()).hexdigest()
    return extended


def is_of_backend(name: str) -> bool:
    """Returns True if ``name`` is a row of a backend.

    >>> is_of_backend("backend nvidia"), is_of_backend("ptxas")
    (True, False)
    """
    return name.startswith(BACKEND)


def backend_digests(bill: Mapping[str, str]) -> dict[str, str]:
    """The digest of each backend's files in ``bill``, where it is known, by names such as "backend nvidia"."""
    files = {name.removesuffix(_FILES): value for name, value in bill.items() if is_of_backend(name)}
    return {name: value for name, value in files.items() if not name.endswith(_HASH) and value != UNKNOWN}


def is_of_triton(name: str) -> bool:
    """Returns True if ``name`` is a row of a backend that is a part of Triton's package, and changes with its
    version."""
    return is_of_backend(name) and " (" not in name


def lists_backends(bill: Mapping[str, str]) -> bool:
    """Returns True if ``bill`` names backends: that of an earlier version of the harness does not."""
    return any(map(is_of_backend, bill))


def _backends(package: Path | None) -> Iterator[tuple[str, Path | None]]:
    """Yields each backend that Triton may load, by name, and the folder of its files, None if it is not known. They are
    those in Triton's ``package`` and those that installed packages bring. For the latter that is the package's whole
    folder, and its name is part of theirs."""
    own = package / "backends" if package is not None else None
    if own is not None:
        yield from ((f"{BACKEND}{file.parent.name}", file.parent) for file in own.glob("*/compiler.py"))
    for point in importlib.metadata.entry_points(group="triton.backends"):
        module = point.value.partition(":")[0]
        if module != f"triton.backends.{point.name}":
            yield f"{BACKEND}{point.name} ({module})", _folder_of(module, package)


def _folder_of(module: str, package: Path | None) -> Path | None:
    top, *rest = module.split(".")
    if top == "triton":
        return package.joinpath(*rest) if package is not None else None
    spec = importlib.util.find_spec(top)
    places = list(spec.submodule_search_locations or ()) if spec else []
    return Path(places[0]) if places else None


def folder_digest(folder: Path) -> str:
    """Returns the SHA-256 over the files below ``folder`` in the order of their paths. Of each file it takes the path
    in the folder, a NUL, the content's SHA-256 in hexadecimal and a line feed. What Python compiled is left out."""
    digest = hashlib.sha256()
    top = folder.resolve()
    files = [os.path.join(place, name) for place, _, names in os.walk(top) for name in names]
    paths = {path.removeprefix(f"{top}/"): path for path in files if os.path.isfile(path)}
    for name, path in sorted(paths.items()):
        if "__pycache__" not in name.split("/"):
            content = _digest(path, read_small=True)
            if content == UNKNOWN:
                return UNKNOWN
            digest.update(f"{name}\0{content}\n".encode())
    return digest.hexdigest() if paths else UNKNOWN


def _package() -> Path | None:
    """Returns the folder of the Triton that would be imported."""
    spec = importlib.util.find_spec("triton")
    return Path(spec.origin).parent if spec and spec.origin else None


def _triton_commit() -> str:
    """Returns the commit in the version of a build from source, such as 3.8.0+git0a1b2c3d; a release names none."""
    distribution = _distribution()
    match = _COMMIT.search(distribution.version) if distribution else None
    return match[1] if match else UNKNOWN


def _llvm_commit(library: Path) -> str:
    """Returns the commit that a library with LLVM names in its text."""
    try:
        return _named_commit(library)
    except OSError:
        return UNKNOWN


@kept_while_unchanged
def _named_commit(library: Path) -> str:
    """The first match ends the search, after a tenth of the file."""
    with library.open("rb") as file:
        before = b""
        while chunk := file.read(_CHUNK):
            match = _LLVM.search(before + chunk)
            if match:
                return match[1].decode()
            before = chunk[-128:]
    return UNKNOWN


def _distribution() -> Distribution | None:
    """The metadata next to the Triton that would be imported; a copy before it on the path may have none."""
    folder = _package()
    for distribution in importlib.metadata.distributions(name="triton"):
        if folder is not None and Path(str(distribution.locate_file("triton"))).resolve() == folder.resolve():
            return distribution
    return None


@functools.cache
def _listed(package: Path | None) -> dict[str, tuple[str, str]]:
    """Digest and size of the files of Triton's ``package``, as its wheel lists them: to read them would take a
    second."""
    distribution = _distribution()
    rows = csv.reader((distribution.read_text("RECORD") or "").splitlines()) if distribution else ()
    return {
        os.path.realpath(str(distribution.locate_file(row[0]))): (row[1].removeprefix("sha256="), row[2])
        for row in rows
        if distribution and len(row) == 3 and row[1].startswith("sha256=")
    }


def _digest(path: str | Path, read_small: bool = False) -> str:
    """The SHA-256 of the file, in hexadecimal: from the wheel's list if its size is as listed. ``read_small``: a small
    file is read all the same."""
    try:
        size = os.stat(path).st_size
        if not (read_small and size <= _SMALL):
            digest, listed_size = _listed(_package()).get(os.path.realpath(path), ("", ""))
            if digest and listed_size == str(size):
                return base64.urlsafe_b64decode(digest + "=").hex()
        return file_digest(path)
    except (OSError, ValueError):
        return UNKNOWN
