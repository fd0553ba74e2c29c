"""``conformance report``: writes a run's HTML report, with what changed if a baseline is given."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.commands import write_output
from conformance.commands.shared import policy_options
from conformance.commands.shared.comparison_output import page
from conformance.commands.shared.policy_options import compared

FILE = "report.html"


HELP = "Write a run's HTML report, with what changed if a baseline is given."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("run", metavar="RUN", type=Path, help="the run's folder")
    parser.add_argument("--baseline", metavar="RUN", type=Path, help="an earlier run's folder: show what changed since")
    policy_options.add_threshold_option(parser)
    parser.add_argument("--output", metavar="FILE", type=Path, help=f"where to write the page (default: {FILE} in RUN)")
    parser.add_argument(
        "--artefacts-below",
        metavar="DIR",
        type=Path,
        action="append",
        default=[],
        help="also embed artefacts that lie below DIR, such as your own compile cache; may be repeated. "
        "Without it only those in the runs' folders are: the record of another machine may name any file",
    )


def run(arguments: argparse.Namespace) -> int:
    thresholds = policy_options.thresholds(arguments)
    comparison = compared(arguments.baseline, arguments.run, thresholds=thresholds) if arguments.baseline else None
    output = arguments.output or arguments.run / FILE
    write_output(output, page(comparison, arguments.baseline, arguments.run, arguments.artefacts_below))
    return 0
