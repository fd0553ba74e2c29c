"""Words what a run shows: its verdict in one sentence, the counts behind it, and what to open next."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from conformance.faults import FaultClass, FaultKind
from conformance.proof_level import ProofLevel
from conformance.records import RunInfo, Status
from conformance.reporting.case_command import WATCHED
from conformance.reporting.failure_groups import FailureGroup, Meaning
from conformance.reporting.summary import FAILURES, Summary

#: What each class of faults asks for.
_MEANINGS = {
    FaultClass.REGRESSION: "what is tested failed: find out why before you run it again",
    FaultClass.INFRASTRUCTURE: "the machine or its environment failed: mend it and run again",
    FaultClass.UNFINISHED: "the run ended before its last case: run it again",
}
#: Names that a line about a group of failing cases has.
NAMES_SHOWN = 4


def all_is_well(summary: Summary, lost: str = "") -> bool:
    """True if every judged case passed or failed as expected, some case was judged and nothing else went wrong.
    ``lost`` says why the run could not be finished; "" if it was."""
    run = summary.run
    judged = summary.judged or run.shard is not None  # other shards may have all cases that can be judged here
    return bool(judged and not summary.failed and not run.problems and not run.faults and not lost)


def headline(summary: Summary, lost: str = "") -> str:
    """The verdict on the run in one sentence, such as "PASSED: all 1,283 judged cases passed or failed as
    expected"."""
    judged, failed, problems = summary.judged, summary.failed, len(summary.run.problems) + bool(lost)
    also = f"; the run itself has {many(problems, 'problem')}" if problems else ""
    faults = summary.run.faults or ()
    broken = sum(group.count for group in summary.failures if group.meaning is Meaning.MACHINE)
    failed -= broken
    if failed:
        passed = "passed or failed as expected" if summary.expected else "passed"
        others = "" if failed + broken == judged else f"; every other one {passed}"
        machine = f"; the machine broke {broken:,} more" if broken else ""
        causes = many(sum(group.meaning is not Meaning.MACHINE for group in summary.failures), "cause")
        return f"FAILED: {failed:,} of {many(judged, 'judged case')} failed, by {causes}{machine}{others}{also}"
    if broken:
        others = f"; none of the other {judged - broken:,} failed" if judged > broken else ""
        return f"NOT COMPLETE: the machine broke {broken:,} of {many(judged, 'case')}{others}{also}"
    if problems:
        expected = " unexpectedly" if summary.expected else ""
        none = f"none of its {many(judged, 'judged case')} failed{expected}" if judged else "no case was judged"
        return f"NOT COMPLETE: the run has {many(problems, 'problem')}; {none}"
    if not judged:
        of_shard = f" in the shard {summary.run.shard}" if summary.run.shard else ""
        return f"NOTHING WAS JUDGED: no case passed or failed{of_shard}"
    if faults:
        return f"NOT COMPLETE: {faults[0].text}"
    expected = " or failed as expected" if summary.expected else ""
    proven = summary.proven
    reservation = "" if proven.by_compiled_code else proven.reservation
    note = f" ({reservation})" if reservation else ""
    return f"PASSED{note}: {f'all {judged:,} judged cases' if judged > 1 else 'the only judged case'} passed{expected}"


def count_lines(summary: Summary) -> list[str]:
    """Returns the number of cases of each status, with the reasons of those that were not judged; what judged those
    that passed."""
    statuses = summary.statuses
    parts = [f"{statuses.get(Status.PASS, 0):,} pass"]
    if count := statuses.get(Status.EXPECTED_FAIL, 0):
        parts.append(f"{count:,} expected-fail ({many(len(summary.expected), 'known defect')})")
    parts += [f"{statuses[status]:,} {status.value}" for status in FAILURES if statuses.get(status)]
    lines = [f"cases: {', '.join(parts)}"]
    skips = [
        f"{statuses[status]:,} {status.value} ({', '.join(f'{code} {count:,}' for code, count in reasons.items())})"
        for status, reasons in summary.skips.items()
        if statuses.get(status)
    ]
    lines += [f"not judged: {', '.join(skips)}"] if skips else []
    if statuses.get(Status.PASS):
        none = "; 0 cases ran on a device" if not summary.proven[ProofLevel.DEVICE] else ""
        lines.append(f"proven by: {summary.proven}{none}")
    if summary.noted:
        kernels = _names([f"{noted.check} of {noted.kernel} ({many(noted.cases, 'case')})" for noted in summary.noted])
        lines.append(f"warnings: {kernels}")
    return lines


def tested_line(run: RunInfo) -> str:
    """Returns the versions that were tested, such as "tested: triton 3.9.0, torch 2.13.0+cpu"; "" if none is known."""
    versions = [f"{name} {run.stack[name]}" for name in ("triton", "torch") if run.stack.get(name)]
    return f"tested: {', '.join(versions)}" if versions else ""


def fault_lines(run: RunInfo, lost: str = "") -> list[str]:
    """A line for each thing that went wrong in the run and is no failed case, nor said by its problems or ``lost``."""
    listed = (*run.problems, lost)
    return [str(fault) for fault in run.faults or () if fault.kind != FaultKind.FAILED and fault.text not in listed]


def exit_line(run: RunInfo) -> str:
    """The exit status with the classes of all that went wrong; "" if it is 0 or not known."""
    if not run.exit_status:
        return ""
    classes = dict.fromkeys(fault.fault_class for fault in run.faults or ())
    meanings = "; ".join(_MEANINGS[fault_class] for fault_class in classes) or "no case was judged"
    names = ", ".join(fault_class.value for fault_class in classes)
    return f"exit status {run.exit_status}: {f'{names} ({meanings})' if names else meanings}"


def group_line(group: FailureGroup) -> str:
    """Returns a group of failing cases in one line: what that means, how many, in which kernels and on which targets,
    why."""
    kernels = [f"{name} {len(cases):,}" if len(group.kernels) > 1 else name for name, cases in group.kernels.items()]
    where = " on ".join(filter(None, [_names(kernels), _names(sorted(group.targets))]))
    return f"{group.meaning.value} in {many(group.count, 'case')} ({where}): {group.cause}"


def _names(names: Sequence[str]) -> str:
    more = f" and {len(names) - NAMES_SHOWN} more" if len(names) > NAMES_SHOWN else ""
    return ", ".join(names[:NAMES_SHOWN]) + more


def what_to_open(summary: Summary, folder: Path, summary_file: Path) -> Mapping[str, str]:
    """Commands and a file to go on with, by what each of them shows. The first failing case of the gravest cause
    stands for all."""
    command, run = command_word(), shlex.quote(shown_path(folder))
    steps: dict[str, str] = {}
    if summary.failures:
        first = summary.failures[0].example
        case = shlex.quote(first.case)
        steps["why the first case failed"] = f"{command} show {case} --run {run}"
        if first.kernel and first.tier != WATCHED:
            steps["a script that shows it"] = f"{command} reproduce {case} --run {run}"
    if summary.statuses:
        steps["all cases as a page"] = f"{command} report {run}"
    steps["lists and tables"] = shown_path(summary_file)
    return steps


def command_word() -> str:
    """The ``conformance`` command as this process's user can type it: its name if it is on PATH, else its path next to
    this Python."""
    if shutil.which("conformance"):
        return "conformance"
    beside = Path(sys.executable).with_name("conformance")
    if os.access(beside, os.X_OK):
        return shlex.quote(shown_path(beside))
    return f"{shlex.quote(shown_path(Path(sys.executable)))} -m conformance"


def shown_path(path: Path) -> str:
    """``path`` from the working directory if it lies below it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except (ValueError, OSError):
        return str(path)


def many(count: int, noun: str) -> str:
    """Such as "1 case" and "1,283 cases"."""
    return f"{count:,} {noun}{'' if count == 1 else 's'}"
