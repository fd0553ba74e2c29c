"""Reads one side of a comparison: of each record only what comparing needs, fast, and nothing of it trusted.

A line that :func:`conformance.records.from_line` would refuse is refused here too, with its message. On top of that the
figures under ``observed`` that a comparison uses are checked, and sizes are limited.
"""

from __future__ import annotations

import dataclasses
import gc
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import Any, BinaryIO, NamedTuple

import orjson

from conformance.gate.observed import NOTHING, figures
from conformance.records import (
    RECORDS_FILE,
    SCHEMA,
    CaseRecord,
    ReasonCode,
    RecordError,
    RunInfo,
    Status,
    from_line,
    read_run,
    record_files,
)

#: Bytes of one line, and of all files of a side. A line of the harness has some 3 KB; its texts are cut at 20,000
#: characters each.
LINE_LIMIT = 4 << 20
SIDE_LIMIT = 4 << 30
#: Sentences kept about unusable lines; the others are counted.
PROBLEMS_KEPT = 100

#: Worst first: what counts where a case was recorded more than once.
WORST = (
    Status.CRASH,
    Status.TIMEOUT,
    Status.OOM,
    Status.FAIL,
    Status.COMPILE_ERROR,
    Status.FLAKY,
    Status.UNEXPECTED_PASS,
    Status.WAIVED,
    Status.MISSING,
    Status.NOT_CLAIMED,
    Status.NOT_APPLICABLE,
    Status.NOT_RUN,
    Status.PASS,
)


class Entry(NamedTuple):
    """What comparing needs of one record. ``reason`` is its code and subject; ``checks`` are the names of all
    verdicts, ``failing`` those that failed with their text; ``resources``, ``code`` and ``outputs`` are the checked
    parts of ``observed``, None where the record lacks them; ``timed`` is the problem that was timed, or was to be,
    ``samples`` its measurements in ascending microseconds (the recorded median alone where there are no others),
    ``refused`` why there are none; ``compile_s`` are seconds, None for a compilation taken from a cache."""

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
    resources: Mapping[str, Any] | None
    code: Mapping[str, Any] | None
    outputs: Mapping[str, str] | None
    compile_s: float | None
    timed: str | None
    samples: Sequence[float]
    refused: str


@dataclass(frozen=True)
class SideReading:
    """One side as found on disk. ``entries`` by case; ``run`` is None where there is no ``run.json``; ``problems`` are
    sentences about lines that could not be used as they are, ``unusable`` the number of lines that were dropped."""

    name: str
    entries: Mapping[str, Entry]
    run: RunInfo | None
    stack: Mapping[str, Any]
    tier: str | None
    seed: int | None
    problems: tuple[str, ...] = ()
    unusable: int = 0
    mixed: tuple[str, ...] = ()

    def statuses(self) -> dict[str, int]:
        """Number of cases of each status that occurs."""
        counts = Counter(entry.status for entry in self.entries.values())
        return {status.value: counts[status] for status in Status if counts[status]}


def read_side(path: str | os.PathLike[str], name: str = "") -> SideReading:
    """Reads a run's folder, or one file of records. Raises FileNotFoundError if there is nothing to read, OSError if
    it cannot be read, :class:`RecordError` if it is larger than the limit."""
    path = Path(path)
    files = record_files(path) if path.is_dir() else [path]
    if not files or not all(file.is_file() for file in files):
        raise FileNotFoundError(f"{path} holds no records: give a run's folder or a {RECORDS_FILE}")
    size = sum(file.stat().st_size for file in files)
    if size > SIDE_LIMIT:
        raise RecordError(f"{path} holds {size} bytes of records; at most {SIDE_LIMIT} are read")
    side = _Collector()
    with without_collection():
        for file in files:
            side.read(file)
    run = _run_info(path, side) if path.is_dir() else None
    return side.reading(name or str(path), run)


def _run_info(folder: Path, side: _Collector) -> RunInfo | None:
    try:
        return read_run(folder)
    except FileNotFoundError:
        return None
    except (RecordError, UnicodeDecodeError) as error:
        side.problem(f"run.json: {error}")
        return None


@contextmanager
def without_collection() -> Iterator[None]:
    """No garbage collection meanwhile: records hold no cycles, and searching millions of objects for some takes longer
    than reading or comparing them."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


_FIELDS = tuple(field.name for field in dataclasses.fields(CaseRecord))
_fields_of = itemgetter(*_FIELDS)
_STATUS = {status.value: status for status in Status}
_REASONS = {code.value for code in ReasonCode}
_RANK = {status: rank for rank, status in enumerate(WORST)}


class _Unusual(Exception):
    """A line that the fast way does not take; the message is used if the careful way takes it."""


class _Collector:
    """Gathers the entries of one side."""

    def __init__(self) -> None:
        self.entries: dict[str, Entry] = {}
        self.stack: Mapping[str, Any] | None = None
        self.tier: str | None = None
        self.seed: int | None = None
        self.problems: list[str] = []
        self.dropped = 0
        self.unspoken = 0
        self.mixed: set[str] = set()
        self._signatures: set[tuple[type, ...]] = set()
        # Few distinct texts and lists of checks are shared by all records: one copy of each is kept.
        self._pool: dict[Any, Any] = {}

    def reading(self, name: str, run: RunInfo | None) -> SideReading:
        said = [f"{self.unspoken} more problems are not listed"] if self.unspoken else []
        return SideReading(
            name=name,
            entries=self.entries,
            run=run,
            stack=(run.stack if run else None) or self.stack or {},
            tier=run.tier if run else self.tier,
            seed=run.seed if run else self.seed,
            problems=(*self.problems, *said),
            unusable=self.dropped,
            mixed=tuple(sorted(self.mixed)),
        )

    def problem(self, text: str) -> None:
        if len(self.problems) < PROBLEMS_KEPT:
            self.problems.append(text if len(text) <= 500 else text[:500] + " ...")
        else:
            self.unspoken += 1

    def read(self, file: Path) -> None:
        with file.open("rb") as stream:
            for number, line in enumerate(_lines(stream), 1):
                try:
                    self._take(line)
                except RecordError as error:
                    self.dropped += 1
                    torn = "" if line is None or line.endswith(b"\n") else "torn last line: "
                    self.problem(f"{file.name}:{number}: {torn}{error}")

    def _take(self, line: bytes | None) -> None:
        if line is None:
            raise RecordError(f"a line of more than {LINE_LIMIT} bytes")
        try:
            entry, stack, tier, seed = self._entry(line)
        except (_Unusual, KeyError, TypeError, AttributeError, orjson.JSONDecodeError) as error:
            from_line(line.decode("utf-8", errors="replace"))  # raises what is wrong, in its own words
            raise RecordError(f"not usable: {error}") from None
        if self.stack is None:
            self.stack, self.tier, self.seed = stack, tier, seed
        elif (stack, tier, seed) != (self.stack, self.tier, self.seed):
            pairs = (("stack", stack, self.stack), ("tier", tier, self.tier), ("seed", seed, self.seed))
            self.mixed.update(what for what, value, first in pairs if value != first)
        other = self.entries.get(entry.case)
        if other is not None:
            worse = min(entry, other, key=lambda one: _RANK[one.status])
            self.problem(
                f"case {entry.case!r} is recorded more than once ({other.status.value}, {entry.status.value}): "
                f"{worse.status.value} counts"
            )
            entry = worse
        self.entries[entry.case] = entry

    def _entry(self, line: bytes) -> tuple[Entry, Mapping[str, Any], str | None, int | None]:
        data = orjson.loads(line)
        values = _fields_of(data)
        signature = tuple(map(type, values))
        if signature not in self._signatures:
            from_line(line.decode("utf-8", errors="replace"))
            self._signatures.add(signature)
        if data["schema"] != SCHEMA:
            raise _Unusual(f"schema {data['schema']!r}")
        status = _STATUS.get(data["status"])
        if status is None:
            raise _Unusual(f"status {data['status']!r}")
        given, config, keep = data["reason"], data["config"], self._pool.setdefault
        reason = ""
        if given is not None:
            if given["code"] not in _REASONS:
                raise _Unusual(f"reason {given['code']!r}")
            reason = f"{given['code']} ({_text(given, 'subject')})"
            _text(given, "detail")
        verdicts = data["verdicts"]
        failed = [verdict for verdict in verdicts if verdict["passed"] is not True]
        names = tuple([verdict["check"] for verdict in verdicts])
        checks = self._pool.get(names)
        if checks is None:
            if not set(map(type, names)) <= {str}:
                raise _Unusual("a verdict's check is no text")
            checks = keep(names, names)
        observed = data["observed"]
        options = data["options"]
        chosen = f"{options.get('dtype', '')} {options.get('variant', '')}".strip() if options else ""
        name = config.get("id") if config is not None else None
        if name is not None and not isinstance(name, str):
            raise _Unusual("a config's id is no text")
        resources, *others = figures(observed) if observed else NOTHING
        return (
            Entry(
                data["case"],
                keep(data["suite"], data["suite"]),
                status,
                keep(reason, reason),
                keep(data["kernel"], data["kernel"]),
                keep(name, name),
                keep(chosen, chosen),
                keep(data["target"], data["target"]),
                keep(data["executor"], data["executor"]),
                checks,
                tuple([_failing(verdict) for verdict in failed]) if failed else (),
                data["diagnosis"] if status is not Status.PASS else "",
                resources and keep(tuple(resources.items()), resources),
                *others,
            ),
            data["stack"],
            data["tier"],
            data["seed"],
        )


def _lines(stream: BinaryIO) -> Iterator[bytes | None]:
    """The lines of ``stream``; None for one past the limit, which is skipped without being kept."""
    while line := stream.readline(LINE_LIMIT + 1):
        if len(line) <= LINE_LIMIT:
            yield line
            continue
        while line and not line.endswith(b"\n"):
            line = stream.readline(LINE_LIMIT)
        yield None


def _text(data: Mapping[str, Any], key: str) -> str:
    value = data[key]
    if type(value) is not str:
        raise _Unusual(f"{key!r} is no text")
    return value


def _failing(verdict: Mapping[str, Any]) -> tuple[str, str]:
    if verdict["passed"] is not False:
        raise _Unusual("a verdict that neither passed nor failed")
    return _text(verdict, "check"), _text(verdict, "text")
