"""Scripts for what fails newly in a candidate: written there, and run on both stacks to see that they differ."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path

from conformance.gate.confirming import Outcome, attempt, confirm, state_baseline
from conformance.gate.findings import Comparison, Finding, Kind
from conformance.gate.running import StackRun

#: Kinds of findings whose case fails in a way that a script can show.
SHOWN = (Kind.NEW_FAIL, Kind.FEATURE_LOST, Kind.LIMIT_CROSSED, Kind.NONDETERMINISTIC)
#: Seconds that writing one script may take: its case is run again.
WRITE_SECONDS = 600


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
        yield f"{len(groups) - most} more groups: conformance reproduce CASE --run {candidate.folder}"


def _one(finding: Finding, baseline: StackRun, candidate: StackRun, folder: Path) -> str:
    script = folder.resolve() / _name(finding.case)
    script.parent.mkdir(parents=True, exist_ok=True)
    environment = candidate.environment
    words = ("reproduce", finding.case, "--run", str(candidate.folder.resolve()), "--output", str(script))
    writing = attempt(environment.command(*words), environment, WRITE_SECONDS)
    if writing.status is None:
        return f"no script within {WRITE_SECONDS} s for {finding.case}"
    if writing.status:
        return f"no script for {finding.case}: {writing.output.strip()[-500:]}"
    shown = confirm(script, baseline.environment, environment)
    if shown.outcome is Outcome.CONFIRMED:
        state_baseline(script, baseline.name)
    return f"{script}: {shown.outcome.value}, {shown.text}"


def _name(case: str) -> str:
    """A file's name: the readable part of the case's id, and enough of a digest to be its own."""
    readable = re.sub(r"[^A-Za-z0-9]+", "_", case.partition("::")[2]).strip("_")[:60]
    return f"{readable}-{hashlib.sha256(case.encode()).hexdigest()[:8]}.py"
