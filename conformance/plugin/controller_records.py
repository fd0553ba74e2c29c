"""Records that the process which leads a run writes itself: of cases whose own process could not write one."""

from __future__ import annotations

import contextlib
import errno
import sqlite3
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from conformance.faults import FaultKind
from conformance.judging.settings import Settings
from conformance.plugin.case_hooks import cannot_write
from conformance.plugin.case_ids import suite_of
from conformance.plugin.record_files import RecordFile
from conformance.plugin.run_faults import RunFaults
from conformance.records import CaseRecord, Status

CONTROLLER = "controller"
#: Errors of a disk that takes no more.
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS)


def is_full(error: Exception) -> bool:
    """True if ``error`` says that a disk or a quota has no room left."""
    return getattr(error, "errno", None) in (errno.ENOSPC, errno.EDQUOT)


class ControllerRecords:
    """Writes records to the run's ``folder``. ``stack`` is the run's."""

    def __init__(self, settings: Settings, folder: Path, stack: Mapping[str, Any], faults: RunFaults) -> None:
        self._settings = settings
        self._folder = folder
        self._stack = stack
        self._faults = faults
        self._file = RecordFile(folder, CONTROLLER)

    def bare(self, case: str, status: Status, outcome: str, diagnosis: str, worker: str = CONTROLLER) -> CaseRecord:
        """Returns a record of ``case`` that has no verdicts."""
        return CaseRecord(
            case,
            suite_of(case),
            status,
            tier=self._settings.tier,
            seed=self._settings.seed,
            stack=dict(self._stack),
            worker=worker,
            outcome=outcome,
            diagnosis=diagnosis,
        )

    def write(self, record: CaseRecord) -> None:
        """Writes ``record``. Ends the run if the folder takes no more."""
        with self.ends_run():
            self._file.write(record)

    def close(self) -> None:
        """Closes the file of these records."""
        self._file.close()

    @contextlib.contextmanager
    def ends_run(self) -> Iterator[None]:
        """Inside, a folder that cannot be written to ends the run with a sentence."""
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            if not self.concerns_folder(error):
                raise
            self._faults.add(
                FaultKind.DISK_FULL if is_full(error) else FaultKind.FILES, cannot_write(self._folder, error)
            )
            pytest.exit(cannot_write(self._folder, error))

    def concerns_folder(self, error: Exception) -> bool:
        """True if ``error`` is about the run's folder or its disk."""
        full = isinstance(error, sqlite3.Error) or getattr(error, "errno", None) in _FULL
        return full or str(getattr(error, "filename", "")).startswith(str(self._folder))
