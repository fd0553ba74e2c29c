"""The files to which a process writes the records of its cases."""

from __future__ import annotations

import os
import threading
from pathlib import Path

from conformance.records import CaseRecord, replace_file


class RecordFile:
    """One process's records: each is one line, on the disk before :meth:`write` returns. Beside it lies the record
    that would be right if the process died now."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.path = folder / f"records-{worker}.jsonl"
        self._in_flight = in_flight_file(folder, worker)
        self._written: set[str] = set()
        self._lock = threading.Lock()

    def write(self, record: CaseRecord) -> None:
        """Appends ``record``, unless its case was written already: the main thread and the watchdog may race."""
        with self._lock:
            if record.case in self._written:
                return
            self._written.add(record.case)
            descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
            try:
                with open(descriptor, "ab", closefd=False) as file:
                    file.write(record.to_line().encode())
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
            self._in_flight.unlink(missing_ok=True)

    def foresee(self, record: CaseRecord) -> None:
        """Keeps ``record`` for the case that the process dies before it writes one of its own."""
        with self._lock:
            if record.case not in self._written:
                replace_file(self._in_flight, record.to_line())


def in_flight_file(folder: Path, worker: str) -> Path:
    return folder / f"inflight-{worker}.json"


def stacks_file(folder: Path, worker: str) -> Path:
    """Where a worker's stacks are dumped when a case runs past its deadline."""
    return folder / f"stacks-{worker}.txt"
