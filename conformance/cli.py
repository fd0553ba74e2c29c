"""The ``conformance`` command. Reading records needs no torch or triton; what needs them is imported when used."""

from __future__ import annotations

import argparse
import functools
import importlib
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from conformance.commands import CommandError
from conformance.commands.shared.case_lookup import one_case
from conformance.records import RUN_FILE, CaseRecord, Reading, RecordError, read_records, read_run
from conformance.reporting.text import clean, indented

OK, FAILED, USAGE = 0, 1, 2


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line ``arguments`` (those of the process unless given). Returns 0 if all is well, 1 if the
    answer is a failure, 2 if the command could not be carried out; ``run`` returns pytest's own code."""
    words = list(sys.argv[1:] if arguments is None else arguments)
    parser = _parser()
    given, rest = parser.parse_known_args(words)
    if rest and not given.passes_on:
        parser.error(f"unrecognized arguments: {' '.join(rest)}")
    try:
        return int(given.command(given, rest))
    except CommandError as error:
        print(f"conformance: {error}", file=sys.stderr)
        return USAGE
    except BrokenPipeError:
        sys.stderr.close()  # the reader had enough
        return OK


#: Commands that are modules of ``conformance.commands``.
COMMANDS = {
    "targets": "Show devices and compile targets, and which capabilities they have or lack.",
    "gate": "Run two stacks and say whether one may replace the other.",
    "matrix": "Run the stacks that a file describes, and compare them pair by pair.",
    "compare": "Compare two runs: what broke, what was fixed, what changed.",
    "report": "Write a run's HTML report, with what changed if a baseline is given.",
    "reproduce": "Write a script that shows a failed case's fault with torch and triton alone.",
    "mustpass": "Write the lists of cases that are owed, or hold a run against them.",
    "bundle": "Pack a run's evidence into one signed archive.",
    "verify": "Check a bundle of evidence, offline.",
    "keygen": "Make a pair of keys to sign evidence with.",
}


def _carry_out(function: Callable[[argparse.Namespace], int], given: argparse.Namespace, rest: Sequence[str]) -> int:
    return function(given)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="conformance", description="Conformance of Triton's GEMM kernels.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(name: str, function: object, text: str, passes_on: bool = False) -> argparse.ArgumentParser:
        sub = commands.add_parser(name, help=text, description=text, allow_abbrev=False)
        sub.set_defaults(command=function, passes_on=passes_on)
        return sub

    for name, text in COMMANDS.items():
        module = importlib.import_module(f"conformance.commands.{name}")
        sub = command(name, functools.partial(_carry_out, module.run), text)
        module.configure(sub)
    filters = "such as --suite, --kernel, --target, --tier, -k"
    command("list", list_cases, f"List case ids; options go to pytest ({filters}).", passes_on=True)
    command("run", run, f"Run the suites; options go to pytest ({filters}, -n auto).", passes_on=True)
    sub = command("show", show, "Show a case's verdicts, artefacts and reproducing command, from its record.")
    sub.add_argument("case", metavar="CASE", help="the case's id, or a part of it that no other case has")
    sub.add_argument("--run", metavar="DIR", help="the run's folder (default: the newest under ./reports)")
    sub = command("sweep", sweep, "Show what a sweep over config spaces found, from its records.")
    sub.add_argument("run", metavar="DIR", nargs="?", help="the run's folder (default: the newest under ./reports)")
    sub.add_argument("--spills", action="store_true", help="only the lines that declare the spills that were seen")
    command("calibrate", calibrate, "Measure the arithmetic that the contracts assume, on a device.", passes_on=True)
    return parser


#: What makes pytest collect the suites, with the plugin loaded wherever this package lies.
SUITE_ARGUMENTS = ["-p", "conformance.plugin", "--pyargs", "conformance.suites"]


def run(given: argparse.Namespace, rest: Sequence[str]) -> int:
    import pytest

    return int(pytest.main([*SUITE_ARGUMENTS, *rest]))


def list_cases(given: argparse.Namespace, rest: Sequence[str]) -> int:
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
    code = pytest.main([*SUITE_ARGUMENTS, *options, *rest], plugins=[lister])
    if code == pytest.ExitCode.NO_TESTS_COLLECTED:
        raise CommandError("no case matches these filters")
    if code == pytest.ExitCode.OK:
        print(f"{lister.count} cases", file=sys.stderr)
    return int(code)


def show(given: argparse.Namespace, rest: Sequence[str]) -> int:
    folder, records = _read(given.run)
    record = one_case(given.case, records, folder)
    print(describe(record, folder))
    return OK


def sweep(given: argparse.Namespace, rest: Sequence[str]) -> int:
    from conformance.reporting import sweep

    folder, records = _read(given.run)
    found = sweep.rows(records.records)
    if not found:
        raise CommandError(f"{folder} has no record of the suite {sweep.SUITE}: run it with --suite {sweep.SUITE}")
    if given.spills:
        for line in sweep.spilling(found):
            print(line)
        return OK
    for title, text in (
        ("Rows", sweep.outcomes(found)),
        ("Fastest", sweep.fastest(found)),
        ("Shared memory: estimate / compiler", sweep.estimates(found)),
    ):
        print(f"## {title}\n\n{text}\n")
    return OK


def _read(run: str | None) -> tuple[Path, Reading]:
    """The folder of a run, the newest unless given, and its records; what is wrong with them goes to stderr."""
    folder = Path(run) if run else _newest_run(Path("reports"))
    try:
        records = read_records(folder)
    except OSError as error:
        raise CommandError(str(error)) from None
    for problem in records.problems:
        print(f"conformance: {clean(problem)}", file=sys.stderr)
    return folder, records


def _newest_run(reports: Path) -> Path:
    """The folder below ``reports`` whose run started last."""
    runs = []
    for file in reports.glob(f"*/{RUN_FILE}"):
        try:
            runs.append((read_run(file.parent).started, file.parent))
        except (OSError, RecordError) as error:
            print(f"conformance: {file}: {clean(str(error))}", file=sys.stderr)
    if not runs:
        raise CommandError(f"no run lies under {reports.resolve()}: give --run DIR, or run the suites first")
    return max(runs)[1]


def describe(record: CaseRecord, folder: Path) -> str:
    """What a record says, for people."""
    identity: list[tuple[str, object]] = [("case", record.case), ("status", record.status.value)]
    identity += [("reason", record.reason)]
    identity += [("kernel", record.kernel), ("problem", record.problem and record.problem.get("id"))]
    identity += [("config", record.config and record.config.get("id")), ("target", record.target)]
    identity += [("options", _pairs(record.options)), ("executor", record.executor), ("tier", record.tier)]
    identity += [("seed", record.seed), ("stack", _pairs(record.stack)), ("observed", _pairs(record.observed))]
    identity += [("seconds", _pairs(record.durations)), ("worker", record.worker), ("GPU", record.gpu)]
    lines = [f"{label + ':':10}{clean(str(value))}" for label, value in identity if value not in (None, "")]
    if record.verdicts:
        lines.append("verdicts:")
    for verdict in record.verdicts:
        details = {} if verdict.passed else {k: v for k, v in verdict.details.items() if k not in ("passed", "text")}
        text = "; ".join(filter(None, [verdict.text, _pairs(details)]))
        lines.append(
            clean(f"  {'pass' if verdict.passed else 'FAIL'}  {verdict.check}" + (f": {text}" if text else ""))
        )
    if record.artefacts:
        lines.append("artefacts:")
        lines += [f"  {clean(stage)}: {clean(str(folder / path))}" for stage, path in sorted(record.artefacts.items())]
    if record.diagnosis:
        lines += ["diagnosis:", indented(clean(record.diagnosis))]
    if record.repro:
        lines.append(f"reproduce: {clean(record.repro)}")
    return "\n".join(lines)


def _pairs(values: object) -> str:
    items = values.items() if hasattr(values, "items") else ()
    return ", ".join(f"{key} {value}" for key, value in items if value is not None)


def calibrate(given: argparse.Namespace, rest: Sequence[str]) -> int:
    try:
        from conformance import calibration
    except ImportError as error:
        raise CommandError(
            f"calibrate needs torch and triton: {error}; pip install 'triton-conformance[stack]'"
        ) from None
    return int(calibration.main(list(rest)))


if __name__ == "__main__":
    sys.exit(main())
