"""The results of the compile stage of a run, by launch: written once, then read by every process that runs cases."""

from __future__ import annotations

import concurrent.futures
import functools
import hashlib
import os
import pickle
import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from conformance.execution.compile.compilation import CompilePools, CompileRequest, CompileResult, Request
from conformance.execution.compile.compile_worker import named
from conformance.execution.compile.index_files import INDEX_FILE, asked_file
from conformance.execution.compile.specialisation import specialisation
from conformance.kernels.launch import Launch
from conformance.targets import Target


def identity(launch: Launch, target: Target, *, exact: bool = False) -> str:
    """Hex digest of what ``launch`` compiles for ``target``, alike in a process that interprets and in one that
    compiles: functions count by their names. With ``exact`` each size counts too, for a launch that must not be served
    by the compilation of another one. Raises as :func:`specialisation` does."""
    parts: list[Any] = [specialisation(launch, target, by_name=True).key]
    if exact:
        parts += [(name, _exact(value)) for name, value in launch.arguments.items()]
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def _exact(value: Any) -> Any:
    base = getattr(value, "base", value)  # of a descriptor
    if hasattr(base, "stride"):
        return tuple(base.shape), base.stride(), base.storage_offset()
    return value if isinstance(value, int | float | None) else str(type(value))


class CompiledIndex:
    """The file of one run. Its results are pickled, so the file of another machine must not be opened."""

    def __init__(self, path: Path) -> None:
        """Opens ``path`` to read it; raises sqlite3.OperationalError if it is not there."""
        self._database = sqlite3.connect(f"file:{path}?mode=ro&immutable=1", uri=True)

    @staticmethod
    def write(path: Path, results: Mapping[str, CompileResult], plans: Mapping[str, Iterable[str]]) -> None:
        """Makes ``path`` of the results by identity, and of the identities that each case needs."""
        with sqlite3.connect(path) as database:
            database.execute("CREATE TABLE results (identity TEXT PRIMARY KEY, result BLOB) WITHOUT ROWID")
            database.execute("CREATE TABLE plans (identity TEXT, case_id TEXT)")
            rows = ((identity, pickle.dumps(result)) for identity, result in results.items())
            database.executemany("INSERT INTO results VALUES (?, ?)", rows)
            pairs = ((identity, case) for case, needed in plans.items() for identity in needed)
            database.executemany("INSERT INTO plans VALUES (?, ?)", pairs)
        database.close()

    def get(self, identity: str) -> CompileResult | None:
        """The result of the launch with this identity; None if the stage did not compile it."""
        row = self._database.execute("SELECT result FROM results WHERE identity = ?", (identity,)).fetchone()
        result: CompileResult | None = pickle.loads(row[0]) if row else None
        return result

    def idle(self, used: Iterable[str]) -> dict[str, str]:
        """By case id, the identity of a result that it needs and that is not among those ``used``."""
        used_ids = set(used)
        rows = self._database.execute("SELECT case_id, identity FROM plans")
        return {case: identity for case, identity in rows if identity not in used_ids}

    def close(self) -> None:
        self._database.close()


class IndexedPools(CompilePools):
    """Compile processes that are asked only for what the run's compile stage has not compiled.

    ``folder`` is the run's, None for a process without one, which compiles everything itself. What was asked for is
    written to the file :func:`asked_file` of ``worker``, so that the end of the run can say what the stage missed.
    """

    def __init__(self, workers: int, deadline: float, folder: Path | None = None, worker: str = "main") -> None:
        super().__init__(workers, deadline)
        self._folder = folder
        self._worker = worker

    @functools.cached_property
    def _index(self) -> CompiledIndex | None:
        path = self._folder / INDEX_FILE if self._folder is not None else None
        return CompiledIndex(path) if path is not None and path.exists() else None

    @functools.cached_property
    def _asked(self) -> int:
        assert self._folder is not None
        return os.open(asked_file(self._folder, self._worker), os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def submit(self, request: Request, launch: Launch | None = None) -> concurrent.futures.Future[CompileResult]:
        """The result of ``request``, or its future; ``launch`` is what it compiles, if that is at hand. See
        :meth:`CompilePools.submit`."""
        if self._index is None or not isinstance(request, CompileRequest):
            return super().submit(request)
        launch = launch or named(request.factory)(request.payload, request.target)
        launch_id = identity(launch, request.target, exact=not request.deduplicate)
        result = self._index.get(launch_id)
        word = "missed" if result is None else "used"
        name = launch.function.fn.__name__
        os.write(self._asked, f"{word} {launch_id} {name} for {request.target.id}\n".encode())
        if result is None:
            return super().submit(request)
        future: concurrent.futures.Future[CompileResult] = concurrent.futures.Future()
        future.set_result(result)
        return future

    def close(self) -> None:
        super().close()
        if "_asked" in self.__dict__:
            os.close(self._asked)


def asked(folder: Path) -> tuple[list[str], set[str]]:
    """Returns the texts of what the index of the run in ``folder`` was asked for and did not have, and the identities
    that it had. Removes the files that say so."""
    missed: dict[str, None] = {}
    used: set[str] = set()
    for file in sorted(folder.glob(asked_file(Path(), "*").name)):
        for line in file.read_text().splitlines():
            word, launch_id, kernel = line.split(" ", 2)
            if word == "used":
                used.add(launch_id)
            else:
                missed[kernel] = None
        file.unlink()
    return list(missed), used
