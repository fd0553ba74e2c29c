"""``conformance mustpass``: writes the lists of the cases that are owed, from a complete run, and checks a run against
them."""

from __future__ import annotations

import argparse
from pathlib import Path

from conformance.commands import CommandError, command_errors
from conformance.commands.shared.policy_options import add_options, read, verdict_of
from conformance.gate.evidence.archive import Rejected
from conformance.gate.evidence.contents import parse_environment
from conformance.gate.evidence.options import check_options
from conformance.gate.mustpass import mustpass_lists
from conformance.gate.runs.run_environment import ENVIRONMENT_FILE
from conformance.gate.verdict import gate_verdict
from conformance.records import Status, plain_file, replace_file
from conformance.reporting.text import clean, log_safe, one_line
from conformance.user_files.toml_entries import range_problem

HELP = "Write the lists of cases that a target must pass, or check a run against them."


def configure(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(required=True, metavar="ACTION", dest="action")
    write = actions.add_parser("write", help="write the lists of a run that no option narrowed", allow_abbrev=False)
    write.add_argument("run", metavar="RUN", type=Path, help="the run's folder")
    write.add_argument(
        "--to", metavar="DIR", type=Path, required=True, help="the folder of the lists, which --mustpass takes"
    )
    write.add_argument(
        "--stack",
        metavar="COMPONENT=VERSIONS",
        action="append",
        default=[],
        help="the versions that the lists are for, such as 'triton=>=3.6,<3.9' (repeatable; default: the minor "
        "releases of torch and triton that ran)",
    )
    write.add_argument("--allow-removal", action="store_true", help="let cases go, or owe less than before")
    check = actions.add_parser("check", help="check a run against the lists", allow_abbrev=False)
    check.add_argument("run", metavar="RUN", type=Path, help="the run's folder")
    add_options(check, mustpass_lists.LISTS)


@command_errors(mustpass_lists.MustpassError)
def run(arguments: argparse.Namespace) -> int:
    """Returns 0, or 1 if the lists would shrink or the run is not as they say."""
    return _write(arguments) if arguments.action == "write" else _check(arguments)


def _write(arguments: argparse.Namespace) -> int:
    info, records, problems = read(arguments.run)
    if problems:
        raise CommandError(f"no list can be written from {arguments.run}: {'; '.join(problems)}")
    _refuse_narrowed(arguments.run)
    lists = mustpass_lists.lists_of(info, records, _stack(arguments.stack))
    shrinks = False
    for mustpass in lists:
        path = arguments.to / mustpass.name
        old = mustpass_lists.read_list(path) if path.exists() else None
        change = mustpass_lists.change(old.outcomes if old else {}, mustpass.outcomes)
        _print_change(f"{path}: {len(mustpass.outcomes)} cases", change)
        moved = old is not None and old.range != mustpass.range
        if old is not None and moved:
            advice = f"give another folder below {arguments.to} to keep both"
            print(clean(f"{old.name} is there for {old.range}: {advice}"))
        shrinks = shrinks or moved or change.shrinks
    settled = (Status.PASS, Status.NOT_APPLICABLE, Status.NOT_RUN)
    failing = sum(record.status not in settled for record in records)
    if failing:
        print(f"{failing} cases do not pass in this run and are owed all the same")
    if shrinks and not arguments.allow_removal:
        print("nothing was written: the lists would shrink or be replaced; give --allow-removal if that is meant")
        return 1
    arguments.to.mkdir(parents=True, exist_ok=True)
    for mustpass in lists:
        replace_file(arguments.to / mustpass.name, mustpass_lists.written(mustpass))
    return 0


def _refuse_narrowed(folder: Path) -> None:
    """Raises :class:`CommandError` for a run whose options may have left out cases of its tier and targets: its lists
    would owe less. --target leaves none out: a list's header names the targets."""
    try:
        environment = parse_environment(plain_file(folder / ENVIRONMENT_FILE).read_bytes())
    except FileNotFoundError:
        raise CommandError(
            f"{folder} has no {ENVIRONMENT_FILE}, which says whether options narrowed the run: run again"
        ) from None
    except (Rejected, OSError) as error:
        raise CommandError(f"{folder}: {error}") from None
    checked = check_options(environment["options"], environment["variables"])
    if checked.narrowing:
        raise CommandError(
            f"{folder} was narrowed by {', '.join(checked.narrowing)}: its lists would owe less; run without that"
        )
    if checked.refused:
        raise CommandError(
            f"{folder} was run with {', '.join(checked.refused)}, which may leave cases out: run without that"
        )


def _print_change(title: str, change: mustpass_lists.Change) -> None:
    print(clean(f"{title}; {change}"))
    for what, cases in (("removed", change.removed), ("owes less", change.weaker)):
        for case in cases[:10]:
            print(one_line(f"    {what}: {case}"))
        if len(cases) > 10:
            print(f"    {what}: {len(cases) - 10} more")


def _stack(texts: list[str]) -> dict[str, str]:
    """Returns the ranges of versions that the option --stack names."""
    stack = {name.strip(): version.strip() for name, _, version in (text.partition("=") for text in texts)}
    problem = range_problem(stack)
    if problem:
        raise CommandError(f"--stack: {problem}")
    return stack


def _check(arguments: argparse.Namespace) -> int:
    info, records, problems = read(arguments.run)
    verdict, _ = verdict_of(arguments, info, records, problems)
    for line in gate_verdict.lines(verdict):
        print(log_safe(one_line(line)))
    return 0 if verdict.passed else 1
