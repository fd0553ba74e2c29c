"""The command line by which pytest runs the suites, and modules that need torch and triton, imported late."""

from __future__ import annotations

import argparse
import importlib
import os
import shlex
from collections.abc import Sequence
from types import ModuleType

from conformance.commands import CommandError
from conformance.exception_text import place_of, text_of
from conformance.machine.package_metadata import unreadable_metadata
from conformance.machine.versions import not_installed, unloadable
from conformance.user_files.run_options import OPTIONS

#: What makes pytest collect the suites, with the plugin loaded wherever this package lies.
SUITE_ARGUMENTS = ["-p", "conformance.plugin", "--pyargs", "conformance.suites"]
#: Options that a user may want, for help texts.
FILTERS = "such as --suite, --kernel, --target, --tier, -k"


def describe_options(parser: argparse.ArgumentParser) -> None:
    """Adds the options of a run to the help of a command, which hands them to pytest."""
    listed = argparse.ArgumentParser(add_help=False, usage=argparse.SUPPRESS)
    group = listed.add_argument_group("options of a run, and any option of pytest, such as -k and -n auto")
    for option in OPTIONS:
        group.add_argument(option.short or option.long, **option.attributes)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.epilog = listed.format_help()


def run_pytest(words: Sequence[str], plugins: Sequence[object] | None = None) -> int:
    """Runs pytest on the suites with ``words`` added, in this process, and returns its exit status. Raises
    :class:`CommandError` if pytest cannot begin. So it is in a folder that was removed, or with a PYTEST_ADDOPTS that
    cannot be split. Installed packages may prevent it, too."""
    if broken := unreadable_metadata():
        raise CommandError(broken)
    import pytest

    extra = os.environ.get("PYTEST_ADDOPTS", "")
    try:
        shlex.split(extra)
    except ValueError as error:
        raise CommandError(f"PYTEST_ADDOPTS={extra!r}: words as in a shell are required ({error})") from None
    try:
        return int(pytest.main([*SUITE_ARGUMENTS, *words], plugins=plugins))
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


INSTALL = "install your vendor's build of torch and triton, or: pip install 'triton-conformance[stack]'"


def import_with_stack(module: str, command: str) -> ModuleType:
    """Returns the module ``conformance.<module>``. Raises :class:`CommandError`, which names ``command``, without its
    stack, or with one that cannot be loaded."""
    if unreadable := unreadable_metadata():
        raise CommandError(unreadable)
    broken = not_installed() or unloadable()
    if broken is not None:
        raise CommandError(f"{command} needs torch and triton: {broken}; {INSTALL}")
    try:
        return importlib.import_module(f"conformance.{module}")
    except (ImportError, OSError, RuntimeError) as error:
        raise CommandError(f"{command} needs torch and triton: {error}; {INSTALL}") from None
