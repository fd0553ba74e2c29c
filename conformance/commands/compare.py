"""``conformance compare BASELINE CANDIDATE``: may the stack of one run replace that of another?"""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.commands import CommandError
from conformance.commands.shared import history_options, policy_options
from conformance.commands.shared.comparison_output import STDOUT, WRITERS, deliver
from conformance.commands.shared.history_options import write_issues
from conformance.commands.shared.policy_options import compared
from conformance.gate.verdict.known_findings import with_known

HELP = "Compare two runs: what broke, what was fixed, what changed."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("baseline", metavar="BASELINE", type=Path, help="a run's folder, or a file of records")
    parser.add_argument("candidate", metavar="CANDIDATE", type=Path, help="the run that is to replace it")
    policy_options.add_threshold_option(parser)
    policy_options.add_options(parser)
    history_options.add_options(parser)
    for option, (what, _) in WRITERS.items():
        parser.add_argument(f"--{option}", metavar="FILE", help=f"write {what} there; - is the standard output")


def run(arguments: argparse.Namespace) -> int:
    """Compares, writes the files that the options name, and prints the comparison unless one of them is the standard
    output. Returns 0 if the candidate is safe, 1 if not. Raises :class:`CommandError`."""
    files = {option: getattr(arguments, option) for option in WRITERS if getattr(arguments, option)}
    if list(files.values()).count(STDOUT) > 1:
        raise CommandError("only one of the outputs can be the standard output: give a FILE to the others")
    policy_options.refuse_unusable(arguments)
    earlier_answers = history_options.earlier_answers(arguments)
    history_options.refuse_unusable(arguments)
    comparison = compared(arguments.baseline, arguments.candidate, thresholds=policy_options.thresholds(arguments))
    comparison = policy_options.after_waivers(arguments, comparison, arguments.candidate)
    comparison = with_known(comparison, earlier_answers)
    if arguments.issues and not comparison.broken:
        write_issues(comparison, arguments.candidate, arguments.issues)
    return deliver(comparison, arguments.baseline, arguments.candidate, files)
