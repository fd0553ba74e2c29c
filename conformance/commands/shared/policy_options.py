"""The options for the user's thresholds, waivers, mustpass lists and profiles, and the verdict on a run by them.

The folders of two runs are compared here for the commands that need it.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from conformance import targets
from conformance.commands import CommandError, command_errors
from conformance.gate.mustpass import mustpass_check, mustpass_lists, profiles
from conformance.gate.runs.judged_records import judged_records
from conformance.gate.runs.run_reader import ComparedRun, read_compared_run, without_collection
from conformance.gate.verdict import apply_waivers, gate_verdict
from conformance.gate.verdict.compare import compare
from conformance.gate.verdict.gate_verdict import with_policy
from conformance.records import CaseRecord, RecordError, RunInfo, Status, read_records, read_run
from conformance.user_files import thresholds as threshold_file
from conformance.user_files import waiver_file
from conformance.user_files.findings import Comparison
from conformance.user_files.thresholds import UNMOVED, Tables
from conformance.user_files.toml_entries import EntryError


def add_options(parser: argparse.ArgumentParser, lists: Path | None = None) -> None:
    """Adds the options of which :func:`verdict_of` makes a verdict. ``lists``: the folder of lists unless given."""
    parser.add_argument("--waivers", metavar="FILE", type=Path, help="regressions that are accepted (waivers.toml)")
    parser.add_argument(
        "--mustpass",
        metavar="DIR",
        type=Path,
        default=lists,
        help=f"lists of what is owed; claims are judged by them{' (default: those of the package)' if lists else ''}",
    )
    parser.add_argument("--profiles", metavar="FILE", type=Path, action="append", default=[], help="more claims")


def add_threshold_option(parser: argparse.ArgumentParser) -> None:
    """Adds the option of which :func:`thresholds` are read."""
    parser.add_argument(
        "--thresholds", metavar="FILE", type=Path, help="what is a difference, and a regression (thresholds.toml)"
    )


@command_errors(EntryError)
def thresholds(arguments: argparse.Namespace) -> Tables:
    """Returns the thresholds that the user's file says, none without a file. Raises :class:`CommandError`."""
    return threshold_file.read_thresholds(arguments.thresholds) if arguments.thresholds else UNMOVED


def read(folder: Path) -> tuple[RunInfo, Sequence[CaseRecord], tuple[str, ...]]:
    """A run's information, what a verdict needs of its records, and its problems, a sentence each. Raises
    :class:`CommandError`."""
    try:
        info, reading = read_run(folder), read_records(folder)
    except (OSError, ValueError) as error:
        what = "" if isinstance(error, RecordError) else "no run can be read there: "
        raise CommandError(f"{folder}: {what}{error}") from None
    return info, judged_records(reading.records), (*info.problems, *reading.problems)


def refuse_unusable(arguments: argparse.Namespace) -> None:
    """Raises :class:`CommandError` for waivers, lists and profiles that cannot be used. Asked before a run."""
    if arguments.profiles and not arguments.mustpass:
        raise CommandError("--profiles needs --mustpass: claims are judged by the lists of what is owed")
    _files(arguments)


def after_waivers(arguments: argparse.Namespace, comparison: Comparison, candidate: Path) -> Comparison:
    """``comparison`` with the user's waivers, lists and claims applied; itself if there are none."""
    if not (arguments.waivers or arguments.mustpass):
        return comparison
    info, records, _ = read(candidate)
    verdict, waived = verdict_of(arguments, info, records, comparison=comparison)
    return with_policy(comparison, verdict, waived.uncovered)


@command_errors(mustpass_lists.MustpassError)
def verdict_of(
    arguments: argparse.Namespace,
    info: RunInfo,
    records: Sequence[CaseRecord],
    run_problems: Sequence[str] = (),
    comparison: Comparison | None = None,
) -> tuple[gate_verdict.GateVerdict, apply_waivers.AppliedWaivers]:
    """The verdict on a run by the files of the user's options, and what the waivers cover. Without lists no claim is
    judged. Raises :class:`CommandError` for files that cannot be used."""
    waivers, lists, known_profiles = _files(arguments)
    complete = lists is not None and mustpass_check.check(lists, info, records).complete
    chosen = mustpass_check.applicable(lists or (), info, records)
    today = datetime.now(timezone.utc).date()
    waived = apply_waivers.apply(waivers, records, today, comparison, complete=complete)
    verdict = gate_verdict.decide(
        comparison=comparison,
        waivers=waived,
        checked=None if lists is None else mustpass_check.check(lists, info, records, waived.excused),
        claims=() if lists is None else profiles.claims(known_profiles, chosen, records, waived.excused),
        not_claimed=profiles.not_claimed(known_profiles, chosen, records),
        run_problems=run_problems,
        passing=[record.case for record in records if record.status is Status.PASS],
    )
    return verdict, waived


@command_errors(mustpass_lists.MustpassError, EntryError)
def _files(
    arguments: argparse.Namespace,
) -> tuple[waiver_file.Waivers, list[mustpass_lists.MustpassList] | None, profiles.Profiles]:
    return (
        waiver_file.read_waivers(arguments.waivers) if arguments.waivers else waiver_file.Waivers(),
        mustpass_lists.read_lists(arguments.mustpass) if arguments.mustpass else None,
        profiles.read_profiles(arguments.profiles, targets.claims()),
    )


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
