"""Scripts that show a candidate's new failures, each written by the candidate's stack and then run with both stacks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from conformance.commands.reproduce import SECONDS
from conformance.gate.shortened_text import last_words
from conformance.gate.stacks.confirm_scripts import ScriptOutcome, attempt, confirm, state_baseline
from conformance.gate.stacks.stack_runs import StackRun
from conformance.reproducers.script_request import file_name
from conformance.user_files.findings import Comparison, Finding, Group, Kind

#: Kinds of findings whose case fails in a way that a script can show.
SHOWN = (
    *(Kind.NEW_CRASH, Kind.NEW_FAIL, Kind.NONDETERMINISTIC, Kind.NEW_KNOWN_DEFECT),
    *(Kind.FEATURE_LOST, Kind.LIMIT_CROSSED, Kind.MORE_SPILLS),
    *(Kind.LESS_OCCUPANCY, Kind.WAIT_MOVED, Kind.LDS_ACROSS_BARRIER, Kind.ORDER_LOST, Kind.ACCUMULATOR_MOVED),
)
#: Why no script shows the other kinds of regressions.
NOT_SHOWN = {
    Kind.LOST_COVERAGE: "nothing was judged there: the record of a case says why",
    Kind.SLOWER: "a time counts on the device that took it: run the case there with both stacks",
}
#: How many cases of one cause and kernel are tried until a script shows the difference. If these few do not show it,
#: the others hardly will.
TRIES = 3
#: Seconds that writing one script may take: the command's own limit, and time to report that it was reached.
WRITE_SECONDS = SECONDS + 60


def reproduced(
    comparison: Comparison,
    baseline: StackRun,
    candidate: StackRun,
    folder: Path,
    most: int,
    say: Callable[[str], None] = lambda text: None,
) -> Iterator[str]:
    """Yields a line for each of ``most`` causes and kernels whose regressions a script can show, and for the rest of
    them.

    Each cause comes with its first kernel, the worst cause first, before any comes with its second. The scripts of the
    first few cases are written to ``folder`` and run with both stacks, until one shows the difference. The line says
    which, or there is a line for each script with what it did instead. ``say`` announces each script before it is
    tried, which takes minutes at worst.
    """
    pairs = _causes_and_kernels(group for group in comparison.regressions if group.kind in SHOWN)
    for number, (group, findings) in enumerate(pairs[:most], 1):
        lines: list[str] = []
        for tried, finding in enumerate(findings[:TRIES], 1):
            say(f"cause {number} of {min(most, len(pairs))}, script {tried} of at most {TRIES}: {finding.case}")
            try:
                confirmed, text = _one(finding, baseline, candidate, folder)
            except OSError as error:
                confirmed, text = False, f"no script: {error}"
            if confirmed:
                lines = [text]
                break
            lines.append(text)
        kernel = f" in {findings[0].kernel}" if findings[0].kernel else ""
        yield from (f"{group.kind.value} {group.cause}{kernel}: {text}" for text in lines)
    for kind in dict.fromkeys(group.kind for group in comparison.regressions if group.kind not in SHOWN):
        yield f"{kind.value}: no script, {NOT_SHOWN[kind]}"
    if len(pairs) > most:
        folders = f"--run {candidate.folder} --baseline {baseline.folder}"
        rest = len(pairs) - most
        what = "cause and kernel" if rest == 1 else "causes and kernels"
        yield f"{rest} more {what}: conformance reproduce CASE {folders}"


def _causes_and_kernels(groups: Iterable[Group]) -> list[tuple[Group, list[Finding]]]:
    """Returns the findings of each cause and kernel: those of every group's first kernel, then of its second, and so
    on."""
    ranked = []
    for place, group in enumerate(groups):
        by_kernel: dict[str | None, list[Finding]] = {}
        for finding in group.findings:
            by_kernel.setdefault(finding.kernel, []).append(finding)
        ranked += [(turn, place, group, findings) for turn, findings in enumerate(by_kernel.values())]
    ranked.sort(key=lambda entry: entry[:2])
    return [(group, findings) for _, _, group, findings in ranked]


def _one(finding: Finding, baseline: StackRun, candidate: StackRun, folder: Path) -> tuple[bool, str]:
    """Returns True if the script of ``finding`` shows the difference, and a sentence about it."""
    script = folder.resolve() / file_name(finding.case)
    script.parent.mkdir(parents=True, exist_ok=True)
    environment = candidate.environment
    runs = ("--run", str(candidate.folder.resolve()), "--baseline", str(baseline.folder.resolve()))
    words = ("reproduce", finding.case, *runs, "--output", str(script))
    writing = attempt(environment.command(*words), environment.environ(), WRITE_SECONDS)
    if writing.status is None:
        return False, f"no script within {WRITE_SECONDS:g} s for {finding.case}"
    if writing.status:
        return False, f"no script for {finding.case}: {last_words(writing.output.strip(), 500)}"
    shown = confirm(script, baseline.environment, environment)
    if shown.outcome is ScriptOutcome.CONFIRMED:
        state_baseline(script, baseline.name)
    return shown.outcome is ScriptOutcome.CONFIRMED, f"{script}: {shown.outcome.value}, {shown.text}"
