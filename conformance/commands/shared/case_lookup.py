"""Finds a run's records, and the one case that a user's text names."""

from __future__ import annotations

import sys
from pathlib import Path

from conformance.commands import CommandError, command_errors
from conformance.records import RUN_FILE, CaseRecord, Reading, RecordError, read_records, read_run
from conformance.reporting.text import clean


@command_errors(OSError)
def records_in(folder: Path) -> Reading:
    """The records of the run in ``folder``. Raises :class:`CommandError` if there are none."""
    return read_records(folder)


def run_records(run: Path | None) -> tuple[Path, Reading]:
    """The folder of a run and its records; the newest run below ``reports`` if ``run`` is None. What is wrong with the
    records goes to stderr. Raises :class:`CommandError` if there are none."""
    folder = run or _newest_run(Path("reports"))
    reading = records_in(folder)
    for problem in reading.problems:
        print(f"conformance: {clean(problem)}", file=sys.stderr)
    return folder, reading


def _newest_run(reports: Path) -> Path:
    """The folder below ``reports`` whose run started last."""
    runs = []
    for file in reports.glob(f"*/{RUN_FILE}"):
        try:
            runs.append((read_run(file.parent).started, file.parent))
        except (OSError, RecordError) as error:
            print(f"conformance: {file}: {clean(str(error))}", file=sys.stderr)
    if not runs:
        raise CommandError(f"no run lies under {reports.resolve()}: give --run DIR, or run the suites first")
    return max(runs)[1]


def one_case(text: str, reading: Reading, folder: Path) -> CaseRecord:
    """The record whose case id is ``text``, or the only one whose id contains it. Raises :class:`CommandError`."""
    exact = [record for record in reading.records if record.case == text]
    records = exact or [record for record in reading.records if text in record.case]
    if len(records) == 1:
        return records[0]
    if not records:
        raise CommandError(f"none of the {len(reading.records)} records in {folder} has {text!r} in its case id")
    lines = "\n".join(f"  {record.status.value:15} {clean(record.case)}" for record in records[:50])
    raise CommandError(f"{len(records)} cases match {text!r}; give more of the id:\n{lines}")
