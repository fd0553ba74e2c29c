"""A run that was cut off: its process was killed, or died without workers, so that its records were not merged.

While a run goes on, each of its processes keeps the record that would be right if it died now. What is left of them
names the cases that ran at the end.
"""

from __future__ import annotations

import os
from pathlib import Path

from conformance.records import CaseRecord, LineProblems, each_record, first_of, plain_file, read_run

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
