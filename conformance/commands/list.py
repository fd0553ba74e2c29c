"""``conformance list``: prints the ids of the cases, or the table of fills."""

from __future__ import annotations

import argparse
import sys

from conformance.commands import CommandError, takes_any_option
from conformance.commands.shared import suites
from conformance.reporting.text import markdown_table

HELP = f"List case ids; options go to pytest ({suites.FILTERS})."


def configure(parser: argparse.ArgumentParser) -> None:
    takes_any_option(parser)
    parser.add_argument("--fills", action="store_true", help="print what each fill holds and shows, and no cases")


def run(arguments: argparse.Namespace) -> int:
    """Returns pytest's exit status. Raises :class:`CommandError` if no case is left."""
    if arguments.fills:
        from conformance.inputs.fills import fill_table

        print(markdown_table(fill_table()))
        return 0
    import pytest

    from conformance.plugin.case_ids import CaseIds

    class Lister:
        """Prints the cases in place of pytest's terminal, which is switched off, and what went wrong to stderr."""

        count = 0

        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed:
                print(report.longreprtext, file=sys.stderr)

        @pytest.hookimpl(trylast=True)
        def pytest_collection_finish(self, session: pytest.Session) -> None:
            case_ids = CaseIds(session.config)
            cases = [case for case in (case_ids(item.nodeid) for item in session.items) if case is not None]
            self.count = len(cases)
            print(*cases, sep="\n", end="\n" if cases else "")

    lister = Lister()
    options = ["--collect-only", "-p", "no:terminal", "-p", "no:cacheprovider"]
    code = pytest.main([*suites.SUITE_ARGUMENTS, *options, *arguments.rest], plugins=[lister])
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise CommandError("no case matches these filters")
    if code == pytest.ExitCode.OK:
        print(f"{lister.count} cases", file=sys.stderr)
    return int(code)
