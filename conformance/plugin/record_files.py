"""The files to which a process writes the records of its cases."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import struct
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from conformance import records
from conformance.exception_text import text_of
from conformance.records import (
    FAILING,
    PACKED_FILE,
    RECORDS_FILE,
    CaseRecord,
    LinePlaces,
    LineProblems,
    Status,
    Verdict,
    each_record,
    jsonable,
    packed,
    record_files,
)

#: Seconds after which what was written is forced to the disk. A process that dies loses nothing that it wrote; only a
#: machine that fails loses the records of this time.
SYNC_S = 1.0


#: Bytes of the journal of a case from which on it is emptied.
JOURNAL_LIMIT = 1 << 20


class RecordFile:
    """One process's records: each is one line, written before :meth:`write` returns. Next to it lies a journal. Its
    last whole line is the record that would be right if the process died now. What cannot be written whole is not
    there: a line that does not fit the disk is taken back, and OSError raised."""

    def __init__(self, folder: Path, worker: str) -> None:
        self.path = part_file(folder, worker)
        self._journal_path = journal_file(folder, worker)
        self._files: dict[Path, int] = {}  # opened when first written to
        self._journal_size = 0
        self._written: set[str] = set()
        self._lock = threading.Lock()
        self._synced = time.monotonic()

    def write(self, record: CaseRecord) -> None:
        """Appends ``record``, unless its case was written already: the main thread and the watchdog may race."""
        with self._lock:
            if record.case in self._written:
                return
            self._written.add(record.case)
            file = self._append(self.path, readable_line(record))
            if time.monotonic() - self._synced >= SYNC_S:
                os.fsync(file)
                self._synced = time.monotonic()
                if os.fstat(file).st_nlink == 0:
                    raise FileNotFoundError(errno.ENOENT, "the file was removed", str(self.path))
            if self._journal_size > JOURNAL_LIMIT:  # no case is under way, so nothing in it is needed
                os.ftruncate(self._files[self._journal_path], 0)
                self._journal_size = 0

    def foresee(self, record: CaseRecord) -> int:
        """Keeps ``record`` for the case that the process dies before it writes its final one. Returns the number of
        bytes that its line has; if these are more than the limit, a shorter one is kept."""
        line = record.to_line().encode()
        with self._lock:
            if record.case not in self._written:
                self._append(self._journal_path, readable_line(record) if len(line) > records.LINE_LIMIT else line)
        return len(line)

    def has(self, case: str) -> bool:
        """Returns True if a record of ``case`` was written, or at least tried."""
        return case in self._written

    def close(self) -> None:
        """Closes the files. What is written later opens them again."""
        with self._lock:
            while self._files:
                os.close(self._files.popitem()[1])

    def _append(self, path: Path, line: bytes) -> int:
        """Writes ``line`` at the end of ``path`` and returns the open file. The system has all of it on return."""
        file = self._files.get(path)
        if file is None:
            file = self._files[path] = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o666)
        rest = memoryview(line)
        whole = len(rest)
        try:
            while rest:
                rest = rest[os.write(file, rest) :]
        except OSError:
            if len(rest) < whole:
                os.ftruncate(file, os.fstat(file).st_size - (whole - len(rest)))
            raise
        self._journal_size += whole if path == self._journal_path else 0
        return file


#: The check that fails if the record of a case cannot be kept as it is.
RECORD_CHECK = "record"


def objection(record: CaseRecord) -> str:
    """Returns the reason why readers would refuse the line of ``record``; empty if they take it."""
    return _line_and_objection(record)[1]


def _line_and_objection(record: CaseRecord) -> tuple[bytes, str]:
    line = b""
    try:
        line = record.to_line().encode()
        if len(line) > records.LINE_LIMIT:
            length = f"the record has {len(line)} bytes, and {records.LINE_LIMIT} is the limit"
            return line, f"{length}: what was observed was left out; give less to recorder.set and recorder.verdict"
        records.from_line(line)
    except Exception as error:  # a case may have put anything into its recorder
        return line, f"the record cannot be read back ({text_of(error)}): what was observed was left out"
    return line, ""


def readable_line(record: CaseRecord) -> bytes:
    """Returns a line for ``record`` that readers take. If they would refuse its own, the case has failed: the check
    :data:`RECORD_CHECK` says why, and the line has less of the record."""
    line, why = _line_and_objection(record)
    if not why:
        return line
    status = record.status if record.status in FAILING else Status.FAIL
    diagnosis = "\n".join((str(jsonable(record.diagnosis)), why)).strip()
    failed = Verdict(RECORD_CHECK, False, why)
    short = replace(record, status=status, reason=None, observed={}, options={}, diagnosis=diagnosis)
    bare = CaseRecord(record.case, record.suite, status, verdicts=(failed,), diagnosis=diagnosis, outcome="failed")
    identified = replace(bare, tier=record.tier, seed=record.seed, stack=record.stack)
    with contextlib.suppress(Exception):  # the case may have put anything into them
        failures = [Verdict(check, False, text) for check, text in record.failing[:_KEPT_FAILURES]]
        short = replace(short, problem=None, config=None, artefacts={}, verdicts=(*failures, failed))
        identified = short if not objection(short) else identified
    return (bare if objection(identified) else identified).to_line().encode()


#: Failed checks that a shortened record keeps.
_KEPT_FAILURES = 20


def part_file(folder: Path, worker: str) -> Path:
    return folder / f"records-{worker}.jsonl"


def journal_file(folder: Path, worker: str) -> Path:
    return folder / f"inflight-{worker}.jsonl"


def process_file(folder: Path, worker: str) -> Path:
    """Returns the file that has the number of a worker's process while it lives."""
    return folder / f"process-{worker}.txt"


def refusal_file(folder: Path, worker: str) -> Path:
    """Returns the file in which a worker says why it cannot run any case."""
    return folder / f"refusal-{worker}.txt"


def breakage_file(folder: Path, worker: str) -> Path:
    """Returns the file in which a worker names the breakage of its machine or environment that keeps it from running
    any case."""
    return folder / f"broken-{worker}.txt"


def death_file(folder: Path, worker: str) -> Path:
    """Returns the file in which a worker names the internal error that ended it."""
    return folder / f"died-{worker}.txt"


def foreseen(folder: Path, worker: str, case: str) -> CaseRecord | None:
    """The last record that the dead ``worker`` foresaw, if it is of this ``case``."""
    last = last_foreseen(journal_file(folder, worker))
    return last if last is not None and last.case == case else None


def written(folder: Path, worker: str, case: str) -> CaseRecord | None:
    """Returns the record of ``case`` that ``worker`` has written."""
    return _record_in(part_file(folder, worker), case)


def recorded(folder: Path, case: str) -> CaseRecord | None:
    """Returns the record of ``case`` that any process of the run has written."""
    return next((record for part in record_files(folder) if (record := _record_in(part, case)) is not None), None)


def _record_in(part: Path, case: str) -> CaseRecord | None:
    placed = each_record(part, LineProblems(), case) if part.is_file() else ()
    return next((record for record, _, _ in placed if record.case == case), None)


def in_flight(folder: Path, worker: str) -> CaseRecord | None:
    """Returns the record that ``worker`` foresees for the case that it runs; None between two cases."""
    last = last_foreseen(journal_file(folder, worker))
    return None if last is None or written(folder, worker, last.case) is not None else last


def last_foreseen(journal: Path) -> CaseRecord | None:
    """Returns the last record in the ``journal`` of a process; None if there is none."""
    last = None
    for placed in each_record(journal, LineProblems()) if journal.is_file() else ():
        last = placed.record
    return last


def stacks_file(folder: Path, worker: str) -> Path:
    """Returns the file for a worker's stacks when a case runs past its deadline."""
    return folder / f"stacks-{worker}.txt"


#: A byte that sorts before those of text, the number of a file, and start and length of a line in it.
_PLACE = struct.Struct(">xHQQ")


class MergedCases(Sequence[str]):
    """The ids of the merged cases, in order. Each is made when it is asked for."""

    def __init__(self, lines: Sequence[bytes]) -> None:
        self._lines = lines

    def __len__(self) -> int:
        return len(self._lines)

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return MergedCases(self._lines[index])
        return self._lines[index][: -_PLACE.size].decode()


def merge(
    folder: Path, take: Callable[[CaseRecord], None], replaced: Mapping[str, CaseRecord]
) -> tuple[Sequence[str], list[str], str]:
    """Merges the files of a run's processes into a compressed one, with the lines in the order of the case ids. Equal
    lines give equal bytes. A process that is killed here leaves the plain files.

    Returns these ids, a sentence for each unusable line, and the SHA-256 (hex) of all lines. If a line is unusable, the
    files stay, as evidence. ``take``
    is called with each record. No record is kept here, so a run may have any size. ``replaced`` has later records of
    some cases, which are merged in place of those in the files.
    """
    parts = record_files(folder)
    problems = LineProblems()
    places = LinePlaces(parts)
    size = 0
    lines: list[
        bytes
    ] = []  # the case of each and its place, which sort by case: tuples would take four times the memory
    for number, (record, start, line) in places.each_record(problems):
        take(replaced.get(record.case, record))
        lines.append(record.case.encode() + _PLACE.pack(number, start, len(line)))
        size += len(line) + 1
    lines.sort()
    merged = folder / (PACKED_FILE if size <= records.UNPACKED_LIMIT else RECORDS_FILE)
    scratch = folder / f"{merged.name}.tmp"
    digest = hashlib.sha256()
    with contextlib.ExitStack() as opened:
        opened.callback(scratch.unlink, missing_ok=True)  # what did not fit the disk; else it has another name by then
        file = opened.enter_context(scratch.open("wb"))
        with packed(file) if merged.name == PACKED_FILE else contextlib.nullcontext(file) as stream:
            for line in lines:
                later = replaced.get(line[: -_PLACE.size].decode())
                text = (
                    later.to_line().encode()
                    if later
                    else places.line_at(*_PLACE.unpack_from(line, len(line) - _PLACE.size))
                )
                text = text.rstrip(b"\n") + b"\n"
                digest.update(text)
                stream.write(text)
        file.flush()
        os.fsync(file.fileno())
        os.replace(scratch, merged)
    _sync_names(folder)  # before the plain files go
    for part in () if problems.sentences else parts:
        if part.name not in (PACKED_FILE, RECORDS_FILE):
            part.unlink()
    return MergedCases(lines), problems.sentences, digest.hexdigest()


def _sync_names(folder: Path) -> None:
    """Forces the names of the files in ``folder`` to the disk."""
    opened = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)
