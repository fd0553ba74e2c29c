"""Kernels that were compiled on another machine: kept in one file of a folder, and given to Triton in place of a
compilation.

Triton's own cache cannot be carried: its keys hold the digests of its installed files, which differ between builds for
two versions of Python. Here a kernel's key is its specialisation (source, argument classes, options, target) and the
:class:`Toolchain`.

What the compilers of Triton's backends say of themselves, a part of the keys of Triton's caches, is here too.
"""

from __future__ import annotations

import base64
import contextlib
import dataclasses
import functools
import hashlib
import importlib
import json
import platform
import sqlite3
import sys
import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from conformance.execution.compile.compilation import CompileResult
from conformance.gate.runs.bill_of_materials import UNKNOWN
from conformance.machine.versions import assembler_versions
from conformance.records import Status, plain_file
from conformance.targets import Target, every_target

KERNELS_FILE = "kernels.sqlite"


@dataclass(frozen=True)
class Toolchain:
    """The tools that compile. They are the ``triton`` version (with the commit, if the build names one) and NVIDIA's
    ``assemblers``. ``settings`` are those of the environment on which the code depends. ``library`` is the sha256 of
    Triton's library and ``python`` the version that it was built for; between two versions of Python the libraries
    differ."""

    triton: str
    assemblers: Mapping[str, str | None]
    settings: Mapping[str, str]
    library: str
    python: str

    @property
    def edition(self) -> str:
        """Hex digest of what must be the same for a kernel to be carried, whatever the version of Python."""
        return hashlib.sha256(
            json.dumps([self.triton, self.assemblers, self.settings], sort_keys=True).encode()
        ).hexdigest()

    def objection(self, other: Toolchain) -> str | None:
        """Returns the reason for which kernels of ``other`` cannot be used here; None if they can."""
        for name in ("triton", "assemblers", "settings"):
            here, there = getattr(self, name), getattr(other, name)
            if here != there:
                return f"they were compiled with {name} {there}, here is {here}"
        if self.python == other.python and self.library != other.library:
            return f"Triton's library differs, though both are {self.triton} for Python {self.python}"
        return None


def toolchain(payload: None, target: Target) -> Toolchain:
    """Returns the toolchain of this process: a ``Task`` for a compile process."""
    import triton
    from triton._C import libtriton

    version = triton.__version__
    with contextlib.suppress(metadata.PackageNotFoundError):
        installed = metadata.version("triton")  # it has the commit, unless another Triton is imported
        version = installed if installed.startswith(version) else version
    return Toolchain(
        triton=version,
        assemblers=assembler_versions(),
        settings={name: str(value) for name, value in libtriton.get_cache_invalidating_env_vars().items()},
        library=hashlib.sha256(Path(libtriton.__file__).read_bytes()).hexdigest(),
        python=".".join(platform.python_version_tuple()[:2]),
    )


class CarriedKernels:
    """The kernels of one folder. Files of other machines are safe to open: they hold no code that Python runs."""

    def __init__(self, folder: Path, *, write: bool = False) -> None:
        """Opens those in ``folder``; with ``write`` makes the file if there is none. Raises sqlite3.OperationalError
        if it cannot be opened."""
        path = folder / KERNELS_FILE
        try:
            if path.exists():
                plain_file(path)  # the library would wait at a fifo
        except OSError as error:
            raise sqlite3.OperationalError(str(error)) from None
        self._database = sqlite3.connect(path) if write else sqlite3.connect(f"file:{path}?mode=ro", uri=True)
        if write:
            with self._database:
                self._database.executescript(
                    "CREATE TABLE IF NOT EXISTS toolchains (edition TEXT, facts TEXT, PRIMARY KEY (edition, facts));"
                    "CREATE TABLE IF NOT EXISTS kernels"
                    " (key TEXT, edition TEXT, status TEXT, error TEXT, PRIMARY KEY (key, edition)) WITHOUT ROWID;"
                    "CREATE TABLE IF NOT EXISTS files (key TEXT, edition TEXT, name TEXT, content BLOB,"
                    " PRIMARY KEY (key, edition, name)) WITHOUT ROWID;"
                )

    def add(self, key: str, used: Toolchain, result: CompileResult) -> None:
        """Keeps ``result``, of the specialisation ``key``: the files of its stages, or its failure."""
        with self._database:
            facts = json.dumps(dataclasses.asdict(used), sort_keys=True)
            self._database.execute("INSERT OR REPLACE INTO toolchains VALUES (?, ?)", (used.edition, facts))
            row = (key, used.edition, result.status.value, result.error)
            self._database.execute("INSERT OR REPLACE INTO kernels VALUES (?, ?, ?, ?)", row)
            if result.artefact is not None:
                stages = result.artefact.stages.values()
                rows = ((key, used.edition, path.name, zlib.compress(path.read_bytes())) for path in stages)
                self._database.executemany("INSERT OR REPLACE INTO files VALUES (?, ?, ?, ?)", rows)

    def toolchains(self) -> list[Toolchain]:
        """Returns the toolchains that compiled them."""
        rows = self._database.execute("SELECT facts FROM toolchains ORDER BY facts")
        return [Toolchain(**json.loads(facts)) for (facts,) in rows]

    def failure(self, key: str, edition: str) -> tuple[Status, str] | None:
        """Returns the status and the error of a specialisation that could not be compiled; None for any other."""
        query = "SELECT status, error FROM kernels WHERE key = ? AND edition = ?"
        row = self._database.execute(query, (key, edition)).fetchone()
        return (Status(row[0]), row[1]) if row and row[0] != Status.PASS.value else None

    def files(self, key: str, edition: str) -> dict[str, bytes]:
        """The files of a specialisation's stages by name; none if it is not there."""
        query = "SELECT name, content FROM files WHERE key = ? AND edition = ?"
        return {name: zlib.decompress(content) for name, content in self._database.execute(query, (key, edition))}

    def close(self) -> None:
        self._database.close()


@functools.lru_cache(maxsize=4)
def carried(folder: str) -> CarriedKernels:
    """Returns the kernels in ``folder``, opened once for each process."""
    return CarriedKernels(Path(folder))


@contextlib.contextmanager
def offered(files: Mapping[str, bytes]) -> Iterator[list[str]]:
    """Within the block, Triton finds ``files`` in its cache when it looks for a kernel of that name that the cache
    lacks. Yields a list to which the name of a kernel is added when Triton takes it."""
    from triton import knobs
    from triton.runtime.cache import FileCacheManager

    manager: Any = knobs.cache.manager_class or FileCacheManager
    opened: list[str] = []

    class Offered(manager):  # the user's environment may name a class
        def __init__(self, key: str, override: bool = False, dump: bool = False) -> None:
            super().__init__(key, override=override, dump=dump)
            self._offers = not override and not dump
            self._hash = base64.b32decode(key + "=" * (-len(key) % 8)).hex()

        def get_group(self, filename: str) -> Any:
            group = super().get_group(filename)
            if group or not self._offers or filename not in files:
                return group
            group = {name: self.put(content, name) for name, content in files.items() if name != filename}
            facts = json.loads(files[filename]) | {"hash": self._hash}  # Triton's key of it on this machine
            group[filename] = self.put(json.dumps(facts), filename, binary=False)
            self.put_group(filename, group)
            opened.append(filename)
            return super().get_group(filename)

    before = knobs.cache.manager_class
    knobs.cache.manager_class = Offered
    try:
        yield opened
    finally:
        knobs.cache.manager_class = before


def backend_hashes() -> dict[str, str]:
    """Returns the text of ``hash()`` of each backend's compiler, by the backend's name in ``triton.backends``. The
    compiler is made for the first target that the backend supports, which the text names. "unknown" and the reason
    where there is none. Empty in a process that has not imported Triton, which compiled nothing."""
    if "triton.backends.compiler" not in sys.modules:
        return {}
    backends = importlib.import_module("triton.backends").backends
    gpu_target = importlib.import_module("triton.backends.compiler").GPUTarget
    triton_targets = [gpu_target(target.backend, target.arch, target.warp_size) for target in every_target()]
    return {name: _hash(backend.compiler, triton_targets) for name, backend in backends.items()}


def _hash(compiler: type, triton_targets: list[object]) -> str:
    try:
        target = next((one for one in triton_targets if compiler.supports_target(one)), None)  # type: ignore[attr-defined]
        if target is None:
            return f"{UNKNOWN}: no target of it is known"
        return f"{compiler(target).hash()}"
    except Exception as error:  # a backend's own code, which raises what it likes
        return f"{UNKNOWN}: {type(error).__name__}: {error}"[:64]
