"""Reads a run for a comparison: its records by case id, in the order of the ids, and in which origins they differ.
Nothing in the files is trusted. The figures under ``observed`` are checked, too.

The options of a run, and a run that was cut off, are read here too.

While a run goes on, each of its processes keeps the record that would be right if it died now. What is left of them
names the cases that ran at the end.
"""

from __future__ import annotations

import bisect
import gc
import json
import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from conformance import records
from conformance.gate.runs.run_environment import ENVIRONMENT_FILE
from conformance.records import (
    CaseRecord,
    LineProblems,
    RecordError,
    RunInfo,
    Status,
    each_record,
    first_of,
    plain_file,
    read_run,
)


def recorded_options(folder: Path) -> tuple[str, ...] | None:
    """The words of the command line of the run in ``folder``; None if they are not there or cannot be read."""
    try:
        words = json.loads(plain_file(folder / ENVIRONMENT_FILE).read_text(encoding="utf-8"))["options"]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return None
    return tuple(map(str, words)) if isinstance(words, list) else None


#: The statuses, the worst first: of a case that was recorded more than once the worst counts.
WORST = (
    *(Status.CRASH, Status.TIMEOUT, Status.OOM),
    *(Status.FAIL, Status.COMPILE_ERROR, Status.FLAKY, Status.UNEXPECTED_PASS),
    *(Status.EXPECTED_FAIL, Status.NOT_APPLICABLE, Status.NOT_RUN, Status.PASS),
)
_RANK = {status: rank for rank, status in enumerate(WORST)}


#: In how many things records are said to differ, by how many values each, and of how many characters, at most.
MIXED_SHOWN = 8
MIXED_CHARACTERS = 80


class ComparedRecords(Mapping[str, CaseRecord]):
    """Records by case id, in the order of the ids. Each is read from its file whenever it is asked for: a run may have
    any size. ``places`` are those of lines that were found to be usable."""

    def __init__(self, places: records.LinePlaces) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return (record.case for record in self.in_order())

    def __getitem__(self, case: str) -> CaseRecord:
        index = bisect.bisect_left(range(len(self)), case, key=lambda number: self._at(number).case)
        record = self._at(index) if index < len(self) else None
        if record is None or record.case != case:
            raise KeyError(case)
        return record

    def in_order(self) -> Iterator[CaseRecord]:
        """Yields all records, one at a time."""
        return map(self._at, range(len(self)))

    def _at(self, index: int) -> CaseRecord:
        return records.from_line(self._places.line(index))


@dataclass(frozen=True)
class ComparedRun:
    """One side of a comparison, as found on disk. ``records`` are by case id; ``counts`` are the numbers of cases by
    status; ``run`` is None where there is no usable ``run.json``; ``problems`` are sentences about lines that could not
    be used as they are, the first of ``problem_count``; ``mixed`` says what is not the same in all records,
    such as "python (3.11.7, 3.12.3)": the tier, the seed or a part of the stack. ``options`` are the words of the
    run's command line, None where they are not known."""

    name: str
    records: ComparedRecords
    counts: Mapping[Status, int]
    run: RunInfo | None
    stack: Mapping[str, Any]
    tier: str | None
    seed: int | None
    problems: tuple[str, ...] = ()
    problem_count: int = 0
    mixed: tuple[str, ...] = ()
    options: tuple[str, ...] | None = None

    def statuses(self) -> dict[str, int]:
        """Number of cases of each status that occurs."""
        return {status.value: self.counts[status] for status in Status if self.counts[status]}


def read_compared_run(path: str | os.PathLike[str], name: str = "") -> ComparedRun:
    """Reads a run's folder, or one file of records. ``name`` is what reports call it, by default the path. Raises
    FileNotFoundError if there is nothing to read, OSError if it cannot be read."""
    path = Path(path)
    side = _Collector(records.files_to_read(path))
    run = _run_info(path, side) if path.is_dir() else None
    return side.reading(name or str(path), run, recorded_options(path))


def _run_info(folder: Path, side: _Collector) -> RunInfo | None:
    try:
        return records.read_run(folder)
    except FileNotFoundError:
        side.problems.add(f"{records.RUN_FILE} is missing: whether the run ended and what was selected is not known")
        return None
    except (OSError, RecordError, UnicodeDecodeError) as error:
        side.problems.add(f"{records.RUN_FILE}: {error}")
        return None


@contextmanager
def without_collection() -> Iterator[None]:
    """Switches garbage collection off. Records hold no cycles, and searching millions of objects for some takes about a
    tenth of the time of reading and comparing."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _with_figures(line: bytes) -> CaseRecord:
    """Returns the record on ``line``. Raises :class:`RecordError` for one whose figures cannot be compared, too."""
    record = records.from_line(line)
    record.figures  # noqa: B018  # computed once, and checked by that
    return record


class _Collector:
    """Checks every line of one side's ``files``, and finds the place of each case's record."""

    def __init__(self, files: Sequence[Path]) -> None:
        self._places = records.LinePlaces(files)
        self._last: tuple[str, Status] | None = None
        self._counts: Counter[Status] = Counter()
        self.stack: Mapping[str, Any] | None = None
        self.tier: str | None = None
        self.seed: int | None = None
        self.problems = records.LineProblems()
        self._mixed: dict[str, dict[str, None]] = {}
        for case, status, place in self._sorted():
            self._place(case, status, place)

    def reading(self, name: str, run: RunInfo | None, options: tuple[str, ...] | None) -> ComparedRun:
        return ComparedRun(
            name=name,
            records=ComparedRecords(self._places),
            counts=self._counts,
            run=run,
            stack=(run.stack if run else None) or self.stack or {},
            tier=run.tier if run else self.tier,
            seed=run.seed if run else self.seed,
            problems=tuple(self.problems.sentences),
            problem_count=self.problems.count,
            mixed=tuple(f"{what} ({', '.join(values)})" for what, values in sorted(self._mixed.items())),
            options=options,
        )

    def _sorted(self) -> Iterator[tuple[str, Status, tuple[int, int, int]]]:
        """Returns case, status and place of every record, in the order of the case ids, then of the places."""
        keys = []
        for number, (record, start, line) in self._places.each_record(self.problems, read=_with_figures):
            self._note_origin(record)
            keys.append(_key(record.case, record.status, (number, start, len(line))))
        keys.sort()
        return map(_parsed_key, keys)

    def _place(self, case: str, status: Status, place: tuple[int, int, int]) -> None:
        """Adds a record whose case is not before that of the last one. Of those of one case the worst counts."""
        if self._last is not None and self._last[0] == case:
            earlier = self._last[1]
            worse = min(status, earlier, key=_RANK.__getitem__)
            self.problems.add(
                f"case {case!r} is recorded more than once ({earlier.value}, {status.value}): {worse.value} counts"
            )
            if worse is not status:
                return
            self._places.pop()
            self._counts[earlier] -= 1
        self._places.append(*place)
        self._counts[status] += 1
        self._last = case, status

    def _note_origin(self, record: CaseRecord) -> None:
        """Keeps the first record's stack, tier and seed, and notes in which of them another record differs."""
        if self.stack is None:
            self.stack, self.tier, self.seed = record.stack, record.tier, record.seed
        elif (record.stack, record.tier, record.seed) != (self.stack, self.tier, self.seed):
            first = {**self.stack, "tier": self.tier, "seed": self.seed}
            this = {**record.stack, "tier": record.tier, "seed": record.seed}
            for what in sorted(first | this):
                if this.get(what) != first.get(what):
                    self._note_difference(what[:MIXED_CHARACTERS], first.get(what), this.get(what))

    def _note_difference(self, what: str, *values: object) -> None:
        """Notes that records differ in ``what``: the first few values of the first few names."""
        if what in self._mixed or len(self._mixed) < MIXED_SHOWN:
            noted = self._mixed.setdefault(what, {})
            for value in values:
                text = str(value)[:MIXED_CHARACTERS]
                if text not in noted:
                    noted[text if len(noted) < MIXED_SHOWN else "..."] = None


_PLACE = struct.Struct(">HQQB")


def _key(case: str, status: Status, place: tuple[int, int, int]) -> bytes:
    """Bytes that sort by case id, then by place: a tuple of them would take four times the memory."""
    return case.encode() + b"\0" + _PLACE.pack(*place, _RANK[status])


def _parsed_key(key: bytes) -> tuple[str, Status, tuple[int, int, int]]:
    file, start, length, rank = _PLACE.unpack(key[-_PLACE.size :])
    return key[: -_PLACE.size - 1].decode(), WORST[rank], (file, start, length)


#: What a process of a run leaves in its folder until the run ends: what it foresees, and its number.
JOURNALS, PROCESSES = "inflight-*.jsonl", "process-*.txt"
SELECTED_FILE = "selected.txt"


def cut_off(folder: Path, recorded: int | None = None) -> str | None:
    """Returns a sentence about a run that has not ended: what it ran last. If the number of ``recorded`` cases is
    given, it says how many lack a record. None if it has ended, or if ``folder`` does not say whether it has."""
    try:
        if read_run(folder).wall_s is not None:
            return None
    except (OSError, ValueError):
        return None
    cases = [record.case for record in _last_records(folder)]
    during = f" while it ran {first_of(cases, 5)}" if cases else ""
    missing = 0 if recorded is None else _selected(folder) - recorded
    lack = f"; selected cases without a record: {missing}" if missing > 0 else ""
    return f"the run goes on{lack}" if _runs(folder) else f"the run did not end: it was cut off{during}{lack}"


def cases_cut_off(folder: Path) -> list[CaseRecord]:
    """A record for each case that ran when the run was cut off; none if the run goes on, or has ended."""
    return [] if cut_off(folder) is None or _runs(folder) else _last_records(folder)


def _last_records(folder: Path) -> list[CaseRecord]:
    """Returns the record that each process of the run foresaw for the case that it ran last, unless it wrote that
    case's record."""
    records = []
    for journal in sorted(folder.glob(JOURNALS)):
        try:
            last = None
            for placed in each_record(plain_file(journal), LineProblems()):
                last = placed.record
            part = journal.with_name(journal.name.replace("inflight-", "records-", 1))
            if last is not None and not (part.exists() and _holds(part, last.case)):
                records.append(last)
        except OSError:
            continue
    return records


def _holds(part: Path, case: str) -> bool:
    return any(placed.record.case == case for placed in each_record(plain_file(part), LineProblems(), case))


def _selected(folder: Path) -> int:
    try:
        with plain_file(folder / SELECTED_FILE).open("rb") as lines:
            return sum(1 for _ in lines)
    except OSError:
        return 0


def _runs(folder: Path) -> bool:
    """True if a process of the run is alive on this machine."""
    for file in folder.glob(PROCESSES):
        try:
            os.kill(int(plain_file(file).read_text(encoding="ascii")), 0)
        except PermissionError:  # another user's
            return True
        except (OSError, ValueError, OverflowError):
            continue
        return True
    return False
