"""``conformance gate``: may the candidate's stack replace the baseline's? Builds both, runs both, compares."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.commands import CommandError
from conformance.commands.shared.gate_runs import Gate, add_options, gate_of, report_pair
from conformance.gate.stacks.stack_file import CURRENT, StackError, parse
from conformance.gate.stacks.stack_runs import RunError

HELP = "Run two stacks and say whether one may replace the other."


def configure(parser: argparse.ArgumentParser) -> None:
    stack = (
        "such as 'triton==3.9.0', 'torch==2.14.1', a wheel's path, 'site=/folder/of/packages', 'ptxas==12.9', several "
        "of them with spaces between, or 'current'"
    )
    parser.add_argument("--baseline", metavar="STACK", default=CURRENT, help=f"what runs today, {stack} (the default)")
    parser.add_argument("--candidate", metavar="STACK", required=True, help=f"what is to replace it, {stack}")
    add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    try:
        gate: Gate = gate_of(arguments, (parse(arguments.baseline), parse(arguments.candidate)))
        baseline, candidate = gate.runs()
    except (StackError, RunError, OSError) as error:  # OSError: such as a cache that cannot be written
        raise CommandError(error) from None
    return report_pair(
        arguments, baseline, candidate, Path(arguments.output) if arguments.output else gate.new_output()
    )
