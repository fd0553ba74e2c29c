"""Reads a run for a comparison: of each record only what comparing needs. Nothing in the files is trusted.

:class:`_Line` names what is needed of a record's line; the decoder checks its types and passes over the rest. That
takes half the time of reading whole records, and a comparison may read 100,000 of them. What is passed over (durations,
artefacts, details of verdicts) need only be JSON. All else that :func:`conformance.records.from_line` refuses is
refused here too, in the same words. The figures under ``observed`` are checked besides, and sizes are limited.
"""

from __future__ import annotations

import gc
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any

import msgspec

from conformance import records
from conformance.gate.runs.record_figures import Code, Observed, Resources
from conformance.records import Reason, RecordError, RunInfo, Status

#: Problems with lines that are kept as sentences; the others are counted.
PROBLEMS_KEPT = 100

#: The statuses, the worst first: of a case that was recorded more than once the worst counts.
WORST = (
    *(Status.CRASH, Status.TIMEOUT, Status.OOM),
    *(Status.FAIL, Status.COMPILE_ERROR, Status.FLAKY, Status.UNEXPECTED_PASS),
    *(Status.EXPECTED_FAIL, Status.NOT_APPLICABLE, Status.NOT_RUN, Status.PASS),
)


class ComparedRecord(msgspec.Struct, frozen=True, gc=False):
    """What comparing needs of one record.

    ``reason`` is its code and subject. ``checks`` are the names of all verdicts, ``failing`` those that failed with
    their text. ``resources``, ``code`` and ``outputs`` are the checked parts of ``observed``, None where the record
    lacks them. ``timed`` is the problem that was timed, or was to be; ``samples`` are its measurements in ascending
    microseconds (only the recorded median where there are no others); ``refused`` says why there are none.
    ``compile_s`` are seconds of processor time, None for a compilation taken from a cache.
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


@dataclass(frozen=True)
class ComparedRun:
    """One side of a comparison, as found on disk. ``records`` are by case id; ``run`` is None where there is no usable
    ``run.json``; ``problems`` are sentences about lines that could not be used as they are; ``mixed`` names what is not
    the same in all records: stack, tier or seed."""

    name: str
    records: Mapping[str, ComparedRecord]
    run: RunInfo | None
    stack: Mapping[str, Any]
    tier: str | None
    seed: int | None
    problems: tuple[str, ...] = ()
    mixed: tuple[str, ...] = ()

    def statuses(self) -> dict[str, int]:
        """Number of cases of each status that occurs."""
        counts = Counter(record.status for record in self.records.values())
        return {status.value: counts[status] for status in Status if counts[status]}


def read_compared_run(path: str | os.PathLike[str], name: str = "") -> ComparedRun:
    """Reads a run's folder, or one file of records. ``name`` is what reports call it, by default the path. Raises
    FileNotFoundError if there is nothing to read, OSError if it cannot be read or is larger than the limit."""
    path = Path(path)
    files = records.files_to_read(path)
    records.refuse_more_than(records.READ_LIMIT, *files)
    side = _Collector()
    for file in files:
        side.read(file)
    run = _run_info(path, side) if path.is_dir() else None
    return side.reading(name or str(path), run)


def _run_info(folder: Path, side: _Collector) -> RunInfo | None:
    try:
        return records.read_run(folder)
    except FileNotFoundError:
        side.problem(f"{records.RUN_FILE} is missing: whether the run ended and what was selected is not known")
        return None
    except (OSError, RecordError, UnicodeDecodeError) as error:
        side.problem(f"{records.RUN_FILE}: {error}")
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


class _Line(msgspec.Struct, gc=False):
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


_decode = msgspec.json.Decoder(_Line).decode
_decode_stack = msgspec.json.Decoder(dict[str, Any]).decode
_check_of, _passed_of = attrgetter("check"), attrgetter("passed")
_RANK = {status: rank for rank, status in enumerate(WORST)}


class _Collector:
    """Collects the records of one side."""

    def __init__(self) -> None:
        self.records: dict[str, ComparedRecord] = {}
        self.stack: Mapping[str, Any] | None = None
        self._raw_stack = msgspec.Raw()
        self.tier: str | None = None
        self.seed: int | None = None
        self.problems: list[str] = []
        self.problems_dropped = 0
        self.mixed: set[str] = set()
        # All records share few distinct texts and lists of checks. One copy of each takes a third of the memory.
        self._pool: dict[Any, Any] = {}

    def reading(self, name: str, run: RunInfo | None) -> ComparedRun:
        more = [f"{self.problems_dropped} more problems are not listed"] if self.problems_dropped else []
        return ComparedRun(
            name=name,
            records=self.records,
            run=run,
            stack=(run.stack if run else None) or self.stack or {},
            tier=run.tier if run else self.tier,
            seed=run.seed if run else self.seed,
            problems=(*self.problems, *more),
            mixed=tuple(sorted(self.mixed)),
        )

    def problem(self, text: str) -> None:
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(text if len(text) <= 500 else text[:500] + " ...")
        else:
            self.problems_dropped += 1

    def read(self, file: Path) -> None:
        with file.open("rb") as stream:
            for number, (_, line) in enumerate(records.lines(stream), 1):
                try:
                    self._take(line)
                except RecordError as error:
                    self.problem(records.problem_of(file, number, line, error))

    def _take(self, line: bytes) -> None:
        records.refuse_long(line)
        try:
            decoded = _decode(line)
            if decoded.schema not in records.READABLE_SCHEMAS:
                raise msgspec.ValidationError("another schema")
            stack = self.stack if decoded.stack == self._raw_stack else _decode_stack(decoded.stack)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise records.unreadable(line, error) from None
        self._note_origin(decoded, stack)
        record = self._record(decoded)
        other = self.records.get(record.case)
        if other is not None:
            worse = min(record, other, key=lambda one: _RANK[one.status])
            self.problem(
                f"case {record.case!r} is recorded more than once ({other.status.value}, {record.status.value}): "
                f"{worse.status.value} counts"
            )
            record = worse
        self.records[record.case] = record

    def _note_origin(self, line: _Line, stack: Mapping[str, Any] | None) -> None:
        """Keeps the first record's stack, tier and seed, and notes in which of them another record differs."""
        if self.stack is None:
            self.stack, self.tier, self.seed, self._raw_stack = stack, line.tier, line.seed, line.stack.copy()
        elif stack is not self.stack and stack != self.stack:
            self.mixed.add("stack")
        if line.tier != self.tier:
            self.mixed.add("tier")
        if line.seed != self.seed:
            self.mixed.add("seed")

    def _record(self, line: _Line) -> ComparedRecord:
        reason, options, observed, run = line.reason, line.options, line.observed, line.observed.run
        config, shown_options = line.config and line.config.id, f"{options.dtype} {options.variant}".strip()
        checks, passed = tuple(map(_check_of, line.verdicts)), all(map(_passed_of, line.verdicts))
        failing = () if passed else [(verdict.check, verdict.text) for verdict in line.verdicts if not verdict.passed]
        if failing and line.status is Status.PASS:
            records.refuse_failing(line.case, line.verdicts)
        keep = self._pool.setdefault
        return ComparedRecord(
            line.case,
            keep(line.suite, line.suite),
            line.status,
            f"{reason.code.value} ({reason.subject})" if reason else "",
            keep(line.kernel, line.kernel),
            keep(config, config),
            keep(shown_options, shown_options),
            keep(line.target, line.target),
            keep(line.executor, line.executor),
            keep(checks, checks),
            tuple(failing),
            line.diagnosis if line.status is not Status.PASS else "",
            observed.resources,
            observed.code,
            observed.outputs,
            observed.compiled_in(),
            keep(run.problem, run.problem) if run else None,
            run.ordered() if run else (),
            run.refused if run else "",
        )
