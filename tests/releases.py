"""Runs the quick tier with every release of Triton that this harness promises to judge, and prints a table.

``python -m tests.releases`` installs each release into a folder of its own, next to the pinned one, and runs pytest
with it. Words that it does not know go to pytest, such as ``--suite zero_size``. The exit status is 1 if a run failed,
or was not a run of its release.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path

from conformance.case_status import FAILING, Status
from conformance.records import RecordError, read_records, read_run

ROOT = Path(__file__).resolve().parents[1]
#: Each release lies here in a folder of its name, as the Makefile lays them out, too.
TRITONS = Path(os.environ.get("TRITONS") or ROOT / ".venv" / "tritons")
#: The releases that README.md and docs/run.md promise.
RELEASES = ("3.2.0", "3.3.1", "3.4.0", "3.5.0", "3.6.0", "3.7.1", "3.8.0", "3.9.0")
#: The folder of the one from which the guides upgrade to the pinned one. `make test` installs it.
EARLIER = TRITONS / "3.7.1"


@dataclass(frozen=True)
class Result:
    """The end of the run of one release. ``problem`` says why it proves nothing about the release; "" if it does."""

    release: str
    exit_status: int | None = None
    statuses: Counter[Status] = field(default_factory=Counter)
    failing: tuple[str, ...] = ()
    problem: str = ""

    @property
    def passed(self) -> bool:
        return self.exit_status == 0 and not self.failing and not self.problem


def install(tritons: Path, release: str) -> Path:
    """Installs a release of Triton, without what it depends on, into its folder unless that is there. Returns the
    folder. Raises subprocess.CalledProcessError if pip fails."""
    folder = tritons / release
    if not folder.exists():
        part = folder.with_name(f"{folder.name}.part{os.getpid()}")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(part)]
        subprocess.run([*pip, f"triton=={release}"], check=True)
        part.rename(folder)
    return folder


def run(release: str, tritons: Path, output: Path, words: Sequence[str]) -> Result:
    """Runs the quick tier with ``release``. ``words`` are further options of pytest."""
    try:
        folder = install(tritons, release)
    except subprocess.CalledProcessError as error:
        return Result(release, problem=f"pip ended with status {error.returncode}: {' '.join(error.cmd[-2:])}")
    run_dir = output / release
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "auto",
        "--tier",
        "quick",
        "--tb=no",
        f"--run-dir={run_dir}",
        *words,
    ]
    paths = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
    ended = subprocess.run(command, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}, check=False)
    return result_of(release, run_dir, ended.returncode)


def result_of(release: str, run_dir: Path, exit_status: int) -> Result:
    """Reads what a run with ``release`` left in ``run_dir``."""
    try:
        records, stack = read_records(run_dir).records, read_run(run_dir).stack
    except (OSError, RecordError) as error:
        return Result(release, exit_status, problem=f"its records cannot be read: {error}")
    statuses = Counter(record.status for record in records)
    failing = tuple(record.case for record in records if record.status in FAILING)
    problem = ""
    if stack.get("triton") != release:
        problem = f"it ran with Triton {stack.get('triton')}"
    elif not statuses[Status.PASS]:
        problem = "no case passed"
    return Result(release, exit_status, statuses, failing, problem)


def table(results: Iterable[Result]) -> str:
    """Returns a table of Markdown, and below it a line for each failing case and each run that proves nothing."""
    lines = [
        "| Triton | pass | expected-fail | failing | not-applicable | not-run | exit status |",
        "|---|---|---|---|---|---|---|",
    ]
    below = []
    for result in results:
        counted = [result.statuses[Status.PASS], result.statuses[Status.EXPECTED_FAIL], len(result.failing)]
        counted += [result.statuses[Status.NOT_APPLICABLE], result.statuses[Status.NOT_RUN]]
        ended = "none" if result.exit_status is None else result.exit_status
        lines.append("| " + " | ".join(map(str, [result.release, *counted, ended])) + " |")
        below += [f"{result.release} fails {case}" for case in result.failing]
        below += [f"{result.release} was not judged: {result.problem}"] if result.problem else []
    return "\n".join([*lines, *([""] if below else []), *below])


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.releases", description=__doc__, allow_abbrev=False)
    parser.add_argument("--release", action="append", choices=RELEASES, help="only this one (repeatable)")
    parser.add_argument(
        "--tritons",
        type=Path,
        default=TRITONS,
        help="folder that has, or gets, each release in a folder of its name: 3.9.0 holds the package triton",
    )
    parser.add_argument("--output", type=Path, help="new folder of the runs and of the table, releases.md")
    options, more = parser.parse_known_args(words)
    started = datetime.now(timezone.utc).strftime("%Y%m%d-%H%M%S")
    output = (options.output or ROOT / "reports" / f"releases-{started}").absolute()
    results = []
    for release in options.release or RELEASES:
        print(f"== Triton {release}", flush=True)
        results.append(run(release, options.tritons.absolute(), output, more))
        output.mkdir(parents=True, exist_ok=True)
        (output / "releases.md").write_text(table(results) + "\n")
    print(f"\n{table(results)}\n\n{output / 'releases.md'}")
    return 0 if all(result.passed for result in results) else 1


if __name__ == "__main__":
    sys.exit(main())
