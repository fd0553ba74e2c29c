"""Two runs' folders to a comparison, for the commands that need one."""

from __future__ import annotations

import gc
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from conformance.commands import CommandError
from conformance.gate.comparing import compare
from conformance.gate.findings import Comparison
from conformance.gate.reading import SideReading, read_side
from conformance.records import RecordError, record_files
from conformance.reporting.text import clean

#: Bytes of records from which on the two runs are read beside each other: to start a process takes a third of a second.
LARGE = 50_000_000


def compared(baseline: Path, candidate: Path, names: tuple[str, str] | None = None) -> Comparison:
    """The comparison of two runs' folders, or files of records, called by their paths unless given ``names``. Raises
    :class:`CommandError`."""
    called = names or (str(baseline), str(candidate))
    gc.disable()  # searching 200,000 records for cycles takes a second
    try:
        if _size(candidate) < LARGE:
            return _compared(_side(baseline, called[0]), _side(candidate, called[1]))
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
            reading = pool.submit(_side, candidate, called[1])  # while this process reads the other
            first = _side(baseline, called[0])
            return _compared(first, reading.result())
    finally:
        gc.freeze()
        gc.enable()


def _compared(baseline: SideReading, candidate: SideReading) -> Comparison:
    found = compare(baseline, candidate)
    if found.safe and not found.compared:
        said = "; ".join((*baseline.problems[:1], *candidate.problems[:1])) or "no usable case is in both runs"
        raise CommandError(clean(f"nothing could be compared: {said}: give two runs of the same suites"))
    return found


def _size(path: Path) -> int:
    try:
        return sum(file.stat().st_size for file in (record_files(path) if path.is_dir() else [path]))
    except OSError:
        return 0  # what is wrong with it is said when it is read


def _side(path: Path, name: str) -> SideReading:
    try:
        side = read_side(path, name)
    except (OSError, RecordError) as error:
        raise CommandError(str(error)) from None
    if not side.entries and not side.problems:
        raise CommandError(f"{path} holds no case: a run without records cannot be compared")
    return side
