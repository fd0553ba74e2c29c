"""The options by which a comparison looks at earlier answers, and by which it leaves issues for its causes."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from conformance.commands import command_errors
from conformance.commands.shared.issue_files import issue_folder
from conformance.gate.earlier_answer import EarlierAnswer, EarlierAnswerError, read_earlier_answer
from conformance.reporting.text import log_safe


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--known",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="an earlier answer (comparison.json): say of each cause whether it is new (repeatable)",
    )
    parser.add_argument(
        "--issues",
        metavar="DIR",
        type=Path,
        help="a new folder for an issue for each cause of regressions, to be filed",
    )


@command_errors(EarlierAnswerError)
def earlier_answers(arguments: argparse.Namespace) -> list[EarlierAnswer]:
    """The earlier answers that the user gave. Raises :class:`CommandError`."""
    return [read_earlier_answer(file) for file in arguments.known]


def warn_of_unused(answers: Iterable[EarlierAnswer], pairs: Sequence[tuple[str, str]]) -> None:
    """Prints which of the earlier answers compare none of ``pairs`` of stacks, so that they are not used."""
    for one in answers:
        if not any(one.is_about(*pair) for pair in pairs):
            sides = f"{one.stacks[1]} with {one.stacks[0]}"
            text = f"--known {one.file}: it is not used: it compares {sides}, which is no pair of the matrix"
            print(log_safe(text), file=sys.stderr)


def refuse_unusable(arguments: argparse.Namespace) -> None:
    """Raises :class:`CommandError` for an earlier answer that cannot be read, and for a folder of issues that is not
    new. Asked before a run."""
    earlier_answers(arguments)
    if arguments.issues:
        issue_folder(arguments.issues)
