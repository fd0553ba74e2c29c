"""The durations of each case in the runs that lie next to this one."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from conformance.records import PACKED_FILE, RECORDS_FILE, RUN_FILE, LineProblems, each_record, record_files

#: Runs that are read, the newest first, and the most bytes of each one's records by the file that has them.
RUNS_READ = 3
BYTES_READ = {PACKED_FILE: 25_000_000, RECORDS_FILE: 250_000_000}


@dataclass(frozen=True)
class EarlierDurations:
    """``seconds`` of each case in the newest run that has it; ``run`` is the newest run's name, None if there is no
    earlier run in the folder."""

    beside: Path
    run: str | None = None
    seconds: dict[str, float] = field(default_factory=dict)


def earlier_durations(folder: Path) -> EarlierDurations:
    """Returns the durations in the newest runs next to ``folder``. Whatever cannot be read is passed over."""
    seconds: dict[str, float] = {}
    newest: str | None = None
    for run in _runs(folder)[:RUNS_READ]:
        try:
            records = [placed.record for file in record_files(run) for placed in each_record(file, LineProblems())]
        except OSError:
            continue
        durations = {record.case: record.durations["total"] for record in records if "total" in record.durations}
        if durations:
            newest = newest or run.name
        seconds = {**durations, **seconds}
    return EarlierDurations(folder.parent, newest, seconds)


def _runs(folder: Path) -> list[Path]:
    """Returns the folders of runs next to ``folder`` that have records of a bearable size, the newest first."""
    runs = []
    try:
        for run in folder.parent.iterdir():
            merged = [file for file in record_files(run) if file.name in BYTES_READ and file.is_file()]
            if run != folder and merged and merged[0].stat().st_size <= BYTES_READ[merged[0].name]:
                runs.append(((run / RUN_FILE if (run / RUN_FILE).is_file() else merged[0]).stat().st_mtime, run))
    except OSError:
        pass  # a folder that went away, or one that cannot be listed
    return [run for _, run in sorted(runs, reverse=True)]
