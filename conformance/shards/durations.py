"""Reads and writes how long cases take, in milliseconds: of an earlier run, or the package's own figures.

The package's file has a figure for each *head* of case ids, which is the id up to its first hyphen. It names the test
and, in most cases, the kernel.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import median_low
from typing import Any

import msgspec

from conformance.records import CaseRecord, LineProblems, each_record, files_to_read, plain_file, refuse_more_than

#: The package's own figures, which ``conformance durations`` writes.
PACKAGE_FILE = Path(__file__).resolve().parents[1] / "data" / "durations.json"
SCHEMA = 1
FILE_LIMIT = 16 << 20
#: The figure of each case where nothing is known.
EQUAL_MS = 1000
#: The largest figure: about 32 years.
MOST_MS = 10**12


class DurationsError(ValueError):
    """Figures cannot be used; the message names the file and says what to do."""


class Durations:
    """Milliseconds by case id, or by the head of ids. A missing case has the median of its suite."""

    def __init__(self, figures: Mapping[str, int]) -> None:
        self._figures = figures
        suites: dict[str, list[int]] = defaultdict(list)
        for name, figure in figures.items():
            suites[_suite(name)].append(figure)
        self._of_suite = {suite: median_low(values) for suite, values in suites.items()}
        self._of_all = median_low(figures.values()) if figures else EQUAL_MS

    def weights(self, cases: Iterable[str]) -> dict[str, int]:
        """Returns the milliseconds of each of ``cases``, 1 or more."""
        return {case: max(self._milliseconds(case), 1) for case in cases}

    def _milliseconds(self, case: str) -> int:
        for name in (case, head(case)):
            if name in self._figures:
                return self._figures[name]
        return self._of_suite.get(_suite(case), self._of_all)


def head(case: str) -> str:
    """Returns the beginning of the id ``case`` up to its first hyphen.

    >>> head("test_scaling.py::test_row_scales[scaled_mm-fp8-sm_90]")
    'test_scaling.py::test_row_scales[scaled_mm'
    """
    return case.partition("-")[0]


def _suite(name: str) -> str:
    return name.partition("::")[0]


def weights_digest(weights: Mapping[str, int]) -> str:
    """Returns the SHA-256 (hex) of the figures of all cases."""
    lines = "".join(f"{weights[case]} {case}\n" for case in sorted(weights))
    return hashlib.sha256(lines.encode()).hexdigest()


class _File(msgspec.Struct, forbid_unknown_fields=True):
    """The package's file: milliseconds by head of ids, of runs with a GPU and without one."""

    schema: int
    with_gpu: dict[str, int]
    without_gpu: dict[str, int]


def package_durations(has_gpu: bool) -> Durations:
    """Returns the package's own figures. Raises :class:`DurationsError`."""
    return _of_file(PACKAGE_FILE, has_gpu)


def read_durations(path: Path, has_gpu: bool) -> Durations:
    """Returns the figures of ``path``: a run's folder, a file of records, or a ``.json`` file that ``conformance
    durations`` wrote. Raises :class:`DurationsError`."""
    if path.suffix == ".json":
        return _of_file(path, has_gpu)
    problems = LineProblems()
    figures: dict[str, int] = {}
    try:
        for file in files_to_read(path):
            for placed in each_record(file, problems):
                if "total" in placed.record.durations:
                    figures[placed.record.case] = _whole_ms(placed.record)
    except OSError as error:
        raise DurationsError(str(error)) from None
    if problems.sentences:
        raise DurationsError(f"{path} is damaged: {problems.sentences[0]}")
    if not figures:
        raise DurationsError(f"{path} has no durations: give the folder of a run that ended")
    return Durations(_possible(figures, str(path)))


def _of_file(path: Path, has_gpu: bool) -> Durations:
    try:
        content = _content(path)
    except OSError as error:
        raise DurationsError(f"{path} cannot be read: {error}") from None
    figures = content.with_gpu if has_gpu else content.without_gpu
    if not figures and path != PACKAGE_FILE:
        runs = "with a GPU" if has_gpu else "without a GPU"
        raise DurationsError(f"{path} has no figures of runs {runs}: give such a run, or leave the option out")
    return Durations(figures)


def _content(path: Path) -> _File:
    """Returns the content of a file of figures. Raises :class:`DurationsError` for another file, and OSError."""
    refuse_more_than(FILE_LIMIT, plain_file(path))
    try:
        content = msgspec.convert(json.loads(path.read_bytes(), object_pairs_hook=_each_name_once), _File)
    except (ValueError, RecursionError) as error:
        raise DurationsError(f"{path} is no file that 'conformance durations' wrote: {error}") from None
    if content.schema != SCHEMA:
        raise DurationsError(f"{path} has schema {content.schema}: this version reads schema {SCHEMA}")
    for figures in (content.with_gpu, content.without_gpu):
        _possible(figures, str(path))
    return content


def _each_name_once(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    names = dict(pairs)
    if len(names) < len(pairs):
        raise ValueError("it has a name twice")
    return names


def _possible(figures: Mapping[str, int], name: str) -> Mapping[str, int]:
    """Returns ``figures``. Raises :class:`DurationsError` for one that no case can have."""
    for case, figure in figures.items():
        if not 0 <= figure <= MOST_MS:
            raise DurationsError(f"{name}: {case} took {figure:.6g} ms: from 0 to {MOST_MS} ms are possible")
    return figures


def _whole_ms(record: CaseRecord) -> int:
    return round(1000 * record.durations["total"])


def file_text(records: Iterable[CaseRecord], earlier: Path | None = None) -> str:
    """Returns the text of a file of figures: the median of ``records`` for each head of ids. The figures of
    ``earlier``, such a file, stay where ``records`` have none. Raises :class:`DurationsError` and OSError."""
    figures: dict[bool, dict[str, list[int]]] = {True: defaultdict(list), False: defaultdict(list)}
    for record in records:
        if "total" in record.durations:
            figures[bool(record.gpu)][head(record.case)].append(_whole_ms(record))
    medians = {gpu: {name: median_low(values) for name, values in found.items()} for gpu, found in figures.items()}
    for values in medians.values():
        _possible(values, "the runs")
    kept = _File(SCHEMA, {}, {}) if earlier is None else _content(earlier)
    content = {
        "schema": SCHEMA,
        "with_gpu": {**kept.with_gpu, **medians[True]},
        "without_gpu": {**kept.without_gpu, **medians[False]},
    }
    return json.dumps(content, indent=0, sort_keys=True) + "\n"
