"""``conformance run``: runs the suites."""

from __future__ import annotations

import argparse
import os
import shlex

from conformance.commands import CommandError, takes_any_option
from conformance.commands.shared import suites
from conformance.exception_text import place_of, text_of
from conformance.user_files.run_options import joined

HELP = f"Run the suites; options go to pytest ({suites.FILTERS}, -n auto)."


def configure(parser: argparse.ArgumentParser) -> None:
    takes_any_option(parser)
    suites.describe_options(parser)


def run(arguments: argparse.Namespace) -> int:
    """Returns pytest's exit status. Raises :class:`CommandError` if pytest cannot begin. So it is with a PYTEST_ADDOPTS
    that it cannot split, or in a folder that was removed."""
    import pytest

    extra = os.environ.get("PYTEST_ADDOPTS", "")
    try:
        shlex.split(extra)
    except ValueError as error:
        raise CommandError(f"PYTEST_ADDOPTS={extra!r}: words as in a shell are required ({error})") from None

    try:
        return int(pytest.main([*suites.SUITE_ARGUMENTS, *joined(arguments.rest)]))
    except (OSError, ValueError) as error:
        raise CommandError(f"pytest cannot begin: {_cause(error)}") from None


def _cause(error: Exception) -> str:
    try:
        os.getcwd()
    except OSError:
        return "the folder in which it was started was removed; change to another one"
    unreadable = isinstance(error, UnicodeDecodeError)
    where = "; a file of settings, such as pytest.ini, must be UTF-8" if unreadable else place_of(error)
    return f"{text_of(error)}{where}"
