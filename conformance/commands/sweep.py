"""``conformance sweep``: what a sweep over config spaces showed."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from conformance.commands import CommandError
from conformance.commands.shared.case_lookup import run_records
from conformance.reporting import sweep

HELP = "Show what a sweep over config spaces found, from its records."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="DIR", type=Path, nargs="?", help="the run's folder (default: the newest under ./reports)"
    )
    parser.add_argument("--spills", action="store_true", help="only the lines that declare the spills that were seen")


def run(arguments: argparse.Namespace) -> int:
    """Raises :class:`CommandError` for a run without the suite of the sweep."""
    folder, reading = run_records(arguments.run)
    rows = sweep.rows(reading.records)
    if not rows:
        raise CommandError(f"{folder} has no record of the suite {sweep.SUITE}: run it with --suite {sweep.SUITE}")
    if arguments.spills:
        for line in sweep.spilling(rows):
            print(line)
        return 0
    for title, text in (
        ("Rows", sweep.outcomes(rows)),
        ("Fastest", sweep.fastest(rows)),
        ("Shared memory: estimate / compiler", sweep.estimates(rows)),
    ):
        print(f"## {title}\n\n{text}\n")
    print(sweep.verdict(rows))
    print(f"all cases as a page: conformance report {shlex.quote(str(folder))}")
    return 0
