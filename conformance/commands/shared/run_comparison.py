"""Compares the folders of two runs, for the commands that need it."""

from __future__ import annotations

from pathlib import Path

from conformance.commands import CommandError, command_errors
from conformance.gate.runs.run_reader import ComparedRun, read_compared_run, without_collection
from conformance.gate.verdict.compare import compare
from conformance.records import RecordError
from conformance.user_files.findings import Comparison
from conformance.user_files.thresholds import UNMOVED, Tables


@without_collection()
def compared(
    baseline: Path, candidate: Path, names: tuple[str, str] | None = None, thresholds: Tables = UNMOVED
) -> Comparison:
    """The comparison of two runs' folders, or files of records, called by ``names``, or by their paths. Raises
    :class:`CommandError`."""
    called = names or (str(baseline), str(candidate))
    before, after = _side(baseline, called[0]), _side(candidate, called[1])
    comparison = compare(before, after, thresholds)
    if not (comparison.regressions or comparison.compared or comparison.broken):
        why = "; ".join((*before.problems[:1], *after.problems[:1])) or "no usable case is in both runs"
        raise CommandError(f"nothing could be compared: {why}: give two runs of the same suites")
    return comparison


def _side(path: Path, name: str) -> ComparedRun:
    with command_errors(OSError, RecordError):
        side = read_compared_run(path, name)
    if not side.records and path.is_file():
        raise CommandError(f"{path} holds no record: {(*side.problems, 'it is empty')[0]}")
    if not side.records and not side.problems:
        raise CommandError(f"{path} holds no case: a run without records cannot be compared")
    return side
