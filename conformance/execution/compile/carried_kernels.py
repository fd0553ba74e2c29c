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
import re
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


class Unusable(Exception):
    """Carried kernels that must not be used; the message says why."""


#: The tables of the file, as it states them itself. A view, a trigger or a computed column would run a stranger's code.
_TABLES = {
    "toolchains": "CREATE TABLE toolchains (edition TEXT, facts TEXT, PRIMARY KEY (edition, facts))",
    "kernels": "CREATE TABLE kernels (key TEXT, edition TEXT, status TEXT, error TEXT, digest TEXT,"
    " PRIMARY KEY (key, edition)) WITHOUT ROWID",
    "files": "CREATE TABLE files (key TEXT, edition TEXT, name TEXT, content BLOB,"
    " PRIMARY KEY (key, edition, name)) WITHOUT ROWID",
}
#: The statuses of a kernel that could not be compiled. Others would excuse a case.
_FAILURES = (Status.COMPILE_ERROR, Status.CRASH, Status.TIMEOUT, Status.OOM)
#: Bytes of the files of one kernel, packed and unpacked, and of any other text.
KERNEL_LIMIT = 128 * 2**20
TEXT_LIMIT = 2**20
#: Files of one kernel, and toolchains of one folder.
FILES_LIMIT = 32
TOOLCHAINS_LIMIT = 64
#: A kernel's files have its name and the stage as their suffix; Triton joins such a name to the path of its cache.
_FILE_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")


class CarriedKernels:
    """The kernels of one folder, whose file may be a stranger's. Python and SQLite run no code of it. No name in it
    leads out of Triton's cache, and sizes have limits. Binaries are as the stranger made them: a digest shows damage
    only."""

    def __init__(self, folder: Path, *, write: bool = False) -> None:
        """Opens those in ``folder``; with ``write`` makes the file if there is none. Raises :class:`Unusable`, or
        sqlite3.Error or OSError, if it cannot be used."""
        path = folder / KERNELS_FILE
        if path.exists() or path.is_symlink():
            plain_file(path)  # the library would wait at a fifo
        # "immutable": the library looks at no journal next to the file, which may be a stranger's fifo
        uri = f"{path.absolute().as_uri()}?{'mode=rwc' if write else 'mode=ro&immutable=1'}"
        self._database = sqlite3.connect(uri, uri=True)
        try:
            self._database.execute("PRAGMA trusted_schema = OFF")
            self._database.execute("PRAGMA cell_size_check = ON")
            tables = dict(self._rows("SELECT name, sql FROM sqlite_master WHERE sql NOT NULL"))
            if write and not tables:
                with self._database:
                    self._database.executescript("; ".join(_TABLES.values()))
            elif tables != _TABLES:
                raise Unusable(
                    f"{path} has other tables than 'conformance precompile' makes: run it again, into a new folder"
                )
        except BaseException:
            self._database.close()
            raise

    def _rows(self, query: str, *values: str, limit: int = FILES_LIMIT) -> list[Any]:
        rows = self._database.execute(f"{query} LIMIT {limit + 1}", values).fetchall()
        if len(rows) > limit:
            raise Unusable(f"more than {limit} rows for {query.split(' FROM ')[1]}")
        return rows

    def add(self, key: str, used: Toolchain, result: CompileResult) -> None:
        """Keeps ``result``, of the specialisation ``key``: the files of its stages, or its failure."""
        stages = result.artefact.stages.values() if result.artefact is not None else ()
        files = {path.name: path.read_bytes() for path in stages}
        error = result.error[: TEXT_LIMIT // 4]  # of a text in UTF-8
        with self._database:
            facts = json.dumps(dataclasses.asdict(used), sort_keys=True)
            self._database.execute("INSERT OR REPLACE INTO toolchains VALUES (?, ?)", (used.edition, facts))
            digest = _digest(key, used.edition, result.status.value, error, files)
            row = (key, used.edition, result.status.value, error, digest)
            self._database.execute("INSERT OR REPLACE INTO kernels VALUES (?, ?, ?, ?, ?)", row)
            self._database.execute("DELETE FROM files WHERE key = ? AND edition = ?", (key, used.edition))
            rows = ((key, used.edition, name, zlib.compress(content)) for name, content in files.items())
            self._database.executemany("INSERT INTO files VALUES (?, ?, ?, ?)", rows)

    def take_all(self, other: CarriedKernels) -> int:
        """Adds all that ``other`` has and this one lacks, and returns the number of kernels of ``other``."""
        with self._database:
            for table in _TABLES:
                rows = other._database.execute(f"SELECT * FROM {table}").fetchall()
                if rows:
                    marks = ", ".join("?" * len(rows[0]))
                    self._database.executemany(f"INSERT OR IGNORE INTO {table} VALUES ({marks})", rows)
        (count,) = other._database.execute("SELECT count(*) FROM kernels").fetchone()
        return int(count)

    def toolchains(self) -> list[Toolchain]:
        """Returns the toolchains that compiled them. Raises :class:`Unusable` or sqlite3.Error for unreadable ones."""
        query = f"SELECT substr(facts, 1, {TEXT_LIMIT}) FROM toolchains ORDER BY facts"
        return [_toolchain(facts) for (facts,) in self._rows(query, limit=TOOLCHAINS_LIMIT)]

    def get(self, key: str, edition: str) -> tuple[Status, str, dict[str, bytes]] | None:
        """Returns the status, the error and the files by name of a specialisation; None if it is not there. Raises
        :class:`Unusable` or sqlite3.Error if it must not be used."""
        size = "SELECT total(length(status)) + total(length(error)) FROM kernels WHERE key = ? AND edition = ?"
        packed = "SELECT total(length(content)) + total(length(name)) FROM files WHERE key = ? AND edition = ?"
        if (size_of := self._rows(size, key, edition)[0][0]) > TEXT_LIMIT:
            raise Unusable(f"its texts have {size_of:.0f} bytes, {TEXT_LIMIT} are allowed")
        if (size_of := self._rows(packed, key, edition)[0][0]) > KERNEL_LIMIT:
            raise Unusable(f"its files have {size_of:.0f} bytes, {KERNEL_LIMIT} are allowed")
        query = "SELECT status, error, digest FROM kernels WHERE key = ? AND edition = ?"
        rows = self._rows(query, key, edition)
        if not rows:
            return None
        status, error, digest = rows[0]
        query = "SELECT name, content FROM files WHERE key = ? AND edition = ?"
        files = _unpacked(self._rows(query, key, edition))
        if not isinstance(error, str) or digest != _digest(key, edition, status, error, files):
            raise Unusable("its files are not those that were compiled together: their digest differs")
        if status not in (Status.PASS.value, *(failure.value for failure in _FAILURES)):
            raise Unusable(f"its status {status!r} is none of a compilation")
        if (status == Status.PASS.value) != bool(files):
            raise Unusable(f"its status is {status} and it has {len(files)} files")
        return Status(status), error, files

    def close(self) -> None:
        self._database.close()


def _digest(key: object, edition: object, status: object, error: str, files: Mapping[str, bytes]) -> str:
    """Hex digest of all that is kept of one specialisation: what was exchanged with another kernel's differs."""
    facts = [(name, hashlib.sha256(content).hexdigest()) for name, content in sorted(files.items())]
    return hashlib.sha256(json.dumps([key, edition, status, error, facts]).encode()).hexdigest()


def _unpacked(rows: list[Any]) -> dict[str, bytes]:
    """The files in ``rows`` of names and packed contents. Raises :class:`Unusable` for a name that is no file's of one
    kernel, and for a content that is none or too large."""
    files: dict[str, bytes] = {}
    left = KERNEL_LIMIT
    for name, content in rows:
        if not isinstance(name, str) or not _FILE_NAME.fullmatch(name) or ".." in name or len(name) > 200:
            raise Unusable(f"a file is called {str(name)[:80]!r}: letters, digits, '_', '-' and single '.' are allowed")
        unpacking = zlib.decompressobj()
        try:
            files[name] = unpacking.decompress(content, left)
        except (zlib.error, TypeError, ValueError) as error:
            raise Unusable(f"{name} cannot be unpacked: {error}") from None
        if not unpacking.eof or unpacking.unused_data:
            raise Unusable(f"{name} is cut off, or it is longer than the {KERNEL_LIMIT} bytes that a kernel may have")
        left -= len(files[name])
        if left <= 0:
            raise Unusable(f"its files unpack to more than the {KERNEL_LIMIT} bytes that a kernel may have")
    if len({name.rpartition(".")[0] for name in files}) > 1:
        raise Unusable(f"its files have names of several kernels: {', '.join(files)}")
    return files


def _toolchain(facts: object) -> Toolchain:
    try:
        used = Toolchain(**json.loads(facts if isinstance(facts, str) else ""))
        used.edition  # noqa: B018  # it must be data
    except (ValueError, TypeError, RecursionError) as error:
        raise Unusable(f"a toolchain there cannot be read ({type(error).__name__}): {str(error)[:200]}") from None
    return used


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
