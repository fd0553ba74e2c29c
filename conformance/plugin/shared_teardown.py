"""Tears down what several cases share, apart from the last case that used it, and watches the hooks of a session.

A shared fixture that fails, hangs or ends the process is a fault of the run that names it; each case keeps its verdict.
So is a hook at the end of a worker. One at its beginning ends the run with a sentence.
"""

from __future__ import annotations

import contextlib
import functools
import json
from collections.abc import Callable, Generator, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from conformance.exception_text import text_of
from conformance.faults import FaultKind
from conformance.machine.environment_faults import fault_of_error
from conformance.machine.overdue import Overdue, deadline
from conformance.plugin.case_hooks import cannot_write
from conformance.plugin.case_ids import CaseIds
from conformance.plugin.record_files import refusal_file

#: Files in which processes that run cases note what fails outside the cases.
FAULT_FILES = "faults-*.jsonl"
#: Seconds that the hooks at the beginning and the end of the session have at least in the process that leads workers.
LEAST_S = 60.0


def noted_faults(folder: Path) -> list[tuple[FaultKind, str]]:
    """Returns the faults that processes have noted in the run's ``folder``, each with its kind and a sentence."""
    lines = [line for file in sorted(folder.glob(FAULT_FILES)) for line in file.read_text().splitlines()]
    return [(FaultKind(kind), text) for kind, text in map(json.loads, lines)]


@dataclass(frozen=True)
class _Parents:
    """Stands for a next case with all parents of ``item``: pytest then tears down the fixtures of ``item`` alone."""

    item: pytest.Item

    def listchain(self) -> list[Any]:
        return self.item.listchain()[:-1]


class SharedTeardown:
    """Hooks of a process that runs cases, whose name in the run's ``folder`` is ``name``. Each teardown has
    ``seconds``. ``is_worker``: another process leads the run."""

    def __init__(self, folder: Path, name: str, seconds: float, case_ids: CaseIds, is_worker: bool) -> None:
        self._folder, self._name, self._seconds = folder, name, seconds
        self._case_ids = case_ids
        self._is_worker = is_worker
        self._session: Any = None
        self._faults: list[tuple[FaultKind, str]] = []
        self._item: pytest.Item | None = None  # the case that runs
        self._tear_down: Callable[[Any], None]

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> Generator[None]:
        self._session = session
        try:
            with deadline("the hook pytest_sessionstart", max(self._seconds, LEAST_S)):
                yield
        except Overdue as error:
            if self._is_worker:
                refusal_file(self._folder, self._name).write_text(str(error), encoding="utf-8")
            raise pytest.UsageError(str(error)) from None

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self) -> Generator[None]:
        with self._noted("the hook pytest_sessionfinish") if self._is_worker else contextlib.nullcontext():
            yield

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self) -> None:
        setup = self._session._setupstate
        self._tear_down, setup.teardown_exact = setup.teardown_exact, self._tear_down_own

    def _tear_down_own(self, nextitem: Any) -> None:
        """Takes the place of pytest's own method. While a case runs, only its own fixtures end."""
        self._tear_down(nextitem if self._item in (None, nextitem) else _Parents(self._item))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, Any, Any]:
        self._item = item if self._case_ids(item.nodeid) is not None else None
        try:
            result = yield
        finally:
            self._item = None
        needed = nextitem.listchain() if nextitem is not None else []
        stack = self._session._setupstate.stack
        ends = [stack[node][0] for number, node in enumerate(stack) if needed[number : number + 1] != [node]]
        if ends:
            with self._noted(f"the teardown of {_fixtures(ends)}, after {item.nodeid}"):
                self._tear_down(nextitem)
        return result

    @contextlib.contextmanager
    def _noted(self, what: str) -> Iterator[None]:
        """Inside, a failure is a fault of the run, and so is the end of this process."""
        self._write([*self._faults, (FaultKind.OTHER_TEST, f"{what}: the process died")])
        try:
            with deadline(what, self._seconds):
                yield
        except KeyboardInterrupt:
            raise
        except BaseException as error:  # pytest's own outcomes are no Exception
            parts = _parts(error)
            fault = fault_of_error(parts[0])
            kind = FaultKind(fault.kind) if fault and all(map(fault_of_error, parts)) else FaultKind.OTHER_TEST
            self._faults.append((kind, f"{what}: {'; '.join(map(text_of, parts))}"))
        self._write(self._faults)

    def _write(self, faults: list[tuple[FaultKind, str]]) -> None:
        file = self._folder / FAULT_FILES.replace("*", self._name)
        try:
            file.write_text("".join(f"{json.dumps(fault)}\n" for fault in faults), encoding="utf-8")
        except OSError as error:
            self._session.shouldstop = self._session.shouldstop or cannot_write(self._folder, error)


class LeaderDeadline:
    """Gives the hooks at the beginning of the session ``seconds`` in the process that leads workers."""

    def __init__(self, seconds: float) -> None:
        self._seconds = max(seconds, LEAST_S)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionstart(self) -> Generator[None]:
        try:
            with deadline("the hook pytest_sessionstart", self._seconds):
                yield
        except Overdue as error:
            raise pytest.UsageError(str(error)) from None


def _fixtures(ends: Iterable[list[Any]]) -> str:
    """Returns the names of the fixtures that the functions of ``ends`` tear down, the first to end first."""
    bound = [getattr(end, "func", end) for functions in ends for end in functions if isinstance(end, functools.partial)]
    names = [str(getattr(getattr(end, "__self__", None), "argname", "")) for end in reversed(bound)]
    return ", ".join(dict.fromkeys(filter(None, names))) or "the file's setup"


def _parts(error: BaseException) -> list[BaseException]:
    """Returns the errors of a group; ``error`` itself if it is none."""
    parts = getattr(error, "exceptions", None)  # Python 3.10 has no class for groups
    return [error] if not isinstance(parts, tuple) else [part for one in parts for part in _parts(one)]
