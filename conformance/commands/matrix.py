"""``conformance matrix``: the gate for every pair that a file of stacks asks for."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.commands import command_errors, write_output
from conformance.commands.shared import history_options
from conformance.commands.shared.gate_runs import Stages, add_options, new_output, report_pair, run_stacks
from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.stacks.stack_file import StackError, read_matrix
from conformance.reporting import matrix_page
from conformance.reporting.first_line import answer, narrowing_text
from conformance.reporting.text import text_table

#: The page of all stacks, next to the reports of the pairs.
PAGE = "index.html"

HELP = "Run the stacks that a file describes, and compare them pair by pair."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", type=Path, help="stacks.toml: [stack.NAME] tables, see docs/gate.md")
    add_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Runs every stack and compares the pairs. Returns the largest exit status of a pair: 0 if all are safe. Raises
    :class:`CommandError` if the file cannot be used."""
    with command_errors(StackError):
        matrix = read_matrix(arguments.file)
    earlier_answers = history_options.earlier_answers(arguments)
    history_options.warn_of_unused(earlier_answers, matrix.pairs)
    names = [stack.name for stack in matrix.stacks]
    baselines = {names.index(baseline) for baseline, _ in matrix.pairs}
    stages = Stages(2 * len(names) + len(matrix.pairs) + len(baselines) * (arguments.baseline_runs - 1))
    runs = {run.environment.stack.name: run for run in run_stacks(arguments, matrix.stacks, stages, baselines)}
    output = arguments.output or new_output()
    rows, answers, worst = [["baseline", "candidate", "answer"]], [], 0
    for number, names_of_pair in enumerate(matrix.pairs, 1):
        pair = runs[names_of_pair[0]], runs[names_of_pair[1]]
        baseline, candidate = (run.name for run in pair)  # with what each stack brings
        of_pair = [one for one in earlier_answers if one.is_about(baseline, candidate)]
        issues = arguments.issues / f"{number:02}" if arguments.issues else None
        status, comparison = report_pair(arguments, *pair, output / f"{number:02}", stages, of_pair, issues)
        why, report = answer(comparison), f"{number:02}/report.html"
        rows.append([baseline, candidate, why])
        reach = narrowing_text(comparison)
        answers.append(matrix_page.PairAnswer(baseline, candidate, status == 0, report, why, reach, status != 2))
        worst = max(worst, status)
    sides = [read_compared_run(stack.folder, stack.name) for stack in runs.values()]
    write_output(output / PAGE, matrix_page.render(sides, answers))
    print(text_table(rows))
    return worst
