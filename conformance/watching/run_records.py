"""The records of a watched run: one for each launch, and one for each test."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance.judging.case_recorder import CaseRecorder
from conformance.plugin.record_files import RecordFile
from conformance.records import CaseRecord, LineProblems, Status, each_record, record_files
from conformance.reporting.case_command import WATCHED, case_command
from conformance.user_files.expected_failures import read_expected_failures

#: What records have as suite and tier.
SUITE = WATCHED


def recorded_cases(folder: Path) -> set[str]:
    """Returns the ids of tests and launches that have a record in ``folder``."""
    return {placed.record.case for file in record_files(folder) for placed in each_record(file, LineProblems())}


class WatchRecords:
    """Writes the records of one process, ``worker``, into ``folder``. ``stack`` are the versions under test."""

    def __init__(self, folder: Path, worker: str, target: str, stack: dict[str, Any]) -> None:
        self._folder, self._target, self._stack, self._worker = folder, target, stack, worker
        self._file = RecordFile(folder, worker)
        self._seen: dict[str, int] = {}
        self._test: CaseRecorder | None = None
        self._expected = read_expected_failures()

    def recorder(self, case: str) -> CaseRecorder:
        """Returns a recorder of ``case``. A case that was recorded before gets a number behind its id."""
        number = self._seen[case] = self._seen.get(case, 0) + 1
        case = case if number == 1 else f"{case}#{number}"
        fixed = {"tier": SUITE, "seed": 0, "stack": self._stack, "worker": self._worker, "target": self._target}
        return CaseRecorder(case, SUITE, self._folder, **fixed)

    def foresee(self, recorder: CaseRecorder, diagnosis: str) -> None:
        """Keeps the record of a crash, for the case that the process dies before the next one is written."""
        self._file.foresee(recorder.record(Status.CRASH, diagnosis))

    def begin_test(self, case: str) -> None:
        """The test ``case`` begins. If the process dies while none of its launches runs, it has crashed."""
        self._test = self.recorder(case)
        self._seen.pop(case, None)  # its record is made at its end
        self.foresee(self._test, "pytest's process died in this test")

    def write(self, recorder: CaseRecorder) -> CaseRecord:
        """Writes the record and returns it. A known fault of the compiler that its code shows is an expected
        failure."""
        recorder.keep_artefacts()
        record = self._expected.applied_to_code(recorder.record())
        record = replace(record, repro=case_command(record))
        self._file.write(record)
        if self._test is not None and record.case == self._test.case:
            self._test = None
        elif self._test is not None:
            self.foresee(self._test, "pytest's process died in this test")
        return record

    def close(self) -> None:
        self._file.close()
