"""The options for the user's waivers, mustpass lists and profiles, and the verdict on a run by them."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

from conformance import targets
from conformance.commands import CommandError
from conformance.gate.findings import Comparison
from conformance.gate.mustpass import mustpass_check, mustpass_lists, profiles
from conformance.gate.user_files import waiver_file
from conformance.gate.user_files.toml_entries import EntryError
from conformance.gate.verdict import apply_waivers, gate_verdict
from conformance.gate.verdict.final_comparison import with_policy
from conformance.records import CaseRecord, RecordError, RunInfo, Status, read_records, read_run


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--waivers", metavar="FILE", type=Path, help="regressions that are accepted (waivers.toml)")
    parser.add_argument("--mustpass", metavar="DIR", type=Path, help="lists of what is owed; claims are judged by them")
    parser.add_argument("--profiles", metavar="FILE", type=Path, action="append", default=[], help="more claims")


def read(folder: Path) -> tuple[RunInfo, tuple[CaseRecord, ...], tuple[str, ...]]:
    """A run's information and records, and its problems, a sentence each. Raises :class:`CommandError`."""
    try:
        info, reading = read_run(folder), read_records(folder)
    except (OSError, ValueError) as error:
        what = "" if isinstance(error, RecordError) else "no run can be read there: "
        raise CommandError(f"{folder}: {what}{error}") from None
    return info, reading.records, (*info.problems, *reading.problems)


def refuse_unusable(arguments: argparse.Namespace) -> None:
    """Raises :class:`CommandError` for waivers, lists and profiles that cannot be used. Asked before a run."""
    if arguments.profiles and not arguments.mustpass:
        raise CommandError("--profiles needs --mustpass: claims are judged by the lists of what is owed")
    _files(arguments.waivers, arguments.mustpass, arguments.profiles)


def after_waivers(arguments: argparse.Namespace, comparison: Comparison, candidate: Path) -> Comparison:
    """``comparison`` after the waivers, lists and claims that the user gave had their say; itself without any."""
    if not (arguments.waivers or arguments.mustpass):
        return comparison
    info, records, _ = read(candidate)
    verdict, waived = verdict_of(
        info, records, arguments.waivers, arguments.mustpass, arguments.profiles, comparison=comparison
    )
    return with_policy(comparison, verdict, waived.uncovered)


def verdict_of(
    info: RunInfo,
    records: Sequence[CaseRecord],
    waiver_path: Path | None,
    lists_folder: Path | None,
    profile_paths: Sequence[Path],
    run_problems: Sequence[str] = (),
    comparison: Comparison | None = None,
) -> tuple[gate_verdict.GateVerdict, apply_waivers.AppliedWaivers]:
    """The verdict on a run by the user's waivers, lists and profiles, and what the waivers cover. Without lists no
    claim is judged. Raises :class:`CommandError` for files that cannot be used."""
    waivers, lists, known = _files(waiver_path, lists_folder, profile_paths)
    try:
        complete = lists is not None and mustpass_check.check(lists, info, records).complete
        chosen = mustpass_check.applicable(lists or (), info, records)
    except mustpass_lists.MustpassError as error:
        raise CommandError(error) from None
    today = datetime.now(timezone.utc).date()
    waived = apply_waivers.apply(waivers, records, today, comparison, complete=complete)
    verdict = gate_verdict.decide(
        comparison=comparison,
        waivers=waived,
        checked=None if lists is None else mustpass_check.check(lists, info, records, waived.excused),
        claims=() if lists is None else profiles.claims(known, chosen, records, waived.excused),
        not_claimed=profiles.not_claimed(known, chosen, records),
        run_problems=run_problems,
        passing=[record.case for record in records if record.status is Status.PASS],
    )
    return verdict, waived


def _files(
    accepted: Path | None, lists: Path | None, more_profiles: Sequence[Path]
) -> tuple[waiver_file.Waivers, list[mustpass_lists.MustpassList] | None, profiles.Profiles]:
    try:
        return (
            waiver_file.read_waivers(accepted) if accepted else waiver_file.Waivers(),
            mustpass_lists.read_lists(lists) if lists else None,
            profiles.read_profiles(more_profiles, targets.claims()),
        )
    except (mustpass_lists.MustpassError, EntryError) as error:
        raise CommandError(error) from None
