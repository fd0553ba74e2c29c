"""The compile stage of a run of pytest: what the selected cases need is compiled before the first of them runs."""

from __future__ import annotations

import concurrent.futures
import importlib
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from conformance.execution.compile.index_files import INDEX_FILE
from conformance.judging.settings import Settings
from conformance.machine.gpus import core_count
from conformance.plugin.progress import RunProgress
from conformance.records import CaseRecord, Status
from conformance.reporting.text import one_line

if TYPE_CHECKING:
    from conformance.cases.case_table import Selection
    from conformance.judging.compile_stage import CompileResults, CompileStage

#: Fewer cases than these compile as they go: to plan them would take longer.
FEWEST_CASES = 8
#: Kernels that a sentence names.
NAMED = 3


def kernels_of(
    settings: Settings, selection: Selection, cases: Sequence[str], progress: RunProgress | None = None
) -> Mapping[str, Sequence[str]]:
    """Returns the keys of the kernels that each of ``cases`` compiles. Raises :class:`CannotCut` if some could not be
    planned: shards that know of different kernels would not fit together."""
    from conformance.judging.compile_stage import CannotBePlanned, CompileStage
    from conformance.judging.harness import COMPILE_DEADLINE

    with CompileStage(core_count(), COMPILE_DEADLINE) as stage:
        try:
            if progress is not None:
                progress.show(stage.look)
            return stage.kernels(settings, selection, cases)
        except CannotBePlanned as error:
            raise CannotCut(f"the shards cannot be cut: {error}; run this shard again") from None
        finally:
            if progress is not None:
                progress.hide()


class CannotCut(Exception):
    """The shards of a run cannot be cut; the message says why and what to do."""


class RunStage:
    """Compiles before the cases run, and says afterwards what it missed. ``select`` is asked once for the
    selection."""

    def __init__(
        self, settings: Settings, folder: Path, select: Callable[[], Selection], progress: RunProgress
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._select = select
        self._progress = progress
        self._prepared: concurrent.futures.Future[Selection] | None = None
        self._compiled: CompileResults | None = None
        self._idle: dict[str, str] = {}
        self._in_vain: list[str] = []
        #: Called before the first case, with the index of what was compiled and the folders of the cache that it names.
        self.written: Callable[[Path, Iterable[Path]], None] = lambda index, folders: None
        #: Compiles on other machines: returns the given folder with kernels for the stage, None if there are none.
        self.elsewhere: Callable[[CompileStage, Settings, Selection, Sequence[str], Path], Path | None] = (
            lambda stage, settings, selection, cases, folder: None
        )

    def prepare(self) -> None:
        """Starts what the stage will need, while the cases are collected. That is imports, here and in the server that
        forks compile processes, and the list of targets."""
        from conformance.execution.compile.compilation import fork_server

        if self._settings.case is None:
            fork_server(()).start()
            self._prepared = concurrent.futures.ThreadPoolExecutor(1, "compile-stage").submit(self.selection)

    def selection(self) -> Selection:
        """Returns the parts of the run that decide which cases a test has. Imports torch and triton."""
        importlib.import_module("conformance.judging.compile_stage")
        return self._select()

    def kernels(self, cases: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Returns the keys of the kernels that each of ``cases`` compiles. Raises :class:`CannotCut`."""
        return kernels_of(self._settings, self._chosen(), cases, self._progress)

    def _chosen(self) -> Selection:
        return self.selection() if self._prepared is None else self._prepared.result()

    def run(self, cases: Sequence[str]) -> None:
        """Compiles what ``cases`` need. Raises pytest.UsageError if ``--compiled`` names kernels that cannot be
        used."""
        carried = self._settings.compiled
        if len(cases) < FEWEST_CASES and carried is None:
            return
        from conformance.execution.compile.compiled_index import CompiledIndex
        from conformance.judging.compile_stage import CannotBeUsed, CompileStage
        from conformance.judging.harness import COMPILE_DEADLINE

        selection = self._chosen()
        with (
            tempfile.TemporaryDirectory(prefix="conformance-kernels-", ignore_cleanup_errors=True) as scratch,
            CompileStage(core_count(), COMPILE_DEADLINE) as stage,
        ):
            self._progress.show(stage.look)
            try:
                if carried is None:
                    carried = self.elsewhere(stage, self._settings, selection, cases, Path(scratch))
                compiled = stage.compile(self._settings, selection, cases, carried)
            except CannotBeUsed as error:
                raise pytest.UsageError(f"--compiled: {error}") from None
            finally:
                self._progress.hide()
        plans = {case: [launch.identity for launch in plan] for case, plan in compiled.plans.items()}
        CompiledIndex.write(self._folder / INDEX_FILE, compiled.results, plans)
        artefacts = [result.artefact for result in compiled.kernels.values() if result.artefact is not None]
        self.written(
            self._folder / INDEX_FILE, {path.parent for artefact in artefacts for path in artefact.stages.values()}
        )
        self._compiled = compiled

    def end(self) -> list[str]:
        """Ends the stage and returns a sentence for each thing that it missed. Removes the stage's files."""
        if self._compiled is None:
            return []
        from conformance.execution.compile.compiled_index import CompiledIndex, asked

        missed, used = asked(self._folder)
        index = CompiledIndex(self._folder / INDEX_FILE)
        self._idle = index.idle(used)
        index.close()
        (self._folder / INDEX_FILE).unlink()
        problems = [f"the compile stage: {problem}" for problem in self._compiled.problems]
        problems += [f"the compile stage missed {kernel}: the case compiled it" for kernel in missed]
        if self._settings.compiled is not None:
            kernels = self._compiled.kernels
            refused = [result.refused for result in kernels.values() if result.refused]
            if refused:
                text = f"{len(refused)} kernels in {self._settings.compiled} were refused and compiled here"
                problems.append(f"{text}, the first because {one_line(refused[0][:300])}")
            before = {*self._compiled.cached, *self._compiled.failed}
            here = [result for key, result in kernels.items() if key not in before and not result.refused]
            names = ", ".join(result.artefact.kernel_name for result in here[:NAMED] if result.artefact is not None)
            if here:
                problems.append(f"{len(here)} kernels are not in {self._settings.compiled} and were compiled: {names}")
        return problems

    def take(self, record: CaseRecord) -> None:
        """Looks at a record of the run, after :meth:`end`."""
        if record.status is Status.PASS and record.case in self._idle:
            self._in_vain.append(record.case)

    def waste(self) -> list[str]:
        """Returns a sentence if the stage compiled something for a case that passed, and no case used it."""
        cases = self._in_vain
        return [f"the compile stage compiled unused kernels for {len(cases)} cases, first {cases[0]}"] if cases else []

    def __str__(self) -> str:
        return "" if self._compiled is None else f"compile stage: {self._compiled}"
