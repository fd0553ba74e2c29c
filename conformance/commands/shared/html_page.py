"""The HTML report of runs' folders."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from conformance.commands import CommandError
from conformance.commands.shared.case_lookup import records_in
from conformance.records import read_run
from conformance.reporting.html import render
from conformance.reporting.html_data import ReportedRun
from conformance.user_files.findings import Comparison


def page(
    comparison: Comparison | None, baseline: Path | None, candidate: Path, artefacts_below: Sequence[Path] = ()
) -> str:
    """The page of the run ``candidate``, with what changed since ``baseline`` if there is a comparison."""
    return render(_read(candidate), _read(baseline) if baseline else None, comparison, artefacts_below)


def _read(folder: Path) -> ReportedRun:
    if not folder.is_dir():
        raise CommandError(f"{folder} is no run's folder: give the folder that holds the records")
    reading = records_in(folder)
    try:
        return ReportedRun(folder, reading, read_run(folder))
    except (OSError, ValueError) as error:  # a RecordError is one, and so is text that is not UTF-8
        return ReportedRun(folder, dataclasses.replace(reading, problems=(f"run.json: {error}", *reading.problems)))
