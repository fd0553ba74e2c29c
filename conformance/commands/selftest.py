"""``conformance selftest``: plants faults on this machine and shows that each is contained and reported."""

from __future__ import annotations

import argparse
import os
import signal
import sys
import textwrap
from datetime import datetime, timezone
from pathlib import Path

from conformance.commands import CommandError
from conformance.gate.evidence.selftest_result import SELFTEST_FILE, FaultResult, SelftestResult, to_json
from conformance.machine.gpus import find_gpus
from conformance.machine.near_names import did_you_mean
from conformance.records import replace_file
from conformance.reporting.text import clean
from conformance.selftest.faults import FAULTS, PlantedFault
from conformance.selftest.planting import NotPlantable
from conformance.selftest.session import CannotRun, Selftest

HELP = "Plant faults on this machine, and show that each is contained and reported."

CONTAINED, NOT_CONTAINED = 0, 1
#: Columns of a line of the terminal.
_WIDTH = 118


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--list", action="store_true", help="print the faults and how each must be reported")
    parser.add_argument("--fault", metavar="NAME", action="append", default=[], help="only this fault, repeatable")
    parser.add_argument("--no-gpu", action="store_true", help="use no GPU, and leave out the faults that need one")
    parser.add_argument(
        "--output",
        metavar="DIR",
        type=Path,
        help="new folder for the result and the runs (default: reports/selftest-...)",
    )
    parser.epilog = (
        "Exit status: 0 if each fault that was run was contained and reported as it must be; 1 if one was not; 2 if "
        "the self-test could not be made."
    )


def run(arguments: argparse.Namespace) -> int:
    """Returns 0 if each fault that was run was contained and reported, else 1. Raises :class:`CommandError` for an
    unevery_name fault, for a folder that is not new, and where a run cannot begin."""
    faults = _chosen(arguments.fault)
    if arguments.list:
        for fault in faults:
            print(f"{fault.name}{' (needs a GPU)' * fault.device}: {fault.planted}\n    expected: {fault.expected}")
        return CONTAINED
    folder = _new_folder(arguments.output)
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))  # the run is ended, too
    try:
        result = Selftest(faults, find_gpus(0 if arguments.no_gpu else None), folder).run()
        replace_file(folder / SELFTEST_FILE, to_json(result).decode())
    except (CannotRun, NotPlantable, OSError, ValueError) as error:
        raise CommandError(error) from None
    print(clean("\n".join(_table(result))))
    for row in result.faults:
        for problem in row.problems:
            print(clean(f"{row.name}: {problem}"))
    print(clean(f"{result}, in {result.seconds:.0f} s; the result is in {folder / SELFTEST_FILE}"))
    return CONTAINED if result.contained else NOT_CONTAINED


def _chosen(names: list[str]) -> list[PlantedFault]:
    every_name = [fault.name for fault in FAULTS]
    for name in names:
        if name not in every_name:
            raise CommandError(f"--fault {name}: there is no such fault; {did_you_mean(name, every_name)}")
    return [fault for fault in FAULTS if fault.name in (names or every_name)]


def _new_folder(output: Path | None) -> Path:
    moment = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    folder = output or Path("reports") / f"selftest-{moment}-{os.urandom(2).hex()}"
    try:
        if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
            raise CommandError(f"--output {folder}: exists and is not an empty folder; give a new one")
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise CommandError(f"--output {folder}: {error}") from None
    return folder


def _table(result: SelftestResult) -> list[str]:
    """Returns the lines of the table: two or more for each fault."""
    rows = [("fault", "expected", "observed", "innocent", "contained", "s"), *map(_row, result.faults)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    planted = [textwrap.wrap(fault.not_run or fault.planted, _WIDTH, initial_indent="    ", subsequent_indent="    ")
               for fault in result.faults]  # fmt: skip
    return [lines[0], *(text for line, more in zip(lines[1:], planted, strict=True) for text in (line, *more))]


def _row(fault: FaultResult) -> tuple[str, ...]:
    observed = f"{fault.observed}{f' by {fault.check}' if fault.check else ''}"
    contained = "not run" if fault.not_run else "yes" if fault.contained else "NO"
    passed = "" if fault.not_run else f"{fault.passed} of {fault.innocent}"
    return fault.name, fault.expected, observed, passed, contained, f"{fault.seconds:.1f}"
