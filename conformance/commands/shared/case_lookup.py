"""Finds a run's records, and the one case that a user's text names."""

from __future__ import annotations

import difflib
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path

from conformance.commands import CommandError, command_errors
from conformance.gate.runs.run_reader import cases_cut_off, cut_off
from conformance.records import (
    RUN_FILE,
    CaseRecord,
    LineProblems,
    Reading,
    RecordError,
    each_record,
    files_to_read,
    read_records,
    read_run,
    record_files,
)
from conformance.reporting.text import one_line

CASES_SHOWN = 50  # of those that a text fits
CASES_COMPARED = 3000  # with a text that fits none


@command_errors(OSError)
def records_in(folder: Path) -> Reading:
    """The records of the run in ``folder``. That the run was cut off is among its problems. Raises
    :class:`CommandError` if there are none."""
    try:
        reading = read_records(folder)
    except FileNotFoundError as error:
        unfinished = cut_off(folder)
        raise CommandError(f"{error}; {unfinished}" if unfinished else error) from None
    unfinished = cut_off(folder, len(reading.records))
    return replace(reading, problems=(unfinished, *reading.problems)) if unfinished else reading


def run_records(run: Path | None) -> tuple[Path, Reading]:
    """The folder of a run and its records; the newest run below ``reports`` if ``run`` is None. What is wrong with the
    records goes to stderr. Raises :class:`CommandError` if there are none."""
    folder = run or newest_run()
    reading = records_in(folder)
    complain(reading.problems)
    return folder, reading


def newest_run() -> Path:
    """Returns the folder below ``reports`` whose run started last. Raises :class:`CommandError` if there is none."""
    reports = Path("reports")
    runs = []
    for file in reports.glob(f"*/{RUN_FILE}"):
        try:
            runs.append((read_run(file.parent).started, file.parent))
        except (OSError, RecordError) as error:
            print(f"conformance: {file}: {one_line(str(error))}", file=sys.stderr)
    if not runs:
        raise CommandError(f"no run lies under {reports.resolve()}: give --run DIR, or run the suites first")
    return max(runs)[1]


def records_with(text: str, folder: Path) -> Iterator[CaseRecord]:
    """The records in ``folder`` whose case id contains ``text``, and those of cases that ran when the run was cut off.
    Raises :class:`CommandError` if none can be read. Other lines are passed over, so that a large run takes seconds."""
    problems = LineProblems()
    left = cases_cut_off(folder)
    with command_errors(OSError):
        for file in record_files(folder) if left else files_to_read(folder):
            for record in (placed.record for placed in each_record(file, problems, text)):
                if text in record.case:
                    yield record
    yield from (record for record in left if text in record.case)
    unfinished = cut_off(folder)
    complain([*([f"{folder}: {unfinished}"] if unfinished else ()), *problems.sentences])


def one_case(text: str, folder: Path) -> CaseRecord:
    """The record in ``folder`` whose case id is ``text``, or the only one whose id contains it. Raises
    :class:`CommandError`."""
    exact: list[CaseRecord] = []
    others: list[CaseRecord] = []
    count = 0
    for record in records_with(text, folder):
        if record.case == text:
            exact.append(record)
        else:
            count += 1
            others += [record] if count <= CASES_SHOWN else []
    records, count = (exact, len(exact)) if exact else (others, count)
    if count == 1:
        return records[0]
    if not records:
        raise CommandError(f"no record in {folder} has {text!r} in its case id{_near(text, folder)}")
    listed = "\n".join(f"  {record.status.value:15} {one_line(record.case)}" for record in records)
    raise CommandError(f"{count} cases match {text!r}; give more of the id:\n{listed}")


def _near(text: str, folder: Path) -> str:
    """Advice if a case of the same test, or another test of the same file, was probably meant."""
    parts = (text.partition("[")[0] + "[", text.partition("::")[0] + "::") if "::" in text else ()
    for part in parts:
        with command_errors(OSError):
            records = (
                record for file in files_to_read(folder) for record, _, _ in each_record(file, LineProblems(), part)
            )
            cases = [record.case for record in islice(records, CASES_COMPARED)]
        for near in difflib.get_close_matches(text, cases, n=1):
            return f"; did you mean {near}?"
    return ""


def complain(problems: Sequence[str]) -> None:
    """Prints the first problem, and how many more there are: a file of another kind has one in each line."""
    unlisted = re.fullmatch(r"(\d+) more problems are not listed", problems[-1]) if problems else None
    others = len(problems) - 2 + int(unlisted[1]) if unlisted else len(problems) - 1
    for problem in problems[:1]:
        more = f"; {others} more problems" if others else ""
        print(f"conformance: {one_line(problem)}{more}", file=sys.stderr)
