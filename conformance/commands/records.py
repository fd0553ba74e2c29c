"""``conformance records RUN``: the records of a run as lines of JSON."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from conformance.case_record import SCHEMA, schema_of
from conformance.commands import CommandError
from conformance.commands.shared.case_lookup import complain
from conformance.gate.runs.run_reader import cut_off
from conformance.records import LineProblems, each_record, files_to_read

HELP = "Print the records of a run as lines of JSON, for jq and other programs."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "run", metavar="RUN", type=Path, help="the run's folder, or a file with its records, compressed or not"
    )


def run(arguments: argparse.Namespace) -> int:
    """Prints each record with the field names of this version. Returns 0, or 1 if lines cannot be used: stderr has the
    reason. Raises :class:`CommandError` if there is no record at all."""
    problems = LineProblems()
    count = 0
    try:
        for file in files_to_read(arguments.run):
            for record, _, line in each_record(file, problems):
                count += 1
                own = b"\\ud" not in line and schema_of(line) == SCHEMA  # older versions wrote lone surrogates
                sys.stdout.buffer.write(line.rstrip(b"\r\n") + b"\n" if own else record.to_line().encode())
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise CommandError(error) from None
    if problems.count and not count:
        raise CommandError(f"{arguments.run} holds no records: {problems.sentences[0]}")
    unfinished = cut_off(arguments.run, count)
    complain([*([f"{arguments.run}: {unfinished}"] if unfinished else ()), *problems.sentences])
    return 1 if problems.count else 0
