"""``conformance run``: runs the suites."""

from __future__ import annotations

import argparse

from conformance.commands import takes_any_option
from conformance.commands.shared import suites
from conformance.user_files.run_options import joined

HELP = f"Run the suites; options go to pytest ({suites.FILTERS}, -n auto)."


def configure(parser: argparse.ArgumentParser) -> None:
    takes_any_option(parser)
    suites.describe_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Returns pytest's exit status. Raises :class:`CommandError` if pytest cannot begin."""
    return suites.run_pytest(joined(arguments.rest))
