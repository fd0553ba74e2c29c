"""Builds the command line by which pytest runs the suites."""

from __future__ import annotations

import argparse

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
