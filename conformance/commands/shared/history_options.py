"""The options by which a comparison looks at earlier answers, and by which it leaves issues for its causes.

Issues are written here, one for each cause that fails a comparison, with the script that shows it.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from conformance.commands import CommandError, command_errors
from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.verdict.known_findings import EarlierAnswer, EarlierAnswerError, read_earlier_answer
from conformance.records import RecordError, replace_file
from conformance.reporting import issue_text
from conformance.reporting.issue_text import IssueScript
from conformance.reporting.text import log_safe
from conformance.reproducers.script_request import file_name
from conformance.user_files.findings import Comparison, Group


def issue_folder(folder: Path) -> Path:
    """Returns the new or empty ``folder``, made and found writable. Raises :class:`CommandError`."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise CommandError(
                f"--issues {folder}: it is not empty: give a new folder, so that no old text stays in it"
            )
        trial = folder / ".writable"
        trial.touch()
        trial.unlink()
    except OSError as error:
        raise CommandError(f"--issues {folder}: it cannot be written ({error}): give another folder") from None
    return folder


@command_errors(OSError, RecordError)
def write_issues(
    comparison: Comparison,
    candidate: Path,
    folder: Path,
    scripts: Path | None = None,
    stages: Mapping[tuple[str, str], str] | None = None,
) -> list[Path]:
    """Writes an issue for each regression of ``comparison`` into ``folder``, and returns the files. ``candidate`` is
    its run's folder, or file of records; ``scripts`` is where scripts lie; ``stages`` are the guilty stages that were
    asked for, by kind and cause. Raises :class:`CommandError`."""
    groups = comparison.regressions
    records = read_compared_run(candidate).records
    folder.mkdir(parents=True, exist_ok=True)
    files = []
    for group, name in zip(groups, issue_text.names(groups), strict=True):
        script = _script(comparison, group, scripts, name)
        if script is not None:
            replace_file(folder / script.name, script.text)
        stage = (stages or {}).get((group.kind.value, group.cause), "not asked")
        record = records.get(group.findings[0].case)
        text = issue_text.render(comparison, group, record, script, _why_none(comparison, group), stage)
        files.append(folder / f"{name}.md")
        replace_file(files[-1], text)
    return files


def _script(comparison: Comparison, group: Group, folder: Path | None, name: str) -> IssueScript | None:
    """The script of the first of the group's cases that has one; one that showed the fault in the candidate alone comes
    before others."""
    if folder is None:
        return None
    scripts = []
    for one in group.findings:
        path = folder / file_name(one.case)
        outcome = next((line for line in comparison.scripts if path.name in line), "")
        if outcome and path.is_file():
            words = outcome.partition(f"{path.name}: ")[2] or outcome
            scripts.append(IssueScript(f"{name}.py", path.read_text(encoding="utf-8"), words))
    scripts.sort(key=lambda script: not script.outcome.startswith("confirmed"))
    return scripts[0] if scripts else None


def _why_none(comparison: Comparison, group: Group) -> str:
    """Returns the reason for which ``group`` has no script."""
    begins = f"{group.kind.value} {group.cause}"
    reason = next((line for line in comparison.scripts if line.startswith(begins) and "no script" in line), "")
    return (
        f"There is no script: {reason.partition('no script')[2].lstrip(' :,')[:300]}."
        if reason
        else "No script was written."
    )


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--known",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="an earlier answer (comparison.json): say of each cause whether it is new (repeatable)",
    )
    parser.add_argument(
        "--issues",
        metavar="DIR",
        type=Path,
        help="a new folder for an issue for each cause of regressions, to be filed",
    )


@command_errors(EarlierAnswerError)
def earlier_answers(arguments: argparse.Namespace) -> list[EarlierAnswer]:
    """The earlier answers that the user gave. Raises :class:`CommandError`."""
    return [read_earlier_answer(file) for file in arguments.known]


def warn_of_unused(answers: Iterable[EarlierAnswer], pairs: Sequence[tuple[str, str]]) -> None:
    """Prints which of the earlier answers compare none of ``pairs`` of stacks, so that they are not used."""
    for one in answers:
        if not any(one.is_about(*pair) for pair in pairs):
            sides = f"{one.stacks[1]} with {one.stacks[0]}"
            text = f"--known {one.file}: it is not used: it compares {sides}, which is no pair of the matrix"
            print(log_safe(text), file=sys.stderr)


def refuse_unusable(arguments: argparse.Namespace) -> None:
    """Raises :class:`CommandError` for an earlier answer that cannot be read, and for a folder of issues that is not
    new. Asked before a run."""
    earlier_answers(arguments)
    if arguments.issues:
        issue_folder(arguments.issues)
