"""Tables from the records of a sweep over config spaces: fastest rows, resources, spills, shared memory estimates."""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from conformance.record_figures import LARGEST
from conformance.records import CaseRecord, Status
from conformance.reporting.text import clean, markdown_table

SUITE = "config_space"


@dataclass(frozen=True)
class Row:
    """The results of one config of a kernel for one dtype and target, over all its problems.

    ``us`` is the device time of the timed problem in microseconds, ``compile_s`` the compile time in seconds.
    ``shared`` and ``estimates`` are bytes of shared memory per block: as the compiler asks for it, and by the name of
    who estimates it.
    """

    kernel: str
    dtype: str
    config: str
    target: str
    statuses: frozenset[Status]
    registers: int | None = None
    spills: int = 0
    shared: int | None = None
    compile_s: float | None = None
    us: float | None = None
    estimates: tuple[tuple[str, int], ...] = ()

    @property
    def key(self) -> str:
        """The line that declares a spill."""
        return f"{self.kernel} {self.dtype} {self.config} {self.target}"


def sized(config: str, size: str) -> str:
    """The text that stands for a config in tables and declarations: with the size of the problem that selected it.

    >>> sized("64x64x32-s2-w4", "17x64x48")
    '64x64x32-s2-w4@17x64x48'
    """
    return f"{config}@{size}" if size else config


class SweepRows:
    """Collects the rows of a sweep from its records, one at a time, and keeps their figures only."""

    def __init__(self) -> None:
        self._groups: defaultdict[tuple[str, str, str, str], _SweepFigures] = defaultdict(_SweepFigures)

    def add(self, record: CaseRecord) -> None:
        """Takes a record of any suite."""
        dtype, config = record.options.get("dtype"), (record.config or {}).get("id")
        if record.suite == SUITE and record.kernel and config and record.target and dtype:
            row = sized(str(config), str(record.options.get("size") or ""))
            self._groups[record.kernel, str(dtype), row, record.target].add(record)

    def rows(self) -> list[Row]:
        """One row per kernel, dtype, config and target, sorted. A config that was selected by problems of several sizes
        has a row for each."""
        return [figures.row(*key) for key, figures in sorted(self._groups.items(), key=lambda item: item[0])]


def rows(records: Iterable[CaseRecord]) -> list[Row]:
    """Returns the rows of the sweep's ``records``."""
    collected = SweepRows()
    for record in records:
        collected.add(record)
    return collected.rows()


class _SweepFigures:
    """The statuses of one row, and the largest of each figure."""

    __slots__ = ("_estimates", "_most", "_statuses")
    _PATHS = (
        *(("resources", "registers"), ("resources", "spills"), ("resources", "shared_memory")),
        *(("compile_s",), ("run", "us")),
    )

    def __init__(self) -> None:
        self._statuses: frozenset[Status] = frozenset()
        self._most: tuple[Any, ...] = (None,) * len(self._PATHS)
        self._estimates: dict[str, Any] = {}

    def add(self, record: CaseRecord) -> None:
        if record.status not in self._statuses:
            self._statuses |= {record.status}
        figures = (_number(record.observed, *path) for path in self._PATHS)
        self._most = tuple(map(_larger, self._most, figures))
        estimates = record.observed.get("shared_memory_estimate")
        for name in estimates if isinstance(estimates, Mapping) else ():
            self._estimates[name] = _larger(self._estimates.get(name), _number(estimates, name))

    def row(self, kernel: str, dtype: str, config: str, target: str) -> Row:
        registers, spills, shared, compile_s, us = self._most
        estimates = tuple((name, value) for name, value in sorted(self._estimates.items()) if value is not None)
        return Row(
            kernel, dtype, config, target, self._statuses, registers, spills or 0, shared, compile_s, us, estimates
        )


def _larger(value: Any, other: Any) -> Any:
    """The larger of two figures, each of which may be missing."""
    if value is None or other is None:
        return value if other is None else other
    return max(value, other)


def _number(value: Any, *path: str) -> float | None:
    """The number that lies under ``path`` in a record's figures, which are not trusted; None if there is none."""
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    usable = isinstance(value, (int, float)) and not isinstance(value, bool) and abs(value) <= LARGEST
    return value if usable else None


def fastest(sweep_rows: Iterable[Row]) -> str:
    """The fastest row of each kernel, dtype and target that was timed, and how much slower the next one is. A row with
    a case that did not pass is none of them: wrong results may come soon."""
    groups: defaultdict[tuple[str, str, str], list[Row]] = defaultdict(list)
    for row in sweep_rows:
        if row.us is not None and row.statuses <= {Status.PASS}:
            groups[row.kernel, row.dtype, row.target].append(row)
    lines: list[list[object]] = []
    for (kernel, dtype, target), group in groups.items():
        first, *others = sorted(group, key=lambda row: row.us or 0.0)
        margin = f"{(others[0].us or 0) / (first.us or 1):.3f}" if others else ""
        second = others[0].config if others else ""
        lines.append([kernel, dtype, target, first.config, f"{first.us:.1f}", second, margin])
    return _table(["kernel", "dtype", "target", "fastest", "us", "next", "times as long"], lines)


def estimates(sweep_rows: Iterable[Row]) -> str:
    """Returns a table of estimates of shared memory against the compiler's figure, by estimator, kernel and target. Its
    columns are the median and the extremes of the quotient, and how often the estimate is too small."""
    quotients: defaultdict[tuple[str, str, str], list[float]] = defaultdict(list)
    for row in sweep_rows:
        for name, estimate in row.estimates:
            if row.shared:
                quotients[name, row.kernel, row.target].append(estimate / row.shared)
    lines: list[list[object]] = []
    for (name, kernel, target), of_one in sorted(quotients.items()):
        figures = (statistics.median(of_one), min(of_one), max(of_one))
        small = sum(quotient < 1 for quotient in of_one)
        lines.append([name, kernel, target, len(of_one), *(f"{figure:.2f}" for figure in figures), small])
    return _table(["estimate of", "kernel", "target", "rows", "median", "least", "most", "too small"], lines)


def spilling(sweep_rows: Iterable[Row]) -> list[str]:
    """The lines that declare every spill that was seen in rows that fit their target: no other is judged."""
    return [clean(row.key) for row in sweep_rows if row.spills and row.statuses != {Status.NOT_APPLICABLE}]


#: What became of a row, as its configs' cases say together.
OUTCOMES = ("passed", "compiled only", "refused", "failed as expected", "failed")


def outcome(row: Row) -> str:
    """One of :data:`OUTCOMES`: what became of all cases of ``row``, the worst of them if they differ."""
    if not row.statuses <= _FORESEEN:
        return "failed"
    if Status.EXPECTED_FAIL in row.statuses:
        return "failed as expected"
    if row.statuses == {Status.NOT_APPLICABLE}:
        return "refused"
    return "compiled only" if Status.NOT_RUN in row.statuses else "passed"


def outcomes(sweep_rows: Iterable[Row]) -> str:
    """Rows by kernel and target: how many there are, and how many have each outcome."""
    groups: defaultdict[tuple[str, str], Counter[str]] = defaultdict(Counter)
    for row in sweep_rows:
        groups[row.kernel, row.target][outcome(row)] += 1
    lines = [[*key, counts.total(), *map(counts.__getitem__, OUTCOMES)] for key, counts in sorted(groups.items())]
    return _table(["kernel", "target", "rows", *OUTCOMES], lines)


def verdict(sweep_rows: Iterable[Row]) -> str:
    """Returns one sentence: whether a row failed that should not have, and how many rows have each outcome."""
    counts = Counter(map(outcome, sweep_rows))
    figures = ", ".join(f"{counts[name]:,} {name}" for name in OUTCOMES if counts[name])
    if counts["failed"]:
        return f"FAILED: {counts['failed']:,} of {counts.total():,} rows failed: {figures}"
    proven = counts["passed"] + counts["compiled only"] + counts["failed as expected"]
    return f"{'PASSED: no row failed' if proven else 'NOTHING WAS JUDGED'}: {figures}"


def _table(header: list[str], lines: list[list[object]]) -> str:
    return clean(markdown_table([header, *([str(cell) for cell in line] for line in lines)]))


#: Statuses of a row that did not fail unexpectedly.
_FORESEEN = {Status.PASS, Status.NOT_APPLICABLE, Status.NOT_RUN, Status.EXPECTED_FAIL}
