"""``conformance run``: runs the suites."""

from __future__ import annotations

import argparse
import os
import shlex

from conformance.commands import CommandError, takes_any_option
from conformance.commands.shared import suites
from conformance.user_files.run_options import joined

HELP = f"Run the suites; options go to pytest ({suites.FILTERS}, -n auto)."


def configure(parser: argparse.ArgumentParser) -> None:
    takes_any_option(parser)
    suites.describe_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Returns pytest's exit status. Raises :class:`CommandError` for a PYTEST_ADDOPTS that pytest cannot split."""
    import pytest

    extra = os.environ.get("PYTEST_ADDOPTS", "")
    try:
        shlex.split(extra)
    except ValueError as error:
        raise CommandError(f"PYTEST_ADDOPTS={extra!r}: words as in a shell are required ({error})") from None

    return int(pytest.main([*suites.SUITE_ARGUMENTS, *joined(arguments.rest)]))
