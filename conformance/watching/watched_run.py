"""A watched run from its beginning to its end: the folder, the process that runs the tests, and the summary.

The tests run in a process of their own. If it dies, as of a compiler that crashes or of a device that is lost, another
one runs the tests that are left.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from conformance.faults import FaultKind
from conformance.gate.runs.bill_of_materials import bill_of_materials
from conformance.gate.runs.run_environment import ENVIRONMENT_FILE, environment
from conformance.gate.runs.run_reader import JOURNALS
from conformance.machine.gpus import find_gpus
from conformance.machine.versions import machine_stack
from conformance.plugin.record_files import RecordFile, last_foreseen, merge
from conformance.plugin.run_faults import RunFaults
from conformance.plugin.session_hooks import SUMMARY_FILE
from conformance.proof_level import ProofCount
from conformance.records import (
    RUN_FILE,
    CaseRecord,
    RunInfo,
    jsonable,
    replace_file,
)
from conformance.reporting.summary import Tally
from conformance.reporting.summary_text import failure_lines, render_markdown, verdict_lines
from conformance.watching.device_driver import INDUCTOR
from conformance.watching.run_records import SUITE, recorded_cases
from conformance.watching.settings import LOST_DEVICE, WatchSettings

#: The name of the plugin for pytest.
PLUGIN = "conformance.watching.plugin"
#: Exit statuses of pytest after which the run has all its tests.
_WHOLE = (0, 1, 5)
#: The one with which pytest ends if it is interrupted.
_INTERRUPTED = 2
#: Signals by which someone ends a run.
_ORDERED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)


@contextmanager
def _stopped_by_signals() -> Iterator[None]:
    """Inside, SIGTERM raises SystemExit, so that the process of the tests does not outlive this one."""

    def leave(number: int, frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class WatchedRun:
    """Runs pytest with ``words`` and judges its launches, as ``settings`` say."""

    def __init__(self, settings: WatchSettings, words: Sequence[str]) -> None:
        self._settings, self._words = settings, list(words)
        self.folder = Path(settings.folder)
        self._started = datetime.now(timezone.utc)
        self._clock = time.monotonic()
        gpus = find_gpus()
        self._stack = dict(machine_stack(gpus))
        self._bill = bill_of_materials(gpus.driver)

    def run(self) -> int:
        """Runs the tests, prints the verdict, and returns the exit status. It is 0 if every test and launch passed, 1
        if one failed, 5 if none was judged, and otherwise pytest's own."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._write(RunInfo(**self._facts()))
        facts = self._facts()
        options = ["watch", f"--target={self._settings.target}", "--", "pytest", *self._words]
        machine = environment(facts["id"], facts["started"], self._stack, (), options)
        replace_file(self.folder / ENVIRONMENT_FILE, json.dumps(machine, indent=1) + "\n")
        status, recorded = self._pytest(), 0
        while status == LOST_DEVICE or (status < 0 and -status not in _ORDERED):
            self._write_lost(status)
            cases = recorded_cases(self.folder)
            if len(cases) == recorded:
                break  # it died before it ran another test
            recorded = len(cases)
            with tempfile.NamedTemporaryFile("w", prefix="conformance-watch-") as done:
                done.write("\n".join(cases))
                done.flush()
                status = self._pytest(done.name)
            status = 1 if status in _WHOLE else status  # the test that died has failed
        return self.finish(status)

    def _pytest(self, done: str = "") -> int:
        """Runs pytest for the tests that are not in the file ``done``, and returns its exit status."""
        command = [sys.executable, "-m", "pytest", "-p", PLUGIN, *self._words]
        paths = [str(Path(__file__).parents[2]), *filter(None, [os.environ.get("PYTHONPATH")])]
        settings = replace(self._settings, done=done)
        variables = {**os.environ, **settings.variables(), "PYTHONPATH": os.pathsep.join(paths)}
        if self._settings.device:
            variables |= INDUCTOR
        with _stopped_by_signals(), subprocess.Popen(command, env=variables) as process:
            try:
                return process.wait()
            except KeyboardInterrupt:
                return process.wait()
            except SystemExit:
                process.terminate()
                raise

    def finish(self, pytests: int) -> int:
        """Merges the records, writes the summary and prints the verdict. ``pytests`` is pytest's exit status."""
        faults, tally, proof = RunFaults(), Tally(), ProofCount()
        if pytests != _INTERRUPTED:
            self._write_lost(pytests)
        if pytests < 0:
            faults.add(FaultKind.STOPPED, f"pytest's process died: {signal.Signals(-pytests).name}")
        elif pytests == _INTERRUPTED:
            faults.add(FaultKind.INTERRUPTED, "pytest was interrupted, or could not collect the tests")
        elif pytests not in _WHOLE:
            faults.add(FaultKind.STOPPED, f"pytest ended with exit status {pytests}")

        def take(record: CaseRecord) -> None:
            tally.add(record)
            faults.add_case(record)
            proof.add(record)

        cases, damaged, _ = merge(self.folder, take, {})
        for text in damaged:
            faults.add(FaultKind.RECORDS, text)
        for journal in self.folder.glob(JOURNALS):
            journal.unlink()
        status = faults.exit_status(max(pytests, 0) if pytests in _WHOLE or pytests > 0 else 1, pytests == _INTERRUPTED)
        info = RunInfo(
            **self._facts(),
            selected=len(cases),
            problems=tuple(damaged),
            wall_s=round(time.monotonic() - self._clock, 3),
            faults=faults.faults,
            exit_status=status,
            proof=proof.by_name(),
        )
        self._write(info)
        summary = tally.summary(info)
        file = self.folder / SUMMARY_FILE
        file.write_text(render_markdown(summary), encoding="utf-8")
        print("\n".join(["", *failure_lines(summary, {}), "", *verdict_lines(summary, self.folder, file)]))
        return status

    def _write_lost(self, pytests: int) -> None:
        """Writes the records that processes foresaw for what they ran when they died: of a launch, and of its test.
        ``pytests`` is pytest's exit status, or that of the process that started them."""
        why = f": {signal.Signals(-pytests).name} ended it" if pytests < 0 else ""
        recorded = recorded_cases(self.folder)
        file = RecordFile(self.folder, "controller")
        for journal in sorted(self.folder.glob(JOURNALS)):
            last = last_foreseen(journal)
            if last is None:
                continue
            test = (last.problem or {}).get("test", "")
            of_test = replace(last, case=test, kernel="", problem=None, config=None, artefacts={}, verdicts=())
            for record in [last, of_test][: 1 + bool(test)]:
                if record.case not in recorded:
                    file.write(replace(record, diagnosis=f"{record.diagnosis}{why}"))
        file.close()

    def _facts(self) -> dict[str, Any]:
        return {
            "id": self.folder.name,
            "started": self._started.isoformat(timespec="seconds"),
            "tier": SUITE,
            "seed": 0,
            "targets": (self._settings.target,),
            "workers": 1,
            "stack": self._stack,
            "bill": self._bill,
        }

    def _write(self, info: RunInfo) -> None:
        replace_file(self.folder / RUN_FILE, json.dumps(jsonable(info), indent=1) + "\n")
