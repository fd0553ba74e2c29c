"""Scripts for what fails newly in a candidate: written there, and run on both stacks to see that they differ."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from conformance.commands.reproduce import SECONDS
from conformance.gate.confirming import Outcome, attempt, confirm, state_baseline
from conformance.gate.findings import Comparison, Finding, Kind
from conformance.gate.running import StackRun
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
#: Seconds that writing one script may take: what the command allows itself, and what it takes to say so.
WRITE_SECONDS = SECONDS + 60


def reproduced(
    comparison: Comparison, baseline: StackRun, candidate: StackRun, folder: Path, most: int
) -> Iterator[str]:
    """Writes a script to ``folder`` for the first case of each of the ``most`` worst groups of regressions that one can
    show, runs it with both stacks, and says what each showed."""
    groups = [group for group in comparison.regressions if group.kind in SHOWN]
    for group in groups[:most]:
        try:
            said = _one(group.findings[0], baseline, candidate, folder)
        except OSError as error:
            said = f"no script: {error}"
        yield f"{group.kind.value} {group.cause}: {said}"
    if len(groups) > most:
        folders = f"--run {candidate.folder} --baseline {baseline.folder}"
        yield f"{len(groups) - most} more groups: conformance reproduce CASE {folders}"


def _one(finding: Finding, baseline: StackRun, candidate: StackRun, folder: Path) -> str:
    script = folder.resolve() / file_name(finding.case)
    script.parent.mkdir(parents=True, exist_ok=True)
    environment = candidate.environment
    runs = ("--run", str(candidate.folder.resolve()), "--baseline", str(baseline.folder.resolve()))
    words = ("reproduce", finding.case, *runs, "--output", str(script))
    writing = attempt(environment.command(*words), environment.environ(), WRITE_SECONDS)
    if writing.status is None:
        return f"no script within {WRITE_SECONDS:g} s for {finding.case}"
    if writing.status:
        return f"no script for {finding.case}: {writing.output.strip()[-500:]}"
    shown = confirm(script, baseline.environment, environment)
    if shown.outcome is Outcome.CONFIRMED:
        state_baseline(script, baseline.name)
    return f"{script}: {shown.outcome.value}, {shown.text}"
