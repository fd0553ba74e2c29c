"""The records of a run: its files, read and written. All that a record is made of can be imported from here.

A run's folder holds ``run.json`` (:class:`RunInfo`) and ``records.jsonl.gz``: one :class:`CaseRecord` per line,
compressed. While the run goes on, or when it was killed, the lines of each worker are in a plain
``records-<worker>.jsonl`` instead. What is read back is not trusted: every line is checked, and what cannot be used is
reported, never skipped in silence.
"""

from __future__ import annotations

import errno
import gzip
import json
import os
import stat
import tempfile
import weakref
import zlib
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import IO, NamedTuple, overload

from conformance.case_record import (
    SCHEMA,
    CaseRecord,
    Check,
    CheckKind,
    KernelDeclarations,
    Rerun,
    RunInfo,
    RunPart,
    Verdict,
    from_line,
    run_from_text,
)
from conformance.case_status import (
    FAILING,
    CompileFailure,
    ConformanceFailure,
    ExecutorName,
    Reason,
    ReasonCode,
    Status,
)
from conformance.faults import Fault, FaultClass, FaultKind
from conformance.plain_json import RecordError, jsonable
from conformance.shard_record import MergedShards, Shard, ShardPlan, ShardRun, list_digest

__all__ = [
    "FAILING",
    "LINE_LIMIT",
    "PACKED_FILE",
    "PROGRESS_FILE",
    "RECORDS_FILE",
    "RUN_FILE",
    "SCHEMA",
    "CaseRecord",
    "Check",
    "CheckKind",
    "CompileFailure",
    "ConformanceFailure",
    "ExecutorName",
    "Fault",
    "FaultClass",
    "FaultKind",
    "KernelDeclarations",
    "LinePlaces",
    "LineProblems",
    "MergedShards",
    "PlacedRecord",
    "Reading",
    "Reason",
    "ReasonCode",
    "RecordError",
    "Rerun",
    "RunInfo",
    "RunPart",
    "Shard",
    "ShardPlan",
    "ShardRun",
    "Status",
    "StoredRecords",
    "Verdict",
    "each_record",
    "files_to_read",
    "first_of",
    "from_line",
    "incompleteness",
    "jsonable",
    "lines",
    "list_digest",
    "packed",
    "plain_file",
    "plain_lines",
    "read_records",
    "read_run",
    "record_files",
    "refuse_long",
    "refuse_more_than",
    "replace_file",
    "run_from_text",
]

#: The plain lines of a run: so runs of older versions left them, and so a bundle has them.
RECORDS_FILE = "records.jsonl"
#: The same lines, compressed.
PACKED_FILE = "records.jsonl.gz"
RUN_FILE = "run.json"
#: In a run's folder while it runs: how far it is, as text.
PROGRESS_FILE = "progress.txt"
RUN_LIMIT = 16 << 20  # bytes of a run.json that are read: it may come from a stranger. Records are read line by line
LINE_LIMIT = 4 << 20  # bytes of one line. A line has about 5 KB; each text in it is cut at 20,000 characters
UNPACKED_LIMIT = 1 << 30  # bytes of a compressed file's lines: about 200,000 records. A run that has more stays plain
PROBLEMS_KEPT = 20  # sentences about unusable lines; the others are counted
BLOCK = 1 << 18  # bytes of a file that are read at once


_GZIP = b"\x1f\x8b"  # begins every compressed file


def plain_lines(file: Path) -> IO[bytes]:
    """Opens the plain lines of ``file``. Those of a compressed one are unpacked into a temporary file without a name,
    so that a reader can go back to a line. Raises OSError for damaged data, and above :data:`UNPACKED_LIMIT`."""
    stream = file.open("rb", BLOCK)
    compressed = stream.read(len(_GZIP)) == _GZIP
    stream.seek(0)
    if not compressed:
        return stream
    with stream, ExitStack() as failed:
        plain = failed.enter_context(tempfile.TemporaryFile("w+b", BLOCK))
        for block in unpacked_blocks(stream, file):
            plain.write(block)
        plain.seek(0)
        failed.pop_all()
        return plain


def unpacked_blocks(stream: IO[bytes], file: Path) -> Iterator[bytes]:
    """Unpacks the gzip data in ``stream``, a block at a time. ``file`` is what errors name. Raises OSError as
    :func:`plain_lines` does."""
    size = 0
    try:
        with gzip.GzipFile(fileobj=stream) as packed:
            while block := packed.read(BLOCK):
                size += len(block)
                if size > UNPACKED_LIMIT:
                    given = f"{os.fstat(stream.fileno()).st_size} bytes that unpack to more than"
                    text = f"{given} {UNPACKED_LIMIT} bytes, the limit: unpack the file with gunzip if you trust it"
                    raise OSError(errno.EFBIG, text, str(file))
                yield block
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        text = f"the compressed data are damaged or cut short ({error}): copy the file again"
        raise OSError(errno.EINVAL, text, str(file)) from None


def packed(file: IO[bytes]) -> gzip.GzipFile:
    """Returns a stream that compresses into ``file``. The header has neither a name nor a time."""
    return gzip.GzipFile("", "wb", compresslevel=6, fileobj=file, mtime=0)


class LinePlaces:
    """Places of lines in files, in the caller's order. A line is read when it is asked for, so that the files may be
    larger than memory."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        with ExitStack() as opened:
            self._streams = [opened.enter_context(plain_lines(file)) for file in files]
            weakref.finalize(self, opened.pop_all().close)
        self._places = array("Q")  # of each line: the number of its file, its start and its length in bytes

    def append(self, file: int, start: int, length: int) -> None:
        """Adds the line of ``length`` bytes that begins at ``start`` of the file with this number."""
        self._places.extend((file, start, length))

    def pop(self) -> None:
        """Removes the place that was added last."""
        del self._places[-3:]

    def __len__(self) -> int:
        return len(self._places) // 3

    def place(self, index: int) -> tuple[int, int, int]:
        """Number of the file, start and length."""
        file, start, length = self._places[3 * index : 3 * index + 3]
        return file, start, length

    def line(self, index: int) -> bytes:
        """Returns the line at this place."""
        return self.line_at(*self.place(index))

    def line_at(self, file: int, start: int, length: int) -> bytes:
        """The line of ``length`` bytes that begins at ``start`` of the file with this number."""
        return os.pread(self._streams[file].fileno(), length, start)

    def each_record(
        self, problems: LineProblems, read: Callable[[bytes], CaseRecord] = from_line
    ) -> Iterator[tuple[int, PlacedRecord]]:
        """Yields the valid records in all files, each with the number of its file, as :func:`each_record` reads
        them."""
        for number, (file, stream) in enumerate(zip(self._files, self._streams, strict=True)):
            for placed in _each_record(stream, file.name, problems, read=read):
                yield number, placed


class StoredRecords(Sequence[CaseRecord]):
    """The records whose lines lie at ``places``. Each is read whenever it is asked for, so none is held here."""

    def __init__(self, places: LinePlaces) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    @overload
    def __getitem__(self, index: int) -> CaseRecord: ...

    @overload
    def __getitem__(self, index: slice) -> Sequence[CaseRecord]: ...

    def __getitem__(self, index: int | slice) -> CaseRecord | Sequence[CaseRecord]:
        if isinstance(index, slice):
            return [self[number] for number in range(*index.indices(len(self)))]
        return from_line(self._places.line(range(len(self))[index]))


@dataclass(frozen=True)
class Reading:
    """The valid records of a run, and a sentence for every line that could not be used."""

    records: Sequence[CaseRecord]
    problems: tuple[str, ...] = ()


def record_files(folder: Path) -> list[Path]:
    """Returns the files that hold a run's records: the compressed one, which has all of them from the moment that it
    has this name; else a plain one; else those of the workers."""
    for name in (PACKED_FILE, RECORDS_FILE):
        if (folder / name).exists():
            return [folder / name]
    return sorted(folder.glob("records-*.jsonl"))


def files_to_read(path: Path) -> list[Path]:
    """``path`` if it is a file of records, else those of the run in that folder. Raises FileNotFoundError if there is
    nothing to read."""
    files = record_files(path) if path.is_dir() else [path]
    if not files or not all(file.exists() for file in files):
        raise FileNotFoundError(f"{path} holds no records: give a run's folder or a {PACKED_FILE}")
    return [plain_file(file) for file in files]


def plain_file(path: Path) -> Path:
    """``path``, if it is a file with an end. Raises OSError for anything else: a reader would wait at a fifo for ever,
    and read a device until memory ends."""
    kind = path.stat().st_mode
    if not stat.S_ISREG(kind):
        raise OSError(errno.EINVAL, "a file is required, and this is a fifo, a device or a folder", str(path))
    return path


class LineProblems:
    """Sentences about the lines of a file that cannot be used. The first :data:`PROBLEMS_KEPT` are kept, the others
    counted: a file of another kind may have millions of lines."""

    def __init__(self) -> None:
        self._kept: list[str] = []
        self.count = 0

    def add(self, text: str) -> None:
        """Adds a sentence, cut if it is long."""
        self.count += 1
        if self.count <= PROBLEMS_KEPT:
            self._kept.append(text if len(text) <= 500 else text[:500] + " ...")

    def add_line(self, file: str, number: int, line: bytes, error: RecordError) -> None:
        """Adds the sentence about the unusable ``line`` with this ``number`` in ``file``."""
        torn = "" if line.endswith(b"\n") or len(line) > LINE_LIMIT else "torn last line: "
        self.add(f"{file}:{number}: {torn}{error}")

    @property
    def sentences(self) -> list[str]:
        """Returns the sentences that were kept, and how many more there were."""
        more = self.count - len(self._kept)
        return [*self._kept, f"{more} more problems are not listed"] if more else list(self._kept)


def read_records(path: str | os.PathLike[str]) -> Reading:
    """Reads a records file, or those of a run's folder. A last line that was cut short (its writer died) and every
    invalid line become problems. Raises FileNotFoundError if there is nothing to read."""
    files = files_to_read(Path(path))
    problems = LineProblems()
    places = LinePlaces(files)
    for number, (_, start, line) in places.each_record(problems):
        places.append(number, start, len(line))
    return Reading(StoredRecords(places), tuple(problems.sentences))


class PlacedRecord(NamedTuple):
    """A record, where its line begins in its file, and the line."""

    record: CaseRecord
    start: int
    line: bytes


def each_record(
    file: Path, problems: LineProblems, part: str = "", read: Callable[[bytes], CaseRecord] = from_line
) -> Iterator[PlacedRecord]:
    """The valid records in ``file``, one at a time: a file may have any size. Every line that cannot be used adds a
    sentence to ``problems``. With ``part``, whole lines without this text are passed over. ``read`` makes a record of a
    line, or raises :class:`RecordError`."""
    with plain_lines(file) as stream:
        yield from _each_record(stream, file.name, problems, part, read)


def _each_record(
    stream: IO[bytes],
    name: str,
    problems: LineProblems,
    part: str = "",
    read: Callable[[bytes], CaseRecord] = from_line,
) -> Iterator[PlacedRecord]:
    written = json.dumps(part)[1:-1].encode()
    counted, number = 0, 1  # a place in the file, and the number of its line
    for start, line in lines(stream):
        if written not in line and line.endswith(b"\n"):
            continue
        try:
            refuse_long(line)
            yield PlacedRecord(read(line), start, line)
        except RecordError as error:
            counted, number = start, number + _line_ends(stream, counted, start)
            problems.add_line(name, number, line, error)


def _line_ends(stream: IO[bytes], start: int, end: int) -> int:
    """The number of line ends in ``stream`` between two places in bytes. It stays where it is."""
    count = 0
    while start < end and (block := os.pread(stream.fileno(), min(BLOCK, end - start), start)):
        start += len(block)
        count += block.count(b"\n")
    return count


def lines(stream: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Yields the place where each line of ``stream`` begins, and the line. One past the limit is cut, so that
    :func:`refuse_long` refuses it; its rest is skipped."""
    while line := stream.readline(LINE_LIMIT + 1):
        yield stream.tell() - len(line), line
        while not line.endswith(b"\n") and (line := stream.readline(LINE_LIMIT + 1)):
            pass


def refuse_long(line: bytes) -> None:
    """Raises :class:`RecordError` for a line that :func:`lines` cut."""
    if len(line) > LINE_LIMIT:
        raise RecordError(
            f"the line has more than {LINE_LIMIT} bytes, the limit: the file is damaged or not a record file"
        )


def read_run(folder: str | os.PathLike[str]) -> RunInfo:
    """The ``run.json`` of a run's folder. Raises FileNotFoundError or :class:`RecordError`."""
    refuse_more_than(RUN_LIMIT, Path(folder) / RUN_FILE)
    return run_from_text((Path(folder) / RUN_FILE).read_text(encoding="utf-8"))


def refuse_more_than(limit: int, *files: Path) -> None:
    """Raises OSError if ``files`` hold more than ``limit`` bytes together."""
    if sum(plain_file(file).stat().st_size for file in files) > limit:
        raise OSError(errno.EFBIG, f"more than {limit} bytes, which is all that is read", str(files[0]))


def replace_file(path: Path, text: str) -> None:
    """Writes ``text`` to ``path`` so that a reader finds the old content or the new one, never a part."""
    scratch = path.with_name(path.name + ".tmp")
    try:
        scratch.write_text(text, encoding="utf-8")
        os.replace(scratch, path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


def incompleteness(selected: Iterable[str], recorded: Iterable[str]) -> list[str]:
    """Sentences about every difference between the selected case ids and the recorded ones; empty if they agree."""
    expected = set(selected)
    missing, others, twice = expected.copy(), set[str](), set[str]()  # the ids of ``recorded`` are not held
    for case in recorded:
        if case in missing:
            missing.discard(case)
        elif case in expected or case in others:
            twice.add(case)
        else:
            others.add(case)
    groups = {
        "selected but not recorded": sorted(missing),
        "recorded but not selected": sorted(others),
        "recorded more than once": sorted(twice),
    }
    return [f"{len(cases)} {what}: {first_of(cases, 20)}" for what, cases in groups.items() if cases]


def first_of(texts: Sequence[str], most: int) -> str:
    """The first ``most`` of ``texts`` in a line, and how many more there are."""
    shown = ", ".join(texts[:most])
    return f"{shown} and {len(texts) - most} more" if len(texts) > most else shown
