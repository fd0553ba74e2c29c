"""Writes a comparison to the terminal, to files, and to GitHub when a workflow runs the command."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from conformance.commands import CommandError
from conformance.commands.shared.case_lookup import records_in
from conformance.gate.verdict.known_findings import signature
from conformance.records import Fault, jsonable, read_run
from conformance.reporting import comparison as reporting
from conformance.reporting import github
from conformance.reporting.first_line import answer
from conformance.reporting.html import render
from conformance.reporting.html_data import ReportedRun
from conformance.reporting.text import log_safe, shown
from conformance.user_files.findings import Comparison

#: Of the JSON; raised whenever the meaning of a field changes.
SCHEMA = 2
STDOUT = "-"
#: The exit status where a side gives no answer.
NO_ANSWER = 2


def to_json(comparison: Comparison) -> str:
    """Everything a comparison holds, with the answer."""
    groups = [
        {"severity": group.severity.value, "signature": signature(group.kind, group.cause), **jsonable(group)}
        for group in comparison.groups
    ]
    data: dict[str, Any] = {
        "schema": SCHEMA,
        "safe": comparison.safe,
        "answer": answer(comparison),
        "newly_failing": len(comparison.newly_failing),
        "newly_failing_by_known_defects": len(comparison.newly_failing_by_known_defects),
        "waived": comparison.waived,
        "status": exit_status(comparison),
    }
    return json.dumps({**data, **jsonable(comparison), "groups": groups}, indent=1, allow_nan=False) + "\n"


def no_answer(stack: str, fault: Fault) -> str:
    """The first line of a gate of which a stack's run left nothing to compare."""
    return log_safe(f"NO ANSWER: the run with {stack} left nothing to compare: {fault}")


def no_answer_json(stack: str, fault: Fault) -> str:
    """Returns the JSON of :func:`to_json` if nothing was compared: the answer, and what broke the run with
    ``stack``."""
    broken = [{"stack": stack, "fault_class": fault.fault_class.value, "faults": [jsonable(fault)]}]
    answered = {"safe": False, "answer": no_answer(stack, fault), "status": NO_ANSWER, "broken": broken}
    return json.dumps({"schema": SCHEMA, **answered}, indent=1) + "\n"


def page(
    comparison: Comparison | None, baseline: Path | None, candidate: Path, artefacts_below: Sequence[Path] = ()
) -> str:
    """The page of the run ``candidate``, with what changed since ``baseline`` if there is a comparison."""
    return render(_read(candidate), _read(baseline) if baseline else None, comparison, artefacts_below)


def _read(folder: Path) -> ReportedRun:
    if not folder.is_dir():
        raise CommandError(f"{folder} is no run's folder: give the folder that holds the records")
    reading = records_in(folder)
    try:
        return ReportedRun(folder, reading, read_run(folder))
    except (OSError, ValueError) as error:  # a RecordError is one, and so is text that is not UTF-8
        return ReportedRun(folder, dataclasses.replace(reading, problems=(f"run.json: {error}", *reading.problems)))


#: Option -> what it writes, for the help text, and a function of the comparison and the two runs' folders.
WRITERS: Mapping[str, tuple[str, Callable[[Comparison, Path, Path], str]]] = {
    "json": ("all findings", lambda comparison, baseline, candidate: to_json(comparison)),
    "markdown": ("a comment for a pull request", lambda comparison, *_: reporting.render_markdown(comparison)),
    "html": ("a page", page),
}


def deliver(comparison: Comparison, baseline: Path, candidate: Path, files: Mapping[str, str]) -> int:
    """Writes what ``files`` (option to path) ask for, prints the comparison unless the standard output has something
    else, and returns :func:`exit_status`. Raises :class:`CommandError`."""
    write_files(comparison, baseline, candidate, files)
    prints_file = STDOUT in files.values()
    if not prints_file:
        _print(shown(reporting.render_terminal(comparison)), sys.stdout)
    if github.runs_in_actions():
        _print("\n".join(github.annotation_lines(comparison)), sys.stderr if prints_file else sys.stdout)
        try:
            github.append_summary(comparison)
        except OSError as error:
            raise CommandError(f"the job's summary cannot be written: {error}") from None
    return exit_status(comparison)


def exit_status(comparison: Comparison) -> int:
    """0 if the candidate is safe, 1 if it is not, 2 if a side gives no answer."""
    if comparison.broken:
        return NO_ANSWER
    return 0 if comparison.safe else 1


def write_files(comparison: Comparison, baseline: Path, candidate: Path, files: Mapping[str, str]) -> None:
    """Writes what ``files`` (option to path) ask for. Raises :class:`CommandError`."""
    for option, file in files.items():
        _write(WRITERS[option][1](comparison, baseline, candidate), file)


def _print(text: str, stream: TextIO) -> None:
    """Prints ``text``. A reader that has closed the stream had enough; the answer stands."""
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        with contextlib.suppress(OSError):  # a stream that is no file has nothing left to flush
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def _write(text: str, file: str) -> None:
    if file == STDOUT:
        _print(text.removesuffix("\n"), sys.stdout)
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CommandError(f"{file} cannot be written: {error.strerror}") from None
