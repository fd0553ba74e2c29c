"""The compile stage: compiles what cases need, each specialisation once, before the first case runs.

Compile processes plan the cases, and what was planned is compiled by all of them, longest first. So no case waits for a
compiler, no kernel is compiled twice, and the cores are busy to the end.
"""

from __future__ import annotations

import dataclasses
import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any

from conformance.cases.case_table import Selection
from conformance.execution.compile.carried_kernels import CarriedKernels, Toolchain, Unusable
from conformance.execution.compile.compilation import CompilePool, CompileRequest, CompileResult, Task, process_group
from conformance.execution.compile.kernel_figures import over_memory
from conformance.judging.planner import PlannedLaunch
from conformance.judging.settings import Settings
from conformance.records import Status
from conformance.reporting.progress import Progress, about

#: Cases that one process plans at a time.
CHUNK = 48


class CannotBeUsed(Exception):
    """Kernels that were compiled elsewhere cannot be used here; the message says why."""


class CannotBePlanned(Exception):
    """Cases could not be planned; the message says which and why."""


class Work:
    """The progress of one part of the stage: how many of its ``total`` units are done. Units end in several threads."""

    def __init__(self, unit: str, total: int) -> None:
        self._unit = unit
        self._total = total
        self._done = self._failing = 0
        self._began = time.monotonic()
        self._lock = threading.Lock()

    def ended(self, units: int, failing: int = 0) -> None:
        with self._lock:
            self._done += units
            self._failing += failing

    def look(self) -> Progress:
        # Whether that was expected is known when a case is judged.
        facts = [f"{self._failing} did not compile"] if self._failing else []
        left = self._total - self._done
        if self._done and left:
            seconds = (time.monotonic() - self._began) / self._done * left
            facts.append(f"about {about(seconds)} left")
        return Progress(self._unit, self._done, self._total, tuple(facts), source="time left at the pace so far")


@dataclass
class CompileResults:
    """The results of the stage. ``plans`` has the launches of each case. ``results`` has a result for each identity of
    a launch, ``kernels`` one for each key of a specialisation. ``problems`` says which cases could not be planned.
    Seconds are wall time."""

    plans: dict[str, list[PlannedLaunch]] = field(default_factory=dict)
    results: dict[str, CompileResult] = field(default_factory=dict)
    kernels: dict[str, CompileResult] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    plan_seconds: float = 0.0
    compile_seconds: float = 0.0

    def is_needed_now(self, launch: PlannedLaunch) -> bool:
        """True if ``launch`` waited for another one, which has been compiled and fits its target."""
        if launch.unless_past is None:
            return False
        artefact = self.results[launch.unless_past].artefact
        return artefact is None or not over_memory(artefact.resources, launch.request.target)

    @property
    def cached(self) -> list[str]:
        """The keys of kernels that were in Triton's cache, or were carried here."""
        return [key for key, result in self.kernels.items() if result.artefact is not None and result.artefact.cached]

    @property
    def failed(self) -> list[str]:
        """The keys of kernels that could not be compiled."""
        return [key for key, result in self.kernels.items() if result.artefact is None]

    def __str__(self) -> str:
        return (
            f"{len(self.kernels)} kernels for {sum(map(bool, self.plans.values()))} cases in "
            f"{self.plan_seconds + self.compile_seconds:.1f} s, of these {self.plan_seconds:.1f} s to plan them; "
            f"{len(self.cached)} were compiled before, {len(self.failed)} failed"
        )


class CompileStage:
    """Compile processes for one stage: ``workers`` of them, each launch within ``deadline`` seconds. They end with the
    block."""

    def __init__(self, workers: int, deadline: float) -> None:
        self._workers = workers
        self._deadline = deadline
        self._pools: dict[str, CompilePool] = {}
        self.work = Work("cases planned", 0)

    def __enter__(self) -> CompileStage:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        for pool in self._pools.values():
            pool.close()

    def look(self) -> Progress:
        """Returns the progress of the stage. May be called from any thread."""
        return self.work.look()

    def toolchain(self, selection: Selection) -> Toolchain:
        """Returns the tools with which these processes compile. Raises RuntimeError if they cannot say."""
        task = Task("conformance.execution.compile.carried_kernels:toolchain", None, selection.targets[0])
        result = self._pool(process_group(task.target)).submit(task).result()
        if not isinstance(result.value, Toolchain):
            raise RuntimeError(f"the compile process cannot say what it compiles with: {result.error}")
        return result.value

    def kernels(self, settings: Settings, selection: Selection, cases: Sequence[str]) -> dict[str, tuple[str, ...]]:
        """Returns the keys of the kernels that each of ``cases`` compiles. No launch is kept, so that there may be
        millions of cases. Raises :class:`CannotBePlanned`."""
        keys: dict[str, tuple[str, ...]] = {}
        planned = self._planned("kernel_keys", settings, selection, cases, keys)
        if planned:
            raise CannotBePlanned(planned[0])
        return keys

    def compile(
        self, settings: Settings, selection: Selection, cases: Sequence[str], carried: Path | None = None
    ) -> CompileResults:
        """Compiles what ``cases`` need, or takes it from ``carried``, a folder of kernels from another machine.

        A launch that cannot be compiled is a failure of the cases that need it. A case that cannot be planned has no
        launches. Raises :class:`CannotBeUsed` if no kernel in ``carried`` is of this machine's toolchain.
        """
        compiled = CompileResults()
        from_elsewhere = None if carried is None else (str(carried), self._edition(carried, selection))
        started = time.monotonic()
        self._plan(settings, selection, cases, compiled)
        planned = time.monotonic()
        self.work = Work("kernels compiled", len({launch.key for plan in compiled.plans.values() for launch in plan}))
        how = {"carried": from_elsewhere, "describe": "sass" if settings.whole_tier else "text"}
        for group, launches in _by_group(compiled.plans.values()).items():
            self._compile(group, [launch for launch in launches if launch.unless_past is None], how, compiled)
            self._compile(group, [launch for launch in launches if compiled.is_needed_now(launch)], how, compiled)
            self._pools.pop(group).close()  # the next group has the cores and the memory to itself
        compiled.plans = {
            case: [launch for launch in plan if launch.identity in compiled.results]
            for case, plan in compiled.plans.items()
        }
        compiled.plan_seconds, compiled.compile_seconds = planned - started, time.monotonic() - planned
        return compiled

    def _pool(self, group: str) -> CompilePool:
        return self._pools.setdefault(group, CompilePool(self._workers, self._deadline))

    def _edition(self, folder: Path, selection: Selection) -> str:
        here = self.toolchain(selection)
        try:
            objections = [here.objection(theirs) for theirs in CarriedKernels(folder).toolchains()]
        except (Unusable, sqlite3.Error, OSError) as error:
            raise CannotBeUsed(f"{folder} has no kernels that 'conformance precompile' left: {error}") from None
        if not objections or all(objections):
            why = "; ".join(objection for objection in objections if objection) or "there are none"
            raise CannotBeUsed(f"the kernels in {folder} cannot be used here: {why}")
        return here.edition

    def _plan(self, settings: Settings, selection: Selection, cases: Sequence[str], compiled: CompileResults) -> None:
        compiled.problems += self._planned("plan_cases", settings, selection, cases, compiled.plans)

    def _planned(
        self, function: str, settings: Settings, selection: Selection, cases: Sequence[str], answers: dict[str, Any]
    ) -> list[str]:
        """Adds to ``answers`` what the ``function`` of the planner says of each of ``cases``. Returns the problems."""
        name, target = f"conformance.judging.planner:{function}", selection.targets[0]
        pool = self._pool(process_group(target))
        chunks = [tuple(cases[first : first + CHUNK]) for first in range(0, len(cases), CHUNK)]
        self.work = work = Work("cases planned", len(cases))
        handles = [pool.submit(Task(name, (settings, selection, chunk), target)) for chunk in chunks]
        problems = []
        for chunk, handle in zip(chunks, handles, strict=True):
            handle.add_done_callback(partial(_planned, work, len(chunk)))
        for chunk, handle in zip(chunks, handles, strict=True):
            result = handle.result()
            if result.status is Status.PASS:
                answers |= result.value
            else:
                text = f"{len(chunk)} cases from {chunk[0]} on could not be planned: {result.error.strip()}"
                problems.append(text.partition("\n")[0])
        return problems

    def _compile(
        self, group: str, launches: Sequence[PlannedLaunch], how: Mapping[str, Any], compiled: CompileResults
    ) -> None:
        """One compilation for each key, those with most work first; ``how`` are fields of the requests."""
        pool = self._pool(group)
        by_key = {launch.key: launch for launch in sorted(launches, key=lambda launch: -launch.work)}
        handles = {key: pool.submit(dataclasses.replace(launch.request, **how)) for key, launch in by_key.items()}
        for handle in handles.values():
            handle.add_done_callback(partial(_compiled, self.work))
        compiled.kernels |= {key: handle.result() for key, handle in handles.items()}
        compiled.results |= {launch.identity: compiled.kernels[launch.key] for launch in launches}
        # Triton has all of them now. It is asked again for each that another's compilation must not serve.
        single: dict[str, CompileRequest] = {
            launch.identity: launch.request for launch in launches if not launch.request.deduplicate
        }
        again = {identity: pool.submit(request) for identity, request in single.items()}
        compiled.results |= {identity: handle.result() for identity, handle in again.items()}


def _planned(work: Work, cases: int, handle: Future[CompileResult]) -> None:
    work.ended(cases)


def _compiled(work: Work, handle: Future[CompileResult]) -> None:
    work.ended(1, failing=not handle.cancelled() and handle.result().status is not Status.PASS)


def _by_group(plans: Iterable[Sequence[PlannedLaunch]]) -> dict[str, list[PlannedLaunch]]:
    """The launches of all plans, by what may share a compile process."""
    groups: dict[str, list[PlannedLaunch]] = defaultdict(list)
    for plan in plans:
        for launch in plan:
            groups[process_group(launch.request.target)].append(launch)
    return groups
