"""Decides which cases a run has: those collected, cut to its shard, without those that an earlier part has judged."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from conformance.cases import known_names
from conformance.faults import FaultKind
from conformance.judging.settings import Settings
from conformance.machine.environment_faults import fault_of_text
from conformance.plugin import shared_collection
from conformance.plugin.case_ids import CaseIds, check_case_ids
from conformance.plugin.compile_stage import CannotCut, RunStage
from conformance.plugin.controller_records import ControllerRecords
from conformance.plugin.outside import Outside
from conformance.plugin.progress import RunProgress
from conformance.plugin.reruns import Reruns
from conformance.plugin.resuming import NOT_COLLECTED, SELECTED_FILE, NothingLeft, Resume, write_plan
from conformance.plugin.run_faults import RunFaults
from conformance.plugin.sharding import OWN, Sharding, keep_own
from conformance.plugin.worker_deaths import WorkerDeaths
from conformance.plugin.worker_watch import WorkerWatch
from conformance.records import FAILING, CaseRecord, Shard, Status, first_of, replace_file
from conformance.user_files.run_options import KERNELS_MAY_BE_LOST, ON_EACH_TARGET


class CaseSelection:
    """Hooks by which a run learns its cases. ``compile_stage`` and ``outside`` are None if the package's own suites are
    not reached. ``expressions`` is what chose cases, by option, for a message, or None if the run may have no case.
    ``write_info`` writes the run's facts again, and ``say`` tells the user a sentence."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        case_ids: CaseIds,
        stack: Mapping[str, Any],
        *,
        faults: RunFaults,
        records: ControllerRecords,
        deaths: WorkerDeaths,
        watch: WorkerWatch,
        progress: RunProgress,
        sharding: Sharding,
        resume: Resume | None,
        reruns: Reruns | None,
        compile_stage: RunStage | None,
        outside: Outside | None,
        expressions: Mapping[str, str] | None,
        write_info: Callable[[], None],
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._case_ids = case_ids
        self._stack = stack
        self._faults = faults
        self._records = records
        self._deaths = deaths
        self._watch = watch
        self._progress = progress
        self._sharding = sharding
        self._resume = resume
        self._reruns = reruns
        self._compile_stage = compile_stage
        self._outside = outside
        self._expressions = expressions
        self._write_info = write_info
        self._say = say
        self._is_part = settings.shard is not None
        self._first_collected: tuple[str, list[str]] = "", []  # the worker that has collected first, and its node ids
        self._shared: list[str] = []  # node ids that a worker collected for all
        self._held: list[CaseRecord] = []  # of files that could not be collected, before the cut
        self._of_other_shards: set[str] = set()  # files that could not be collected, whose records others have
        #: The cases of this run; None before they are known.
        self.selected: list[str] | None = None
        #: Files that could not be collected, by the case ids of their records.
        self.uncollectable: list[str] = []
        #: Places of the tests that are run among all that were collected; None: all.
        self.places: list[int] | None = None
        #: None before the cut, and in a whole run.
        self.shard: Shard | None = None
        #: The exit status of a run of which nothing is left to judge; None if there is something.
        self.ended_before: int | None = None
        #: That the run goes on, or begins.
        self.accepted = resume is None

    @property
    def count(self) -> int | None:
        """The number of cases and of files that could not be collected; None before the cases are known."""
        return None if self.selected is None else len(self.selected) + len(self.uncollectable)

    def write_held(self) -> None:
        """Writes the records that waited for the cut."""
        while self._held:
            self._records.write(self._held.pop())

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        case = self._case_ids(report.nodeid) if report.failed else None
        if case is not None and case not in self.uncollectable and case not in self._of_other_shards:
            record = self._records.bare(case, Status.FAIL, NOT_COLLECTED, report.longreprtext)
            fault = self._deaths.killed_in.get(report.nodeid) or fault_of_text(report.longreprtext)
            self.add_uncollectable(replace(record, fault=fault))

    def add_uncollectable(self, record: CaseRecord) -> None:
        """Adds the ``record`` of a file that cannot be collected. Before the cut it is not known which shard has it."""
        self.uncollectable.append(record.case)
        if self.selected is not None or not (self._is_part or self._resume is not None):
            self._records.write(record)
        else:
            self._held.append(record)

    def pytest_collection_finish(self, session: pytest.Session) -> None:
        self._select([item.nodeid for item in session.items])
        if self.places is not None:
            keep_own(session.config, session.items, self.places)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, node: Any, ids: list[str]) -> None:
        self._deaths.collected(node.gateway.id)
        self._deaths.starts.collected()
        self._watch.collected(node)
        if ids == [shared_collection.IN_FOLDER]:
            self._shared = self._shared or shared_collection.shared(self._folder)
            ids[:] = self._shared  # xdist goes on with this list
        if self.selected is None:
            self._select(ids)
            if self.places is not None:
                node.config.stash[OWN] = frozenset(ids[place] for place in self.places)
            self._first_collected = node.gateway.id, list(ids)
        else:
            self._compare(node.gateway.id, ids)

    def _select(self, nodeids: Sequence[str]) -> None:
        cases = [case for case in map(self._case_ids, nodeids) if case is not None]
        check_case_ids(cases)
        for text in self._outside.look(cases) if self._outside is not None else ():
            self._say(text)
        if not cases:
            self._refuse_filters_that_match_nothing()
        chosen = self._settings.configs or self._settings.case_list
        if chosen and KERNELS_MAY_BE_LOST not in os.environ:
            self._refuse_unknown_choices(cases)
        self.selected = cases = self._cut(nodeids)
        shard = self._sharding.shard(self._stack)
        self.shard = shard if self._is_part else None
        if self._resume is not None:
            try:
                self._resume.check(shard.plan, cases)
            except NothingLeft as nothing:
                self.ended_before = nothing.status
                pytest.exit(str(nothing))
        with self._records.ends_run():
            self.write_selected()
            write_plan(self._folder, shard.plan)
            if self._resume is not None:
                cases = self._go_on(self._resume, nodeids)
            self.write_held()
            if self._is_part:
                self._write_info()
            self._progress.selected(cases)
            if self._compile_stage is not None:
                self._compile_stage.run(cases)

    def _go_on(self, resume: Resume, nodeids: Sequence[str]) -> list[str]:
        """Judges what was under way when the earlier part ended, and returns the cases that are left."""
        self.accepted = True
        self._say(resume.begin())
        self._write_info()  # a part that ends now is known to the next
        resume.judge_alone(self._records.write, self._say)
        for case, status in resume.recorded.items():
            if status in FAILING and self._reruns is not None:
                self._reruns.failed(case)
        places = range(len(nodeids)) if self.places is None else self.places
        self.places = [place for place in places if self._case_ids(nodeids[place]) not in resume.recorded]
        own = (self._case_ids(nodeids[place]) for place in self.places)
        return [case for case in own if case is not None]

    def _cut(self, nodeids: Sequence[str]) -> list[str]:
        """Returns the cases of this shard, and keeps the records of its files that could not be collected."""
        try:
            places = self._sharding.cut(nodeids, self.uncollectable)
        except CannotCut as error:
            self._faults.add(FaultKind.PROCESS, str(error))
            pytest.exit(str(error))
        self.places = places if self._is_part else None
        others = [record for record in self._held if not self._sharding.owns(record.case)]
        for record in others:
            self._held.remove(record)
            self.uncollectable.remove(record.case)
            self._of_other_shards.add(record.case)
            text = f"{record.case} could not be collected; another shard has its record"
            self._faults.add(FaultKind.OTHER_TEST, text)
        if self._is_part:
            self._say(self._sharding.sentence())
        own = (self._case_ids(nodeids[place]) for place in places)
        return [case for case in own if case is not None]

    def _compare(self, worker: str, nodeids: Sequence[str]) -> None:
        """Selects the cases that only ``worker`` has collected. A shard and a resumed run have chosen their cases
        without them. If workers differ and no file failed that explains it, the run has a fault."""
        first, first_ids = self._first_collected
        if nodeids == first_ids:
            return
        here, there = ({case for case in map(self._case_ids, ids) if case is not None} for ids in (nodeids, first_ids))
        more = sorted(here - {*(self.selected or ())}) if self.places is None else []
        check_case_ids(more)
        if more:
            self.selected = [*(self.selected or ()), *more]
            with self._records.ends_run():
                self.write_selected()
                self._progress.selected(self.selected)
        failed = tuple(f"{case}{end}" for case in self.uncollectable for end in ("::", "/"))
        if others := [case for case in sorted(here ^ there) if not case.startswith(failed)]:
            text = f"workers {first} and {worker} have collected different cases: only one of them has"
            advice = "parameters and ids must be the same in every process"
            self._faults.add(FaultKind.OTHER_TEST, f"{text} {first_of(others, 3)}; {advice}")

    def write_selected(self) -> None:
        """Writes the list of the run's cases."""
        cases = [*(self.selected or ()), *self.uncollectable]
        replace_file(self._folder / SELECTED_FILE, "".join(case + "\n" for case in cases))

    def _refuse_filters_that_match_nothing(self) -> None:
        settings = self._settings
        if self._expressions is None:
            return
        narrowing = {
            "--conformance-case": [settings.case] if settings.case else [],
            "--kernel": settings.kernels,
            "--suite": settings.suites,
            "--config": settings.configs,
            "--cases": [settings.case_file] if settings.case_file else [],
            **{option: [text] if text else [] for option, text in self._expressions.items()},
        }
        words = [f"{option} {value}".lstrip() for option, values in narrowing.items() for value in values]
        if words:
            others = [f"--tier {settings.tier}", *(f"--target {target}" for target in settings.targets)]
            advice = self._near_case() or "see 'conformance list'"
            if settings.targets and settings.tier == "quick":
                advice = f"{ON_EACH_TARGET}; {advice}"
            raise pytest.UsageError(f"{' '.join(words)}: no case of {' '.join(others)} has that; {advice}")

    def _refuse_unknown_choices(self, cases: Sequence[str]) -> None:
        """Raises pytest.UsageError for a config, or a case of a file, that is not among ``cases``."""
        settings, ids = self._settings, set(cases)
        options = " ".join([f"with --tier {settings.tier}", *(f"--target {target}" for target in settings.targets)])
        try:
            known_names.check_cases(ids, settings.configs, settings.case_list or (), options)
        except known_names.UnknownName as error:
            missing = sorted((settings.case_list or frozenset()) - ids)
            near = self._near_case(missing[0]) if missing else ""
            raise pytest.UsageError(f"{error}; {near}" if near else str(error)) from None

    def _near_case(self, case: str | None = None) -> str:
        """Returns a suggestion for ``case``, or for the first case that the user named, if there is such."""
        case = case or self._settings.case or min(self._settings.case_list or (), default=None)
        if case is None or self._compile_stage is None:
            return ""
        from conformance.cases.lookup import near_case

        return near_case(case, replace(self._compile_stage.selection(), kernels=()))
