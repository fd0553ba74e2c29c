"""Hooks of the process that the user started: the run's folder, its workers, and a check that no record is missing."""

from __future__ import annotations

import contextlib
import errno
import json
import math
import os
import shutil
import sqlite3
import sys
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Any, TextIO

import pytest

from conformance.exception_text import place_of, text_of
from conformance.execution.compile.carried_kernels import backend_hashes
from conformance.faults import FaultKind
from conformance.gate.runs.bill_of_materials import bill_of_materials, with_backend_hashes
from conformance.gate.runs.run_environment import ENVIRONMENT_FILE, environment
from conformance.judging.settings import Settings
from conformance.machine import overdue, process_exit
from conformance.machine.descendants import adopted, descendants, end_descendants
from conformance.machine.environment_faults import (
    fault_of_error,
    fault_of_text,
    process_fault,
)
from conformance.machine.gpus import GpuLeases
from conformance.machine.versions import machine_stack
from conformance.plugin import shared_teardown
from conformance.plugin.case_hooks import (
    CANNOT_WRITE,
)
from conformance.plugin.case_ids import CaseIds
from conformance.plugin.case_reports import CaseReports, GuardedOutput
from conformance.plugin.case_selection import CaseSelection
from conformance.plugin.collection_watch import LEFT_CHANGED
from conformance.plugin.compile_stage import RunStage
from conformance.plugin.controller_records import ControllerRecords, is_full
from conformance.plugin.early_reruns import EarlyReruns
from conformance.plugin.fresh_pytest import FreshPytest
from conformance.plugin.leftovers import remove_before_next_part, remove_leftovers
from conformance.plugin.outside import Outside
from conformance.plugin.progress import RunProgress
from conformance.plugin.record_files import (
    merge,
    recorded,
)
from conformance.plugin.reruns import Reruns
from conformance.plugin.resuming import NOT_COLLECTED, Resume, lock_folder
from conformance.plugin.run_faults import MACHINE_ENDED, RequiredProof, RunFaults
from conformance.plugin.run_signals import RunSignals
from conformance.plugin.sharding import Sharding
from conformance.plugin.worker_deaths import WorkerDeaths
from conformance.plugin.worker_starts import WorkerStarts
from conformance.plugin.worker_watch import WorkerWatch, is_local
from conformance.proof_level import ProofCount
from conformance.ray_cluster.cluster import Cluster
from conformance.records import (
    FAILING,
    RUN_FILE,
    CaseRecord,
    RunInfo,
    Status,
    first_of,
    incompleteness,
    jsonable,
    replace_file,
)
from conformance.reporting.github import folded
from conformance.reporting.run_verdict import all_is_well, many
from conformance.reporting.summary import Summary, Tally
from conformance.reporting.summary_text import (
    WIDEST,
    expected_lines,
    failure_lines,
    problem_lines,
    render_markdown,
    verdict_lines,
)
from conformance.reporting.text import log_safe

SUMMARY_FILE = "summary.md"
JUNIT_FILE = "junit.xml"
#: Seconds that workers have for the cases under way when the run ends early.
LEAVE_S = 5.0
#: Exit statuses of runs that may have selected nothing.
_NOTHING = (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.NO_TESTS_COLLECTED)


def new_folder(settings: Settings, invocation_dir: Path) -> Path:
    """Returns the folder for this run's evidence: that of the run that goes on, or the one that was asked for, or one
    under reports. The second must be new or empty."""
    if settings.resume is not None:
        return settings.resume
    if settings.run_dir is not None:
        if settings.run_dir.is_symlink() and not settings.run_dir.exists():
            link = f"--run-dir {settings.run_dir}: a link that leads nowhere"
            raise pytest.UsageError(f"{link}; remove it, or make its target")
        if settings.run_dir.exists() and (not settings.run_dir.is_dir() or any(settings.run_dir.iterdir())):
            raise pytest.UsageError(f"--run-dir {settings.run_dir}: exists and is not an empty folder; give a new one")
        return settings.run_dir
    moment = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    return invocation_dir / "reports" / f"{moment}-{os.urandom(2).hex()}"


class SessionRun:
    """Hooks for the run as a whole. ``workers``: how many processes run cases; ``options``: every word of the
    command line; ``compile_stage`` and ``outside``: None if the package's own suites are not reached; ``expressions``:
    what chose cases, by option, for a message, or None if the run may have no case; ``output`` guards the terminal;
    ``reruns`` judges failed cases again; ``resume`` is the earlier part of the run, None if this is its first;
    ``sharding`` picks the cases of this shard; ``fresh`` runs single cases in processes of their own."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        workers: int,
        case_ids: CaseIds,
        stderr: TextIO,
        progress: RunProgress,
        reports: CaseReports,
        options: Sequence[str] = (),
        compile_stage: RunStage | None = None,
        outside: Outside | None = None,
        expressions: Mapping[str, str] | None = None,
        output: GuardedOutput | None = None,
        reruns: Reruns | None = None,
        resume: Resume | None = None,
        *,
        sharding: Sharding,
        fresh: FreshPytest,
        cluster: Cluster | None = None,
    ) -> None:
        self.folder = folder
        self._output = output or GuardedOutput()
        self._faults = RunFaults(settings.compile_only, is_part=settings.shard is not None)
        self._required = RequiredProof(settings.require)
        self._proof = ProofCount()
        self._compile_stage = compile_stage
        self._outside = outside
        self.stack: dict[str, Any] = dict(machine_stack(settings.gpus))
        self._bill = bill_of_materials(settings.gpus.driver)
        self._settings = settings
        self._workers = workers
        self._case_ids = case_ids
        self._stderr = stderr
        self._progress = progress
        self._reports = reports
        self._options = options
        self._leases = GpuLeases(settings.gpus.entries)
        self._started = datetime.now(timezone.utc)
        self._clock = time.monotonic()
        self._first_began, self._last_ended = math.inf, -math.inf  # seconds since the epoch
        self._sharding = sharding
        self._resume = resume
        self._fresh = fresh
        self._cluster = cluster
        self._reruns = reruns
        self._is_part = settings.shard is not None
        self._records_digest = ""
        self._interrupted = False  # by the user
        self._pytests = 0  # the exit status that pytest itself ends with
        self._info: RunInfo | None = None
        self._lost = ""  # why there is none at the end
        self._owes_ending = False  # the verdict was not printed yet
        self._session: pytest.Session | None = None
        self._judged_again: dict[str, CaseRecord] = {}
        self.signals = RunSignals(self._hurry, stderr)
        self._cleanup = contextlib.ExitStack()
        self._earlier: set[int] = set()
        self._ended: list[str] = []
        self._tally = Tally()
        self._leases = GpuLeases(settings.gpus.entries)
        self._watch = WorkerWatch(folder, settings.case_timeout_s, _give_up)
        self._records = ControllerRecords(settings, folder, self.stack, self._faults)
        self._deaths = WorkerDeaths(
            *(settings, folder, workers, case_ids, self._faults),
            *(self._records, self._leases, self._watch, self._say),
        )
        self._selection = CaseSelection(
            *(settings, folder, case_ids, self.stack),
            faults=self._faults,
            records=self._records,
            deaths=self._deaths,
            watch=self._watch,
            progress=progress,
            sharding=sharding,
            resume=resume,
            reruns=reruns,
            compile_stage=compile_stage,
            outside=outside,
            expressions=expressions,
            write_info=lambda: self._write_info(RunInfo(**self._facts())),
            say=self._say,
        )

        self._early_reruns: EarlyReruns | None = None
        if reruns is not None and settings.reruns and settings.gpus.entries and cluster is None:
            gpus = len(settings.gpus.entries)
            self._early_reruns = EarlyReruns(folder, case_ids, reruns, gpus, self._withdraw)

    @property
    def starts(self) -> WorkerStarts:
        """The hooks by which workers start."""
        return self._deaths.starts

    @property
    def parts(self) -> dict[str, object]:
        """The other plugins of the run, by the name under which pytest knows them."""
        parts: dict[str, object] = {
            "conformance-case-selection": self._selection,
            "conformance-worker-deaths": self._deaths,
            "conformance-worker-starts": self.starts,
        }
        return parts if self._early_reruns is None else {**parts, "conformance-early-reruns": self._early_reruns}

    def _withdraw(self, gpu: str) -> None:
        """Gives no more cases to ``gpu``, which was suspect twice, and ends the run if it has no other."""
        text = f"GPU {gpu} was suspect twice, and gets no more cases"
        self._faults.add(FaultKind.DEVICE_SUSPECT, text)
        self._say(text)
        if self._leases.entries == (gpu,):
            self._deaths.starts.stop("each of its GPUs is suspect")
            return
        for worker in self._leases.withdraw(gpu):
            self._deaths.starts.retire(worker)

    def _hurry(self) -> None:
        self._watch.kill_all()
        self._fresh.stop()

    # Beginning

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self, session: pytest.Session) -> None:
        self._session = session
        self._output.guard_reporter(session.config)
        self._cleanup.callback(self.signals.end)
        self.signals.install()
        try:
            if self._resume is None:
                self._begin()
        except FileExistsError as error:
            if not (self.folder / RUN_FILE).exists():  # a link on the way leads nowhere
                raise pytest.UsageError(f"cannot write records to {self.folder} ({error}): give --run-dir") from None
            raise pytest.UsageError(
                f"--run-dir {self.folder}: another run has begun there; give each run a folder of its own"
            ) from None
        except OSError as error:
            raise pytest.UsageError(f"cannot write records to {self.folder} ({error}): give --run-dir") from None
        self._earlier = descendants()
        self._cleanup.enter_context(adopted())
        if self._compile_stage is not None:
            self._compile_stage.prepare()
        failed = self._outside.failed_cases() if self._outside is not None else {}
        for case, why in failed.items():
            self._selection.add_uncollectable(self._records.bare(case, Status.FAIL, NOT_COLLECTED, why))
        for why in self._outside.left_out.values() if self._outside is not None and not failed else ():
            self._say(f"left out: {why}")

    def _begin(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        (self.folder / RUN_FILE).touch(exist_ok=False)  # of two runs that begin at once, one has the folder
        self._cleanup.callback(lock_folder(self.folder))
        self._write_info(RunInfo(**self._facts()))
        self._write_environment()

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self, session: pytest.Session) -> Generator[None, Any, Any]:
        """A hook of a plugin or a conftest that fails ends the run with a sentence. A file is no such hook."""
        self.signals.release()
        try:
            return (yield)
        except pytest.UsageError as error:
            if session.testsfailed:  # pytest finds no case in what it could not collect, which has a record
                raise session.Failed(str(error)) from None
            raise
        except (pytest.exit.Exception, pytest.Session.Failed):
            raise
        except Exception as error:
            if isinstance(error.__context__, pytest.exit.Exception):  # hooks are called with the items in any case
                raise error.__context__ from None
            fault = fault_of_error(error)
            text = f"the collection ended with {text_of(error)}{place_of(error)}"
            self._faults.add(FaultKind(fault.kind) if fault else FaultKind.FAILED, text)
            pytest.exit(text)

    @pytest.hookimpl(tryfirst=True)
    def pytest_keyboard_interrupt(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        if self._selection.ended_before is not None:
            return
        self.signals.ending = True
        if self.signals.received or type(excinfo.value) is KeyboardInterrupt:
            self._interrupted = True
            self._faults.add(
                FaultKind.INTERRUPTED, f"{self.signals.received or 'Ctrl-C'} ended the run{self.signals.suspect}"
            )
        else:
            self._note_early_end(str(excinfo.value))

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excinfo: pytest.ExceptionInfo[BaseException]) -> None:
        fault = fault_of_error(excinfo.value)
        kind = FaultKind(fault.kind) if fault else FaultKind.HARNESS
        ended = MACHINE_ENDED if fault else "an internal error ended the run"
        self._faults.add(kind, f"{ended}: {fault.text if fault else text_of(excinfo.value)}")

    def pytest_unconfigure(self, config: pytest.Config) -> None:
        reporter = config.pluginmanager.get_plugin("terminalreporter")
        if self._owes_ending and reporter is not None:  # after its own error pytest prints no summary
            self._write_ending(reporter)
        self._cleanup.close()
        if self._session is not None:
            process_exit.end_despite_threads(int(self._session.exitstatus))

    def pytest_report_header(self) -> str:
        gpus = ", ".join(self._settings.gpus.entries) or "none (interpreter and cross-compilation)"
        return (
            f"conformance: tier {self._settings.tier}, workers {self._workers}, GPUs {gpus}, records in {self.folder}"
        )

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: Any) -> None:
        node.workerinput["conformance_folder"] = str(self.folder)
        node.workerinput["conformance_gpus"] = asdict(self._settings.gpus)
        node.workerinput["conformance_gpu"] = self._leases.take(node.gateway.id)
        node.workerinput["conformance_workers"] = self._workers
        node.workerinput["conformance_stack"] = self.stack
        node.workerinput["conformance_local"] = is_local(node)
        node.workerinput["conformance_shares"] = True

    def _say(self, text: str) -> None:
        print(f"\nconformance: {text}", file=self._stderr, flush=True)

    # End

    @pytest.hookimpl(wrapper=True, trylast=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None, None, None]:
        self.signals.ending = True
        late = threading.Timer(LEAVE_S, self._watch.kill_all)
        late.daemon = True
        with contextlib.suppress(RuntimeError):  # a limit of threads
            late.start()
        if not self._selection.accepted:
            _keep_junit_file(session.config)
        try:
            with overdue.deadline("a hook", max(self._settings.case_timeout_s, shared_teardown.LEAST_S)):
                yield
        except Exception as error:  # of a conftest or another plugin; pytest's junit.xml may have no place
            fault = fault_of_error(error)
            kind = FaultKind(fault.kind) if fault else FaultKind.HARNESS
            self._faults.add(kind, f"a hook at the end of the run raised {text_of(error)}")
        finally:
            late.cancel()
        if self._selection.places == [] and session.exitstatus in _NOTHING:
            session.exitstatus = pytest.ExitCode.OK  # a shard may be empty, and nothing may be left of a run
        self._note_early_end(str(getattr(session, "shouldfail", "") or getattr(session, "shouldstop", "") or ""))
        if self._early_reruns is not None:
            self._early_reruns.end()
        if self._reruns is not None and not self._interrupted:
            try:
                self._judged_again = self._reruns.judge(partial(recorded, self.folder), time.monotonic() - self._clock)
            except (OSError, RuntimeError) as error:  # such as a limit of threads or processes
                fault = process_fault(f"failed cases could not be judged again: {text_of(error)}")
                self._faults.add(FaultKind(fault.kind), fault.text)
            if self._fresh.stopped and self.signals.hurried:
                self._interrupted, session.exitstatus = True, pytest.ExitCode.INTERRUPTED
                text = f"{self.signals.hurried} ended the run while failed cases were judged again"
                self._faults.add(FaultKind.INTERRUPTED, text)
        self._end(int(session.exitstatus))
        if self._selection.ended_before is not None:
            remove_leftovers(self.folder)
            session.exitstatus = self._selection.ended_before
            self._leave_nothing(session.config)
            return
        if not self._tally.statuses and not self._lost and not self._faults.faults and session.exitstatus in _NOTHING:
            self._leave_nothing(session.config)
            return
        session.exitstatus = self._faults.exit_status(int(session.exitstatus), self._interrupted)
        self._owes_ending = True

    def _note_early_end(self, why: str) -> None:
        """Notes ``why`` the run ended before its last case, unless that is known already; empty if it did not."""
        if not why or self._faults.ended_early:
            return
        if LEFT_CHANGED in why:
            self._faults.add(FaultKind.OTHER_TEST, why)
            self._faults.add(FaultKind.STOPPED, "the run was stopped before its last case")
        elif why.startswith(CANNOT_WRITE):
            fault = fault_of_text(why)
            self._faults.add(FaultKind(fault.kind) if fault else FaultKind.FILES, why)
        else:
            self._faults.add(FaultKind.STOPPED, f"the run was stopped before its last case: {why}")

    def _end(self, status: int) -> None:
        """Finishes the run, which pytest ends with ``status``, and ends what its cases have left behind. A run that
        could not go on stays as it was."""
        self._pytests = status
        self._watch.stop()
        try:
            if not self._selection.accepted:
                return
            if not (self.folder / RUN_FILE).exists():
                raise FileNotFoundError(errno.ENOENT, "it was removed while the run went on", str(self.folder))
            self.finish()
        except (OSError, sqlite3.Error) as error:
            if not self._records.concerns_folder(error):
                raise
            why = getattr(error, "strerror", None) or error
            self._lost = (
                f"the records in {self.folder} could not be merged: {why}; what is still there was left as it is"
            )
            self._faults.add(FaultKind.DISK_FULL if is_full(error) else FaultKind.RECORDS, self._lost)
        self._ended = end_descendants(self._earlier)

    def _leave_nothing(self, config: pytest.Config) -> None:
        """Removes the folder of a run that selected nothing, or was refused, and says nothing about it."""
        self._info = None
        if self._resume is None:
            shutil.rmtree(self.folder, ignore_errors=True)
        else:
            remove_before_next_part(self.folder)
        if self._settings.run_dir is None and self._resume is None:
            with contextlib.suppress(OSError):
                self.folder.parent.rmdir()  # reports, if it is empty
        config.option.verbose = -1  # else pytest names the file of its junit.xml

    def finish(self) -> RunInfo:
        """Merges the records, compares them with what was selected and writes the summary."""
        self._tally = Tally()
        self._faults.forget_cases()
        self._required.forget_cases()
        self._proof = ProofCount()
        last: CaseRecord | None = None
        stage = self._compile_stage
        missed = stage.end() if stage is not None else []

        def take(record: CaseRecord) -> None:
            nonlocal last
            self._tally.add(record)
            self._faults.add_case(record)
            self._required.add(record)
            self._proof.add(record)
            if stage is not None:
                stage.take(record)
            if self._outside is not None:
                self._outside.take(record)
            if last is None or record.case >= last.case:
                last = record

        self._selection.write_held()  # the run ended before the cut
        self._records.close()
        for kind, text in shared_teardown.noted_faults(self.folder):
            self._faults.add(kind, text)
        recorded, damaged, self._records_digest = merge(self.folder, take, self._judged_again)
        missing = incompleteness([*(self._selection.selected or ()), *self._selection.uncollectable], recorded)
        contradictions = [*missed, *stage.waste()] if stage is not None else []
        outside = self._outside.problems() if self._outside is not None else []
        problems = [*damaged, *missing, *contradictions, *outside]
        ended_early = self._faults.ended_early
        for kind, texts in (
            (FaultKind.RECORDS, damaged if ended_early else [*damaged, *missing]),
            (FaultKind.HARNESS, contradictions),
            (FaultKind.UNJUDGED_KERNEL, outside),
        ):
            for text in texts:
                self._faults.add(kind, text)
        if self._required.sentence:
            self._faults.add(FaultKind.LESS_PROVEN, self._required.sentence)
        if self._output.error is not None and not isinstance(self._output.error, BrokenPipeError):
            self._faults.add(FaultKind.OUTPUT, f"the terminal's output takes no more: {self._output.error}")
        facts = {
            **self._facts(),
            "problems": tuple(problems),
            "wall_s": round(time.monotonic() - self._clock, 3),
            **self._ending_facts(),
        }
        facts["stack"] = {**self.stack, **(last.stack if last else {})}
        self._info = RunInfo(**facts)
        if self._selection.uncollectable:
            self._selection.write_selected()
        remove_leftovers(self.folder)
        self._write_info(self._info)
        (self.folder / SUMMARY_FILE).write_text(render_markdown(self._summary()), encoding="utf-8")
        return self._info

    def abort(self, record: CaseRecord) -> None:
        """Ends the run from its only process, which is about to be ended because of ``record``."""
        self._progress.pytest_sessionfinish()
        self._faults.add(FaultKind.STOPPED, f"the run's own process was ended because of {record.case}")
        self._end(int(pytest.ExitCode.TESTS_FAILED))
        lines = [
            f"conformance: {record.case}: {record.status.value}: {record.diagnosis}",
            "conformance: the process that ran it is pytest's own, so the run ends here; with '-n 1' or more only a",
            f"conformance: worker ends and the run goes on. Records so far: {self.folder}",
            *self._verdict_lines(WIDEST),
        ]
        print("", *lines, sep="\n", file=self._stderr, flush=True)

    @pytest.hookimpl(wrapper=True, tryfirst=True)  # what pytest and others print comes before the verdict
    def pytest_terminal_summary(self, terminalreporter: Any) -> Generator[None, None, None]:
        if self._info is None and not self._lost:
            return (yield)
        self._reports.hide(terminalreporter)
        try:
            return (yield)
        finally:
            self._reports.give_back(terminalreporter)
            self._write_ending(terminalreporter)

    def _write_ending(self, reporter: Any) -> None:
        """Prints what failed, the expected failures and, last, the verdict."""
        self._owes_ending = False
        summary = self._summary()
        width = shutil.get_terminal_size((WIDEST, 24)).columns
        reporter.section("conformance")
        parts = {"problems of the run": problem_lines(summary, self._lost, width)}
        if reporter.verbosity >= 0:
            with_examples = reporter.config.option.tbstyle != "no"
            failures = failure_lines(summary, self._reports.tracebacks(), with_examples)
            expected = many(summary.statuses.get(Status.EXPECTED_FAIL, 0), "case")
            parts = {
                f"{many(summary.failed, 'failed case')}, by cause, kernel and case": failures,
                f"{expected} failed as expected, by known defect": expected_lines(summary.expected, width),
                **parts,
            }
        for title, lines in parts.items():
            if lines:
                reporter.write_line("\n".join([*folded(log_safe(title), map(log_safe, lines)), ""]))
        if self._ended:
            left = f"ended {len(self._ended)} processes that cases had left: {first_of(self._ended, 5)}"
            reporter.write_line(log_safe(left))
        verdict, *others = self._verdict_lines(width)
        well = all_is_well(summary, self._lost)
        reporter.write_line(verdict, bold=True, green=well, red=not well)
        for line in others:
            reporter.write_line(line)

    def _summary(self) -> Summary:
        """Returns the summary of the run's records; an empty one if they could not be merged."""
        return self._tally.summary(self._info or RunInfo(**self._facts(), **self._ending_facts()), self._notes())

    def _ending_facts(self) -> dict[str, Any]:
        """Returns the facts of ``run.json`` about the end of the run."""
        status = self._faults.exit_status(self._pytests, self._interrupted)
        return {
            "faults": self._faults.faults,
            "exit_status": status,
            "proof": self._proof.by_name(),
            "required": self._settings.require,
            "reruns": self._reruns_sentence() or None,
        }

    def _verdict_lines(self, width: int) -> list[str]:
        return verdict_lines(self._summary(), self.folder, self.folder / SUMMARY_FILE, self._lost, width)

    def _notes(self) -> list[str]:
        """Lines about how the run went, for its tables."""
        notes = [self._sharding.sentence()] if self._is_part and self._selection.selected is not None else []
        notes += [str(self._compile_stage)] if self._compile_stage is not None and str(self._compile_stage) else []
        if self._last_ended > self._first_began:
            began, ended = (when - self._started.timestamp() for when in (self._first_began, self._last_ended))
            notes.append(f"cases: the first began after {began:.1f} s, the last ended after {ended:.1f} s")
        return notes

    def _reruns_sentence(self) -> str:
        failed = sum(count for status, count in self._tally.statuses.items() if status in FAILING)
        return self._reruns.sentence(failed, self._judged_again) if self._reruns is not None else ""

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        case = self._case_ids(report.nodeid) if report.failed else None
        if case is not None and self._reruns is not None:
            self._reruns.failed(case)
        elif report.failed and case is None:
            self._faults.add(FaultKind.OTHER_TEST, f"{report.nodeid}, which is no case, failed")
        if report.start:  # 0 in the report that stands for a worker which died
            self._first_began = min(self._first_began, report.start)
        self._last_ended = max(self._last_ended, report.stop)

    def _write_environment(self) -> None:
        facts, suites = self._facts(), self._case_ids.suites[1:]
        machine = environment(
            facts["id"], facts["started"], self.stack, self._settings.gpus.names, self._options, suites
        )
        replace_file(self.folder / ENVIRONMENT_FILE, json.dumps(machine, indent=1) + "\n")

    def _facts(self) -> dict[str, Any]:
        shard = self._selection.shard
        return {
            "id": self.folder.name,
            "started": self._resume.left.info.started
            if self._resume is not None
            else self._started.isoformat(timespec="seconds"),
            "tier": self._settings.tier,
            "seed": self._settings.seed,
            "targets": self._settings.targets,
            "workers": self._workers,
            "gpus": self._settings.gpus.entries,
            "stack": self.stack,
            "bill": with_backend_hashes(self._bill, self._deaths.backend_hashes | backend_hashes()),
            "declared": self._settings.declared,
            "ray": self._cluster.record() if self._cluster is not None else None,
            "parts": self._resume.parts if self._resume is not None else (),
            "shard": None if shard is None else replace(shard, records=self._records_digest),
            "selected": self._selection.count,
        }

    def _write_info(self, info: RunInfo) -> None:
        replace_file(self.folder / RUN_FILE, json.dumps(jsonable(info), indent=1) + "\n")


def _keep_junit_file(config: pytest.Config) -> None:
    """Has pytest write its junit.xml, which says nothing, to no file: that of an earlier part stays."""
    for plugin in config.pluginmanager.get_plugins():
        if type(plugin).__name__ == "LogXML":
            plugin.logfile = os.devnull


def _give_up(node: Any) -> None:
    """Has xdist take a worker for lost whose process cannot be ended, so that its pipes stay open."""
    from xdist.workermanage import Marker

    node.process_from_remote(Marker.END)


def own_stderr() -> TextIO:
    """Returns the terminal's stderr, kept while pytest captures the descriptor of that name."""
    return os.fdopen(os.dup(sys.__stderr__.fileno() if sys.__stderr__ else 2), "w")
