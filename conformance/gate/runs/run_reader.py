"""Reads a run for a comparison: of each record only what comparing needs. Nothing in the files is trusted.

:class:`_Line` names what is needed of a record's line; the decoder checks its types and passes over the rest. That
takes half the time of reading whole records, and a comparison may read 100,000 of them. What is passed over (durations,
artefacts, details of verdicts) need only be JSON. All else that :func:`conformance.records.from_line` refuses is
refused here too, in the same words. The figures under ``observed`` are checked besides, and sizes are limited.
"""

from __future__ import annotations

import bisect
import gc
import os
import struct
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from conformance import records
from conformance.case_record import READABLE_SCHEMAS, SCHEMA, refuse_unproven, schema_of, unreadable
from conformance.gate.runs.executed_ttgir import TtgirVerdict, ttgir_verdict
from conformance.gate.runs.record_figures import Code, Observed, ObservedEntry, Resources
from conformance.gate.runs.recorded_options import recorded_options
from conformance.plain_json import refuse_huge_numbers
from conformance.records import Fault, Reason, RecordError, RunInfo, Status

#: The statuses, the worst first: of a case that was recorded more than once the worst counts.
WORST = (
    *(Status.CRASH, Status.TIMEOUT, Status.OOM),
    *(Status.FAIL, Status.COMPILE_ERROR, Status.FLAKY, Status.UNEXPECTED_PASS),
    *(Status.EXPECTED_FAIL, Status.NOT_APPLICABLE, Status.NOT_RUN, Status.PASS),
)


#: Characters of a reason's sentence that are kept.
DETAIL_LIMIT = 500
#: In how many things records are said to differ, by how many values each, and of how many characters, at most.
MIXED_SHOWN = 8
MIXED_CHARACTERS = 80


class ComparedRecord(msgspec.Struct, frozen=True, gc=False):
    """What comparing needs of one record.

    ``reason`` is its code and subject, ``reason_detail`` the sentence beside them. ``checks`` are the names of all
    verdicts, ``failing`` those that failed with their text. ``resources``, ``code`` and ``outputs`` are the checked
    parts of ``observed``, None where the record lacks them. ``timed`` is the problem that was timed, or was to be;
    ``samples`` are its measurements in ascending microseconds (only the recorded median where there are no others);
    ``refused`` says why there are none, ``timed_on`` which device of its kind it was. ``compile_s`` are seconds of
    processor time, None for a compilation taken from a cache. ``persistent``: the kernel starts one block for each
    multiprocessor. ``tables`` are the config tables of the run's torch, ``torch_row`` is where a config stands that
    only torch's tables have, as :class:`~conformance.gate.runs.record_figures.Observed` says. ``ttgir`` is the verdict
    on the TTGIR that was run, ``expected_failure`` the entry that excused the case, None where no entry did or the
    record is older.
    """

    case: str
    suite: str
    status: Status
    reason: str
    kernel: str | None
    config: str | None
    options: str
    target: str | None
    executor: str | None
    checks: tuple[str, ...]
    failing: tuple[tuple[str, str], ...]
    diagnosis: str
    resources: Resources | None
    code: Code | None
    outputs: Mapping[str, str] | None
    compile_s: float | None
    timed: str | None
    samples: Sequence[float]
    refused: str
    reason_detail: str = ""
    persistent: bool = False
    timed_on: str | None = None
    tables: Mapping[str, Sequence[str]] | None = None
    torch_row: str = ""
    ttgir: TtgirVerdict = TtgirVerdict()
    expected_failure: ObservedEntry | None = None
    fault: Fault | None = None


class ComparedRecords(Mapping[str, ComparedRecord]):
    """Records by case id, in the order of the ids. Each is read from its file whenever it is asked for: a run may have
    any size. ``places`` are those of lines that were found to be usable."""

    def __init__(self, places: records.LinePlaces) -> None:
        self._places = places

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return (record.case for record in self.in_order())

    def __getitem__(self, case: str) -> ComparedRecord:
        index = bisect.bisect_left(range(len(self)), case, key=lambda number: self._at(number).case)
        record = self._at(index) if index < len(self) else None
        if record is None or record.case != case:
            raise KeyError(case)
        return record

    def in_order(self) -> Iterator[ComparedRecord]:
        """All records, one at a time."""
        return map(self._at, range(len(self)))

    def _at(self, index: int) -> ComparedRecord:
        return _record(_decoded(self._places.line(index)))


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


class _Config(msgspec.Struct, gc=False):
    id: str | None = None


class _Options(msgspec.Struct, gc=False):
    dtype: Any = ""
    variant: Any = ""


class _Verdict(msgspec.Struct, gc=False):
    check: str
    passed: bool
    text: str


class _Line(msgspec.Struct, gc=False, kw_only=True):
    """What comparing needs of a record's line."""

    case: str
    suite: str
    status: Status
    reason: Reason | None
    kernel: str | None
    config: _Config | None
    options: _Options
    target: str | None
    executor: str | None
    tier: str | None
    seed: int | None
    stack: msgspec.Raw  # the same in all records of most runs: decoded where it is not
    verdicts: list[_Verdict]
    observed: Observed
    diagnosis: str
    schema: int
    fault: Fault | None = None


class _PackedVerdict(msgspec.Struct, array_like=True, gc=False):
    """A verdict of schema 3. The text of a failing one is always a text; that of another may have a short form."""

    check: str
    passed: bool
    text: str | list[Any] = ""


class _PackedLine(_Line, gc=False, kw_only=True):
    """What comparing needs of a line of schema 3, which lacks what has its default."""

    reason: Reason | None = None
    kernel: str | None = None
    config: _Config | None = None
    options: _Options = msgspec.field(default_factory=_Options)
    target: str | None = None
    executor: str | None = None
    tier: str | None = None
    seed: int | None = None
    stack: msgspec.Raw = msgspec.Raw(b"{}")
    verdicts: list[_PackedVerdict] = []  # type: ignore[assignment]  # has the same fields
    observed: Observed = Observed()
    diagnosis: str = ""


_decode = msgspec.json.Decoder(_Line).decode
_decode_packed = msgspec.json.Decoder(_PackedLine).decode
_decode_stack = msgspec.json.Decoder(dict[str, Any]).decode
_check_of = attrgetter("check")
_RANK = {status: rank for rank, status in enumerate(WORST)}


def _decoded(line: bytes) -> _Line:
    """The part of ``line`` that comparing needs. Raises :class:`RecordError`."""
    records.refuse_long(line)
    refuse_huge_numbers(line)
    try:
        decoded = _decode_packed(line) if schema_of(line) == SCHEMA else _decode(line)
        if decoded.schema not in READABLE_SCHEMAS:
            raise msgspec.ValidationError("another schema")
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise unreadable(line, error) from None
    if not all(verdict.passed or isinstance(verdict.text, str) for verdict in decoded.verdicts):
        raise RecordError("a check failed and has the form of one that passed")
    if decoded.status is Status.PASS:
        refuse_unproven(decoded.case, decoded.verdicts)
    return decoded


def _record(line: _Line) -> ComparedRecord:
    reason, options, observed, run = line.reason, line.options, line.observed, line.observed.run
    return ComparedRecord(
        line.case,
        line.suite,
        line.status,
        f"{reason.code.value} ({reason.subject})" if reason else "",
        line.kernel,
        line.config.id if line.config else None,
        f"{options.dtype} {options.variant}".strip(),
        line.target,
        line.executor,
        tuple(map(_check_of, line.verdicts)),
        tuple((verdict.check, verdict.text) for verdict in line.verdicts if not verdict.passed),
        line.diagnosis if line.status is not Status.PASS else "",
        observed.resources,
        observed.code,
        observed.outputs,
        observed.compiled_in(),
        run.problem if run else None,
        run.ordered() if run else (),
        run.refused if run else "",
        reason.detail[:DETAIL_LIMIT] if reason else "",
        observed.persistent,
        run.device if run else None,
        observed.config_tables,
        observed.torch_row,
        ttgir_verdict(((one.check, one.passed, one.text) for one in line.verdicts), observed.ttgir, line.executor),
        observed.expected_failure,
        line.fault,
    )


class _Collector:
    """Checks every line of one side's ``files``, and finds the place of each case's record.

    Files whose lines are in the order of their case ids, as a run leaves them, need a few bytes for each record. For
    others all ids are held until they are sorted.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._places = records.LinePlaces(files)
        self._unsorted: list[bytes] | None = None if len(files) == 1 else []
        self._last: tuple[str, Status] | None = None
        self._counts: Counter[Status] = Counter()
        self.stack: Mapping[str, Any] | None = None
        self._raw_stack = msgspec.Raw()
        self.tier: str | None = None
        self.seed: int | None = None
        self.problems = records.LineProblems()
        self._mixed: dict[str, dict[str, None]] = {}
        for number, file in enumerate(files):
            self._read(number, file)
        for key in sorted(self._unsorted or ()):
            case, status, place = _parsed_key(key)
            self._place(case, status, place)
        self._unsorted = None

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

    def _read(self, number: int, file: Path) -> None:
        with file.open("rb") as stream:
            for at, (start, line) in enumerate(records.lines(stream), 1):
                try:
                    decoded = _decoded(line)
                    self._note_origin(decoded, line)
                except RecordError as error:
                    self.problems.add_line(file, at, line, error)
                    continue
                place = number, start, len(line)
                if self._unsorted is None and self._last is not None and decoded.case < self._last[0]:
                    self._start_sorting()
                if self._unsorted is None:
                    self._place(decoded.case, decoded.status, place)
                else:
                    self._unsorted.append(_key(decoded.case, decoded.status, place))

    def _start_sorting(self) -> None:
        """Goes back to the lines that were taken as sorted. Of a case that was there twice only the worst is left."""
        self._unsorted = []
        for index in range(len(self._places)):
            decoded = _decoded(self._places.line(index))
            self._unsorted.append(_key(decoded.case, decoded.status, self._places.place(index)))
        while self._places:
            self._places.pop()
        self._counts.clear()
        self._last = None

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

    def _note_origin(self, decoded: _Line, line: bytes) -> None:
        """Keeps the first record's stack, tier and seed, and notes in which of them another record differs. Raises
        :class:`RecordError` for a stack that cannot be read."""
        try:
            stack = self.stack if decoded.stack == self._raw_stack else _decode_stack(decoded.stack)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise unreadable(line, error) from None
        if self.stack is None:
            self.stack, self.tier, self.seed = stack, decoded.tier, decoded.seed
            self._raw_stack = decoded.stack.copy()
        elif stack is not self.stack or (decoded.tier, decoded.seed) != (self.tier, self.seed):
            first = {**self.stack, "tier": self.tier, "seed": self.seed}
            this = {**(stack or {}), "tier": decoded.tier, "seed": decoded.seed}
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
