"""Scripts for what fails newly in a candidate: written there, and run on both stacks to see that they differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from conformance.commands.reproduce import SECONDS
from conformance.gate.findings import Comparison, Finding, Kind
from conformance.gate.stacks.confirm_scripts import Outcome, attempt, confirm, state_baseline
from conformance.gate.stacks.stack_runs import StackRun
from conformance.reproducers.request import file_name

#: Kinds of findings whose case fails in a way that a script can show.
SHOWN = (
    Kind.NEW_CRASH,
    Kind.NEW_FAIL,
    Kind.NONDETERMINISTIC,
    Kind.FEATURE_LOST,
    Kind.LIMIT_CROSSED,
    Kind.MORE_SPILLS,
)
#: Cases of one group that are tried until one shows the difference: the others most likely fail to show it alike.
TRIES = 3
#: Seconds that writing one script may take: what the command allows itself, and what it takes to say so.
WRITE_SECONDS = SECONDS + 60


def reproduced(
    comparison: Comparison, baseline: StackRun, candidate: StackRun, folder: Path, most: int
) -> Iterator[str]:
    """Writes a script to ``folder`` for each of the ``most`` worst groups of regressions that one can show, runs it
    with both stacks, and says what it showed: that of the group's first case, or of the next few, that shows the
    difference, else what each of them did instead."""
    groups = [group for group in comparison.regressions if group.kind in SHOWN]
    for group in groups[:most]:
        said: list[str] = []
        for finding in group.findings[:TRIES]:
            try:
                confirmed, text = _one(finding, baseline, candidate, folder)
            except OSError as error:
                confirmed, text = False, f"no script: {error}"
            if confirmed:
                said = [text]
                break
            said.append(text)
        yield from (f"{group.kind.value} {group.cause}: {text}" for text in said)
    if len(groups) > most:
        folders = f"--run {candidate.folder} --baseline {baseline.folder}"
        yield f"{len(groups) - most} more groups: conformance reproduce CASE {folders}"


def _one(finding: Finding, baseline: StackRun, candidate: StackRun, folder: Path) -> tuple[bool, str]:
    """Whether the script of ``finding`` shows the difference, and what became of it."""
    script = folder.resolve() / file_name(finding.case)
    script.parent.mkdir(parents=True, exist_ok=True)
    environment = candidate.environment
    runs = ("--run", str(candidate.folder.resolve()), "--baseline", str(baseline.folder.resolve()))
    words = ("reproduce", finding.case, *runs, "--output", str(script))
    writing = attempt(environment.command(*words), environment.environ(), WRITE_SECONDS)
    if writing.status is None:
        return False, f"no script within {WRITE_SECONDS:g} s for {finding.case}"
    if writing.status:
        return False, f"no script for {finding.case}: {writing.output.strip()[-500:]}"
    shown = confirm(script, baseline.environment, environment)
    if shown.outcome is Outcome.CONFIRMED:
        state_baseline(script, baseline.name)
    return shown.outcome is Outcome.CONFIRMED, f"{script}: {shown.outcome.value}, {shown.text}"
