"""Finds the compiler stage that is guilty of a candidate's regressions: the commands that say so, and their answers."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from conformance.blame.answer_text import summary
from conformance.blame.inquiry import BlameError, ask_case
from conformance.gate.stacks.stack_file import spelled
from conformance.gate.stacks.stack_runs import StackRun
from conformance.user_files.findings import NEW_FAILURES, Comparison, Finding, Kind

#: The kinds of regressions that a stage of the compiler may be guilty of, and the symptom that each has; "": whatever
#: differs.
SYMPTOMS = {
    **dict.fromkeys((*NEW_FAILURES, Kind.SLOWER, Kind.FEATURE_LOST), ""),
    Kind.LIMIT_CROSSED: "check",
    Kind.MORE_SPILLS: "spills",
    Kind.LESS_OCCUPANCY: "occupancy",
    **dict.fromkeys((Kind.WAIT_MOVED, Kind.LDS_ACROSS_BARRIER, Kind.ORDER_LOST, Kind.ACCUMULATOR_MOVED), "sync"),
}


def blamed_findings(
    comparison: Comparison, baseline: StackRun, candidate: StackRun, most: int, say: Callable[[str], None]
) -> Iterator[tuple[str, bool]]:
    """Yields a line for each cause of regressions that a stage may be guilty of, and whether it is an answer. The
    ``most`` worst causes are examined, which takes a minute or two each. The line of the others is the command that
    examines them."""
    groups = [group for group in comparison.regressions if group.kind in SYMPTOMS]
    for number, group in enumerate(groups):
        finding = group.findings[0]
        begins = f"{group.kind.value} {group.cause}: "
        if number < most:
            say(f"cause {number + 1} of {min(most, len(groups))}, the guilty stage: {finding.case}")
            yield begins + _answer(finding, baseline, candidate), True
        else:
            yield begins + _command(finding, baseline, candidate), False


def _symptoms(finding: Finding) -> tuple[str, ...]:
    symptom = SYMPTOMS[finding.kind]
    return (symptom,) if symptom else ()


def _answer(finding: Finding, baseline: StackRun, candidate: StackRun) -> str:
    with tempfile.TemporaryDirectory() as scratch:
        try:
            answer = ask_case(
                finding.case, baseline.environment, candidate.environment, Path(scratch), symptoms=_symptoms(finding)
            )
        except (BlameError, OSError) as error:
            return f"no stage is named: {error}"
    return summary(answer)


def _command(finding: Finding, baseline: StackRun, candidate: StackRun) -> str:
    stacks = [spelled(run.environment.stack) for run in (baseline, candidate)]
    if None in stacks:
        return "the guilty stage cannot be asked for: a stack has variables that the command line cannot set"
    words = ["conformance", "blame", finding.case, "--good", stacks[0] or "", "--bad", stacks[1] or ""]
    return shlex.join([*words, *(word for symptom in _symptoms(finding) for word in ("--symptom", symptom))])
