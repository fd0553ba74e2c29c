"""Says in how many runs of the baseline a finding shows, where the baseline was run several times.

A regression stays one if some runs of the baseline show it, too. The candidate may fail more often than the baseline,
and no number of runs excludes that. It is reported as an instability of the baseline, so that it is not taken for
something that only the candidate does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from conformance.gate.runs.run_reader import ComparedRun
from conformance.gate.verdict.shown_again import Shows, sight
from conformance.user_files.findings import Comparison, Finding, Group, Kind, Severity
from conformance.user_files.thresholds import KernelThresholds, Tables


def with_baseline_runs(
    comparison: Comparison,
    baselines: Sequence[ComparedRun],
    candidate: ComparedRun,
    thresholds: Tables,
    broken: int = 0,
) -> Comparison:
    """``comparison`` with the number of ``baselines`` that show each regression and each failure of both sides. The
    first of them is the run that was compared. So many further runs were ``broken`` off and do not count."""
    limits = KernelThresholds(thresholds, None, candidate.run)
    groups = tuple(_counted(group, baselines, candidate, limits) for group in comparison.groups)
    regressing = [one for group in groups if group.severity is Severity.REGRESSION for one in group.findings]
    whole = f", of which {len(baselines)} are whole" if broken else ""
    text = f"the baseline was run {len(baselines) + broken} times{whole}{_shown(regressing)}"
    return replace(comparison, groups=groups, history=(*comparison.history, text))


def _shown(regressing: Sequence[Finding]) -> str:
    """Counts in a text the cases with a regression that show it in runs of the baseline, and those that no run judged;
    "" without any."""
    every = {one.case for one in regressing}
    judged = {one.case for one in regressing if one.baseline_runs}
    unstable = {one.case for one in regressing if one.baseline_runs and one.baseline_runs[0]}
    of = f"of {len(every)} {'case' if len(every) == 1 else 'cases'} with a regression"
    parts = []
    if unstable:
        parts.append(f"{len(unstable)} {of} show it in some of its runs, too: there the baseline is unstable")
    elif judged:
        rest = " of the other cases" if judged < every else ""
        parts.append(f"none of its runs shows a regression{rest}")
    if unjudged := len(every - judged):
        parts.insert(0, f"{unjudged} {of} {'is' if unjudged == 1 else 'are'} not judged by any of its runs")
    return f": {'; '.join(parts)}" if parts else ""


def _counted(group: Group, baselines: Sequence[ComparedRun], candidate: ComparedRun, limits: KernelThresholds) -> Group:
    if group.severity is not Severity.REGRESSION and group.kind is not Kind.STILL_FAIL:
        return group
    findings = tuple(_of_case(one, baselines, candidate, limits) for one in group.findings)
    counts = [one.baseline_runs for one in findings if one.baseline_runs]
    fails_always = group.kind is Kind.STILL_FAIL
    unstable = [(shown, runs) for shown, runs in counts if shown and not (fails_always and shown == runs)]
    if unstable:
        cases = f"{len(unstable)} of its {len(findings)} cases" if len(findings) > 1 else "its case"
        most = " of ".join(map(str, max(unstable)))
        note = f"the baseline is unstable here: in {cases} it shows the same in some of its runs ({most} at most)"
    elif counts and not any(shown for shown, _ in counts):
        note = f"seen in none of {max(runs for _, runs in counts)} baseline runs"
    else:
        note = ""
    return replace(group, findings=findings, notes=(*([note] if note else []), *group.notes))


def _of_case(
    one: Finding, baselines: Sequence[ComparedRun], candidate: ComparedRun, limits: KernelThresholds
) -> Finding:
    """``one`` with the number of runs that show it, of those that say whether they do."""
    after, device = candidate.records.get(one.case), candidate.stack.get("device")
    if after is None and all(side.records.get(one.case) is None for side in baselines):
        return one  # it is about a run, or about several cases
    shows = [
        sight(
            one,
            side.records.get(one.case),
            after,
            limits.of(one.kernel),
            same_device=side.stack.get("device") == device,
        ).shows
        for side in baselines
    ]
    judged = sum(each is not Shows.UNKNOWN for each in shows)
    if not judged:
        return one
    shown = shows.count(Shows.YES)
    rest = f" ({len(shows) - judged} more did not judge it)" if judged < len(shows) else ""
    text = f"seen in {shown} of {judged} baseline runs{rest}"
    return replace(one, baseline_runs=(shown, judged), detail="; ".join(filter(None, (text, one.detail))))
