"""The files to which a process writes the records of its cases."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path

from conformance.records import RECORDS_FILE, CaseRecord, each_record, record_files, replace_file

#: Seconds after which what was written is forced to the disk. A process that dies loses nothing that it wrote; only a
#: machine that fails loses the records of this time.
SYNC_S = 1.0


class RecordFile:
    """One process's records: each is one line, written before :meth:`write` returns. Beside it lies the record that
    would be right if the process died now."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.path = folder / f"records-{worker}.jsonl"
        self._in_flight = in_flight_file(folder, worker)
        self._written: set[str] = set()
        self._lock = threading.Lock()
        self._synced = time.monotonic()

    def write(self, record: CaseRecord) -> None:
        """Appends ``record``, unless its case was written already: the main thread and the watchdog may race."""
        with self._lock:
            if record.case in self._written:
                return
            self._written.add(record.case)
            with self.path.open("ab") as file:
                file.write(record.to_line().encode())
                file.flush()
                if time.monotonic() - self._synced >= SYNC_S:
                    os.fsync(file.fileno())
                    self._synced = time.monotonic()
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


def merge(folder: Path, take: Callable[[CaseRecord], None]) -> tuple[list[str], list[str]]:
    """Merges the files of a run's processes into one, with the lines in the order of the case ids.

    Returns these ids, and a sentence for each unusable line; if there is one, the files stay, as evidence. ``take``
    is called with each record. No record is kept here, so a run may have any size.
    """
    parts = record_files(folder)
    problems: list[str] = []
    places: list[tuple[str, int, int, int]] = []
    for number, part in enumerate(parts):
        for record, start, length in each_record(part, problems):
            take(record)
            places.append((record.case, number, start, length))
    places.sort()
    scratch = folder / f"{RECORDS_FILE}.tmp"
    with contextlib.ExitStack() as opened:
        streams = [opened.enter_context(part.open("rb")) for part in parts]
        merged = opened.enter_context(scratch.open("wb"))
        for _, number, start, length in places:
            streams[number].seek(start)
            merged.write(streams[number].read(length).rstrip(b"\n") + b"\n")
        merged.flush()
        os.fsync(merged.fileno())
    os.replace(scratch, folder / RECORDS_FILE)
    for part in () if problems else parts:
        if part.name != RECORDS_FILE:
            part.unlink()
    return [case for case, *_ in places], problems
