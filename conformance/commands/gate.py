"""``conformance gate``: may the candidate's stack replace the baseline's? Builds both, runs both, compares."""

from __future__ import annotations

import argparse

from conformance.commands import command_errors
from conformance.commands.shared import history_options
from conformance.commands.shared.gate_runs import Stages, add_options, make, new_output, report_pair, run_stacks
from conformance.commands.shared.watched_runs import refuse_unusable, watched_runs
from conformance.gate.stacks.stack_file import CURRENT, StackError, parse

HELP = "Run two stacks and say whether one may replace the other."


def configure(parser: argparse.ArgumentParser) -> None:
    stack = (
        "such as 'triton==3.9.0', 'torch==2.14.1', a wheel's path, 'site=/folder/of/packages', 'ptxas==12.9', several "
        "of them with spaces between, or 'current'"
    )
    parser.add_argument("--baseline", metavar="STACK", default=CURRENT, help=f"what runs today, {stack} (the default)")
    parser.add_argument("--candidate", metavar="STACK", required=True, help=f"what is to replace it, {stack}")
    parser.add_argument(
        "--watch",
        metavar="'pytest ...'",
        help="watch this suite of yours with both stacks, in place of the harness's own suites",
    )
    add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs both stacks and compares. Returns 0 if the candidate is safe, 1 if not. Raises :class:`CommandError`."""
    with command_errors(StackError):
        stacks = parse(arguments.baseline), parse(arguments.candidate)
    earlier_answers = history_options.earlier_answers(arguments)
    if arguments.watch is not None:
        words = refuse_unusable(arguments)
        arguments.no_age, arguments.reproducers = True, 0  # both are about cases of the harness
        output, stages = arguments.output or new_output(), Stages(2 * len(stacks) + 1)
        make(output)
        baseline, candidate = watched_runs(arguments, stacks, output, words, stages)
        return report_pair(arguments, baseline, candidate, output, stages, earlier_answers, arguments.issues)[0]
    stages = Stages(2 * len(stacks) + arguments.baseline_runs)
    baseline, candidate = run_stacks(arguments, stacks, stages, baselines=(0,))
    output = arguments.output or new_output()
    return report_pair(arguments, baseline, candidate, output, stages, earlier_answers, arguments.issues)[0]
