"""Two runs' folders to a comparison, for the commands that need one."""

from __future__ import annotations

import gc
from pathlib import Path

from conformance.commands import CommandError
from conformance.gate.comparing import compare
from conformance.gate.findings import Comparison
from conformance.gate.reading import SideReading, read_side
from conformance.records import RecordError


def compared(baseline: Path, candidate: Path, names: tuple[str, str] | None = None) -> Comparison:
    """The comparison of two runs' folders, or files of records, called by their paths unless given ``names``. Raises
    :class:`CommandError`."""
    called = names or (str(baseline), str(candidate))
    gc.disable()  # searching 200,000 records for cycles takes a second
    try:
        return compare(_side(baseline, called[0]), _side(candidate, called[1]))
    finally:
        gc.freeze()
        gc.enable()


def _side(path: Path, name: str) -> SideReading:
    try:
        side = read_side(path, name)
    except (OSError, RecordError) as error:
        raise CommandError(str(error)) from None
    if not side.entries and not side.problems:
        raise CommandError(f"{path} holds no case: a run without records cannot be compared")
    return side
