"""``conformance reproduce``: writes the reproducer script of one failed case, by running the case again."""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from conformance.commands import CommandError
from conformance.commands.cases import one_case
from conformance.records import CaseRecord, read_records
from conformance.reporting.text import clean

#: What makes pytest collect the suites, with the plugin loaded wherever this package lies.
PYTEST = ["-m", "pytest", "-q", "-p", "conformance.plugin", "-p", "no:cacheprovider", "--pyargs", "conformance.suites"]


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("case", metavar="CASE", help="the case's id, or a part of it that no other case has")
    parser.add_argument("--run", metavar="DIR", dest="folder", required=True, help="the run's folder")
    parser.add_argument("--output", metavar="FILE", help="where to write the script (default: a name made of the case)")


def run(given: argparse.Namespace) -> int:
    try:
        reading = read_records(Path(given.folder))
    except OSError as error:
        raise CommandError(str(error)) from None
    record = one_case(given.case, reading, Path(given.folder))
    if record.kernel is None:
        raise CommandError(
            f"{clean(record.case)} is about code that Inductor generates, or judges no kernel of the catalogue: only "
            "launches of the catalogue's kernels become scripts; its record names the generated module"
        )
    with tempfile.TemporaryDirectory() as scratch:
        script = _script(record, Path(scratch))
        output = Path(given.output or script.name)
        try:
            shutil.copyfile(script, output)
        except OSError as error:
            raise CommandError(f"the script cannot be written: {error}") from None
    print(output)
    return 0


def _script(record: CaseRecord, scratch: Path) -> Path:
    """Runs the case as it was run, and returns the script that this left."""
    done = subprocess.run(
        [sys.executable, *PYTEST, *_options(record), f"--run-dir={scratch / 'run'}", f"--reproducers={scratch}"],
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    scripts = sorted(scratch.glob("*.py"))
    if scripts:
        return scripts[0]
    try:
        again = read_records(scratch / "run").records
    except OSError:
        again = ()
    if not again:
        raise CommandError(f"the case cannot be run here:\n{clean((done.stdout + done.stderr)[-2000:])}")
    why = again[0].observed.get("no_reproducer") or f"here it ends as {again[0].status.value}"
    raise CommandError(f"{clean(record.case)} gives no script: {clean(str(why))}")


def _options(record: CaseRecord) -> list[str]:
    """What makes pytest run the case as its record says. The record's own command line is not executed."""
    options = [f"--conformance-case={record.case}"]
    options += [f"--tier={record.tier}"] if record.tier else []
    options += [f"--target={record.target}"] if record.target else []
    options += [f"--seed={record.seed}"] if record.seed is not None else []
    if record.executor is None:
        options.append("--compile-only")
    elif record.executor != "device":
        options.append("--no-gpu")
    return options
