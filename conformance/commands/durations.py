"""``conformance durations RUN... --output FILE``: figures by which shards are cut."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from pathlib import Path

from conformance.commands import CommandError, command_errors, write_output
from conformance.records import CaseRecord, LineProblems, each_record, files_to_read
from conformance.shards.durations import DurationsError, file_text

HELP = "Write how long cases took, for --durations-from."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("runs", metavar="RUN", type=Path, nargs="+", help="a run's folder, or a file of records")
    parser.add_argument(
        "--output",
        metavar="FILE",
        type=Path,
        required=True,
        help="the .json file; figures that it has stay where the runs have none",
    )


def run(arguments: argparse.Namespace) -> int:
    """Writes the median for each test and kernel. Returns 0. Raises :class:`CommandError` for runs that cannot be
    read."""
    output: Path = arguments.output
    if output.suffix != ".json":
        raise CommandError(
            f"--output {output}: a name that ends with .json is required, by which --durations-from knows it"
        )
    with command_errors(OSError, DurationsError):
        text = file_text(_records(arguments.runs), output if output.exists() else None)
    write_output(output, text)
    return 0


def _records(runs: Sequence[Path]) -> Iterator[CaseRecord]:
    problems = LineProblems()
    for path in runs:
        if path.suffix == ".json":
            raise DurationsError(
                f"{path}: a run's folder or a file of records is required; --output may name such a file"
            )
        for file in files_to_read(path):
            for placed in each_record(file, problems):
                yield placed.record
            if problems.count:
                raise DurationsError(f"{path} is damaged: {problems.sentences[0]}")
