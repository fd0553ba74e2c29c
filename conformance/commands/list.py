"""``conformance list``: prints the ids of the cases, of those that a tier leaves out, or the table of fills."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from conformance.commands import CommandError, takes_any_option
from conformance.commands.shared import suites
from conformance.commands.shared.suites import import_with_stack
from conformance.reporting.text import markdown_table
from conformance.user_files.run_options import NO_CASE, ON_EACH_TARGET, joined

HELP = f"List case ids; options go to pytest ({suites.FILTERS})."


def configure(parser: argparse.ArgumentParser) -> None:
    takes_any_option(parser)
    suites.describe_options(parser)
    parser.add_argument(
        "--left-out",
        action="store_true",
        help="print the cases that the next larger tier has and the chosen tier leaves out, and the cases that show "
        "their values instead; narrow the list by --suite and --kernel (other filters do not apply)",
    )
    parser.add_argument(
        "--why",
        metavar="CASE",
        help="say in one line why the tier has the case of this id, or has not, and print no ids",
    )
    parser.add_argument("--fills", action="store_true", help="print what each fill holds and shows, and no cases")


def run(arguments: argparse.Namespace) -> int:
    """Returns pytest's exit status. Raises :class:`CommandError` if no case is left, or if pytest cannot begin."""
    if arguments.fills:
        if arguments.rest or arguments.left_out or arguments.why:
            raise CommandError("--fills is a table of all fills: it takes no other word")
        import_with_stack("kernels.catalogue", "list --fills").catalogue()  # installed packages register fills
        print(markdown_table(import_with_stack("inputs.fills", "list --fills").fill_table()))
        return 0
    import pytest

    from conformance.plugin.case_ids import CaseIds
    from conformance.plugin.parametrisation import LeftOutCases, why_line

    class Lister:
        """Notes the cases, in place of pytest's terminal, which is switched off, and what went wrong to stderr."""

        cases: Sequence[str] = ()

        def pytest_collectreport(self, report: pytest.CollectReport) -> None:
            if report.failed:
                print(report.longreprtext, file=sys.stderr)

        @pytest.hookimpl(trylast=True)
        def pytest_collection_finish(self, session: pytest.Session) -> None:
            case_ids = CaseIds(session.config)
            cases = [case for case in (case_ids(item.nodeid) for item in session.items) if case is not None]
            if arguments.why:
                cases = [why_line(arguments.why, session.config)]
            if arguments.left_out:
                cases = [f"{case_ids(node)}: {reason}" for node, reason in left_out_cases.reasons.items()]
            self.cases = cases

    lister, left_out_cases = Lister(), LeftOutCases()
    plugins = [lister, left_out_cases] if arguments.left_out else [lister]
    options = ["--collect-only", "-p", "no:terminal", "-p", "no:cacheprovider"]
    options += [f"--conformance-case={arguments.why}"] if arguments.why else []
    code = suites.run_pytest([*options, *joined(arguments.rest)], plugins)
    print(*lister.cases, sep="\n", end="\n" if lister.cases else "")
    empty_shard = any(word.partition("=")[0] == "--shard" for word in arguments.rest)
    if code == pytest.ExitCode.NO_TESTS_COLLECTED and not empty_shard and not (arguments.why and lister.cases):
        raise CommandError(f"{NO_CASE}; {ON_EACH_TARGET}" if "--target" in arguments.rest else NO_CASE)
    if code == pytest.ExitCode.OK and not arguments.why:
        print(f"{len(lister.cases)} cases", file=sys.stderr)
    return int(code)
