"""Says what became of the cases of workers that died, and whether a worker is started again."""

from __future__ import annotations

import signal
import subprocess
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest

from conformance.faults import Fault, FaultKind
from conformance.judging.settings import Settings
from conformance.machine.environment_faults import (
    fault_of_error,
    fault_of_signal,
    fault_of_text,
    killed,
    process_fault,
)
from conformance.machine.gpus import GpuLeases
from conformance.plugin.case_hooks import BACKEND_HASHES, fault_without_wrong_results, mark_xfailed
from conformance.plugin.case_ids import CaseIds
from conformance.plugin.collection_watch import collected_now, mark, marked
from conformance.plugin.controller_records import ControllerRecords
from conformance.plugin.record_files import breakage_file, death_file, foreseen, refusal_file, stacks_file, written
from conformance.plugin.run_faults import RunFaults
from conformance.plugin.watchdog import PROCESS_ENDED
from conformance.plugin.worker_starts import WorkerStarts, is_traceback
from conformance.plugin.worker_watch import WorkerWatch
from conformance.records import CaseRecord, Status

PROCESS_DIED = "process-died"  # outcome of a case whose worker died before it wrote the record
#: The exit status of a worker's launcher is this and the signal that ended the worker (see ``worker_launcher``).
SIGNAL_STATUS = 128
#: Seconds in which a worker whose pipes have closed is gone.
_GONE_S = 5.0


class WorkerDeaths:
    """Hooks for workers that end. ``workers``: how many processes run cases; ``watch`` knows why a worker was ended;
    ``records`` gets those of the cases that were under way; ``say`` tells the user a sentence. ``starts`` has the hooks
    by which workers start."""

    def __init__(
        self,
        settings: Settings,
        folder: Path,
        workers: int,
        case_ids: CaseIds,
        faults: RunFaults,
        records: ControllerRecords,
        leases: GpuLeases,
        watch: WorkerWatch,
        say: Callable[[str], None],
    ) -> None:
        self._settings = settings
        self._folder = folder
        self._workers = workers
        self._case_ids = case_ids
        self._faults = faults
        self._records = records
        self._leases = leases
        self._watch = watch
        self._collected: set[str] = set()
        self._died_in: Counter[str] = Counter()  # workers, by the file that they collected
        self._early_death: Fault | None = None  # from outside, of the last worker that had not collected
        #: Faults of workers that were killed from outside, by the file that they collected.
        self.killed_in: dict[str, Fault] = {}
        self.backend_hashes: dict[str, str] = {}
        self.starts = WorkerStarts(workers, watch.watch, leases.give_back, say, self._end_without_workers)

    def collected(self, worker: str) -> None:
        """Notes that ``worker`` has collected its cases."""
        self._collected.add(worker)

    @pytest.hookimpl(optionalhook=True, tryfirst=True)  # before xdist prints the worker's traceback
    def pytest_testnodedown(self, node: Any, error: object | None) -> None:
        breakage = breakage_file(self._folder, node.gateway.id)
        if breakage.exists():
            text = breakage.read_text(encoding="utf-8")
            self._faults.add(FaultKind.DEVICE, text)
            pytest.exit(text)
        refusal = refusal_file(self._folder, node.gateway.id)
        if refusal.exists():
            raise pytest.UsageError(refusal.read_text(encoding="utf-8"))
        self._leases.give_back(node.gateway.id)
        self._watch.forget(node)
        self.backend_hashes |= getattr(node, "workeroutput", {}).get(BACKEND_HASHES, {})
        if error is None or node.gateway.id in self._collected:
            return
        ending = None if is_traceback(str(error)) else _ending(node)  # after its own error a process is still there
        self._early_death = fault_of_signal(ending, f"worker {node.gateway.id}") if ending else None
        if not self._marks_file(node.gateway.id, ending):
            died = _last_words(self._folder, node.gateway.id)
            own_error = died or is_traceback(str(error)) or self._watch.reason(node.gateway.id)
            self.starts.early_death(died or error, costly=bool(own_error))

    def _marks_file(self, worker: str, ending: int | None) -> bool:
        """Returns True if the worker died because of the file that it collected, which later ones then report as
        failed. A signal from outside may have met the file by chance, in each worker once."""
        nodeid, why = collected_now(self._folder, worker), self._watch.reason(worker)
        if not nodeid:
            return False
        self._died_in[nodeid] += 1
        outside = (self._early_death is not None and not why) or self._watch.was_stopped(worker)
        if outside and self._died_in[nodeid] <= self._workers:
            return False
        if outside and self._early_death is not None:
            self.killed_in[nodeid] = self._early_death
        if nodeid not in marked(self._folder):
            stacks = stacks_file(self._folder, worker)
            why = why or (f"signal {ending}" if ending else "it ended by itself")
            text = stacks.read_text(errors="replace") if stacks.exists() else ""
            mark(self._folder, nodeid, f"a process died while it collected {nodeid}: {why}\n{text}".rstrip())
        return self._died_in[nodeid] <= 2 * self._workers + 1

    def _end_without_workers(self, text: str, error: BaseException | None) -> NoReturn:
        """Ends the run, which has no worker and gets none; ``error`` is that of the last start, if none came up."""
        if error is not None:
            fault = fault_of_error(error) or process_fault(text)
            self._faults.add(
                FaultKind(fault.kind), fault.text if fault.text.startswith(text) else f"{text}; {fault.text}"
            )
        elif self._early_death is not None:
            self._faults.add(FaultKind(self._early_death.kind), f"{text}; {self._early_death.text}")
        else:
            named = fault_of_text(text)
            self._faults.add(FaultKind(named.kind) if named else FaultKind.FAILED, text)
        pytest.exit(text)

    @pytest.hookimpl(optionalhook=True)
    def pytest_handlecrashitem(self, crashitem: str, report: Any) -> None:
        case = self._case_ids(crashitem)
        worker = report.node.gateway.id
        if case is None:
            return
        record = written(self._folder, worker, case)
        if record is None:
            record = self._of_the_dead(report.node, case)
            if record.fault is None:
                record = self._settings.expected_failures.applied(record)
            self._records.write(record)
        if record.status is Status.EXPECTED_FAIL and record.outcome in (PROCESS_DIED, PROCESS_ENDED):
            mark_xfailed(report, str(record.reason))
        elif record.status is Status.PASS:  # the process died after it: of a fixture that others use too
            report.outcome = "passed"

    def _of_the_dead(self, node: Any, case: str) -> CaseRecord:
        """Returns the record of the case during which the worker of ``node`` died before it could write one."""
        worker = node.gateway.id
        record = foreseen(self._folder, worker, case) or self._records.bare(
            case, Status.CRASH, "", "the process died while it ran this case", worker
        )
        record = replace(record, outcome=PROCESS_DIED)
        stacks = stacks_file(self._folder, worker)
        late = stacks.read_text(errors="replace") if stacks.exists() else ""
        if late:
            text = f"ran past its deadline, holding the interpreter's lock; the process was ended. Its stacks:\n{late}"
            return replace(record, status=Status.TIMEOUT, diagnosis=text)
        if self._watch.reason(worker):
            text = f"ran past its deadline of {self._settings.case_timeout_s:g} s: {self._watch.reason(worker)}"
            fault = killed(self._watch.reason(worker)) if self._watch.was_stopped(worker) else None
            fault = fault_without_wrong_results(fault, record.verdicts)
            return replace(record, status=Status.TIMEOUT, diagnosis=text, fault=fault)
        if died := _last_words(self._folder, worker):
            fault = fault_without_wrong_results(fault_of_text(died), record.verdicts)
            return replace(record, diagnosis=f"{record.diagnosis}\n{died}", fault=fault)
        ending = _ending(node)
        fault = fault_of_signal(ending, f"the worker {worker}") if ending else None
        if fault is None:
            return replace(record, diagnosis=f"{record.diagnosis}, by {_name(ending)}") if ending else record
        text = f"{record.diagnosis}\n{fault}"
        return replace(record, fault=fault_without_wrong_results(fault, record.verdicts), diagnosis=text)


def _name(number: int) -> str:
    return signal.Signals(number).name if number in {*signal.Signals} else f"signal {number}"


def _last_words(folder: Path, worker: str) -> str:
    """Returns the internal error that ended a worker; empty if it named none."""
    file = death_file(folder, worker)
    return file.read_text(encoding="utf-8") if file.exists() else ""


def _ending(node: Any) -> int | None:
    """Returns the signal that ended the process of a worker, as far as its parent here knows; None if none did."""
    process = getattr(getattr(node.gateway, "_io", None), "popen", None)
    if process is None:
        return None
    try:
        code = process.wait(_GONE_S)
    except subprocess.TimeoutExpired:
        return None
    return -code if code < 0 else code - SIGNAL_STATUS if code > SIGNAL_STATUS else None
