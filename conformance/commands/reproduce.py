"""``conformance reproduce``: writes the script that shows one case's fault, by running the case again."""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path
from textwrap import indent

from conformance.commands import CommandError, write_output
from conformance.commands.shared.case_lookup import one_case, records_with
from conformance.commands.shared.suites import SUITE_ARGUMENTS
from conformance.gate.changes.occupancy import occupancy, room
from conformance.gate.changes.sync_changes import new_faults
from conformance.gate.shortened_text import last_words
from conformance.gate.stacks.confirm_scripts import attempt
from conformance.record_figures import Figures
from conformance.records import CaseRecord, RecordError, Status, read_records
from conformance.reporting.case_command import case_command
from conformance.reproducers.script_request import ScriptRequest, file_name
from conformance.user_files.expected_failures import status_without_entry

#: Seconds that the case may take unless told otherwise, for pytest's start and the case's own deadline.
SECONDS = 600.0
#: Characters of an id that an error names.
LONGEST_ID = 200
#: Statuses of cases that ended their process. The script of such a case must be written before the case runs.
DIED = (Status.CRASH, Status.TIMEOUT, Status.OOM)
PYTEST = ["-m", "pytest", "-q", "-p", "no:cacheprovider", *SUITE_ARGUMENTS]
#: What the plugin says of an id that no case has.
NO_CASE = (" has that; ", "there is no such suite", "there is no such test")


HELP = "Write a script that shows a failed case's fault with torch and triton alone."


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "case", metavar="CASE", help="the case's id, or with --run a part of it that no other case of the run has"
    )
    parser.add_argument(
        "--run",
        metavar="DIR",
        dest="folder",
        type=Path,
        help="the run's folder (default: run the case as a plain run would)",
    )
    parser.add_argument(
        "--baseline",
        metavar="DIR",
        type=Path,
        help="a run with another stack: if the case passes, the script looks for what its code had or used there",
    )
    parser.add_argument(
        "--output", metavar="FILE", type=Path, help="where to write the script (default: a name made of the case)"
    )
    parser.add_argument(
        "--timeout",
        metavar="SECONDS",
        type=_seconds,
        default=SECONDS,
        help=f"how long the case may take (default: {SECONDS:g})",
    )


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0 < seconds < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r}: seconds greater than 0 are required")
    return seconds


def run(arguments: argparse.Namespace) -> int:
    """Writes the script and returns 0. Raises :class:`CommandError` if there is none for this case."""
    record = one_case(arguments.case, arguments.folder) if arguments.folder else None
    case = record.case if record else arguments.case
    if "::" not in case:
        raise CommandError(f"{case!r} is a part of a case's id: give the whole id, or its run with --run")
    baseline = records_with(case, arguments.baseline) if arguments.baseline else ()
    before = next((other for other in baseline if other.case == case), None)
    compiled = record is not None and "program" in record.options
    text = (
        _compiled(record) if record and compiled else _text(case, record, _request(record, before), arguments.timeout)
    )
    write_output(arguments.output or Path(file_name(case)), text)
    return 0


def _request(record: CaseRecord | None, before: CaseRecord | None) -> ScriptRequest:
    """Returns the request for the script of a case: what it must show. ``record``: its record, None if there is none;
    ``before``: its record in the baseline, if there is one."""
    dies = record is None or status_without_entry(record) in DIED
    if record is None or before is None:
        return ScriptRequest(dies)
    was, now = _figures(before), _figures(record)
    lost = sorted({*was.code.features} - {*now.code.features}) if was.code and now.code else []
    most = None
    if was.resources and now.resources and was.resources.spill_unit == now.resources.spill_unit:
        most = was.resources.spills if now.resources.spills > was.resources.spills else None
    room, resident = _room(before.target, was, now)
    faults = new_faults(was.code, now.code) if was.code and now.code else {}
    return ScriptRequest(dies, tuple(lost), most, room, resident, tuple(faults))


def _room(target: str | None, was: Figures, now: Figures) -> tuple[dict[str, int], str]:
    """Returns the resources that a block may use so that as many blocks are resident on ``target`` as with ``was``. The
    text has that number of blocks. Both are empty unless fewer are resident ``now``."""
    if was.resources is None or now.resources is None:
        return {}, ""
    before, after = occupancy(target, was.resources), occupancy(target, now.resources)
    if before is None or after is None or after.resident >= before.resident:
        return {}, ""
    return room(target, was.resources), str(before)


def _figures(record: CaseRecord) -> Figures:
    try:
        return record.figures
    except RecordError as error:
        raise CommandError(f"the record of {record.case} has unusable figures: {error}") from None


def _compiled(record: CaseRecord) -> str:
    """The script of a case about what Inductor generates: its record says all that is needed."""
    from conformance.reproducers.definitions import NotReproducible
    from conformance.reproducers.program_scripts import program_script  # torch comes with it

    try:
        return program_script(record)
    except NotReproducible as error:
        raise CommandError(_none(record, str(error))) from None


def _text(case: str, record: CaseRecord | None, request: ScriptRequest, seconds: float) -> str:
    """The script that the case writes when it is run again as its record says."""
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        request.write(scratch)
        options = [f"--conformance-case={case}", *(_options(record) if record else [])]
        command = [sys.executable, *PYTEST, *options, f"--run-dir={scratch / 'run'}", f"--reproducers={scratch}"]
        try:
            done = attempt(command, os.environ, seconds, Path.cwd())
        except OSError as error:  # of an id that is too long for a command line, or of a limit
            raise CommandError(f"the case {case[:LONGEST_ID]} cannot be run here: {error.strerror}") from None
        script = scratch / file_name(case)
        if script.exists():
            return script.read_text(encoding="utf-8")
        try:
            records = read_records(scratch / "run").records
        except OSError:
            records = ()
    if done.status is None:
        raise CommandError(f"{case} did not end within {seconds:g} s and left no script: give it longer with --timeout")
    if records:
        return _of_record(records[0])
    if any(text in done.output for text in NO_CASE):
        run_here = "a run here with the options of its record" if record else "a plain run here"
        raise CommandError(f"there is no case {case} in {run_here}: give its run with --run")
    raise CommandError(f"the case cannot be run here:\n{indent(last_words(done.output, 2000), '    ')}")


def _of_record(record: CaseRecord) -> str:
    """The script of a case that left none when it was run here."""
    if "program" in record.options:
        return _compiled(record)
    why = record.observed.get("no_reproducer") or f"here it ends as {record.status.value}"
    if record.kernel is None:
        why = f"it launches no kernel of the catalogue, and {why}"
    raise CommandError(_none(record, str(why)))


def _none(record: CaseRecord, why: str) -> str:
    return f"{record.case} gives no script: {why}; to run the case itself: {case_command(record)}"


def _options(record: CaseRecord) -> list[str]:
    """Options of pytest that run the case as its record says. The record's own command line is never executed."""
    options = [f"--tier={record.tier}"] if record.tier else []
    options += [f"--target={record.target}"] if record.target else []
    options += [f"--seed={record.seed}"] if record.seed is not None else []
    if record.executor is None:
        options.append("--compile-only")
    elif record.executor != "device":
        options.append("--no-gpu")
    return options
