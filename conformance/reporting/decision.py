"""The facts for a person who decides by a comparison alone: what was not looked at, and what to do next."""

from __future__ import annotations

import re
from pathlib import Path

from conformance.gate.evidence.options import check_options
from conformance.gate.runs.run_reader import recorded_options
from conformance.gate.verdict.scope import DEVICE
from conformance.proof_level import ProofLevel
from conformance.records import RunInfo, Status
from conformance.reporting.comparison import refused
from conformance.reporting.first_line import many, narrowing_text, newly_failing, proof
from conformance.user_files.findings import Comparison, Group, Kind, Scope, Severity

#: Tiers that leave out no case of the suites.
WHOLE_TIERS = ("full", "exhaustive")


#: The line of a script that shows a fault in the candidate alone.
_CONFIRMED = re.compile(r": confirmed, the fault shows in the candidate(?: \(it [^()]*\))? and not in the baseline$")
#: Regressions that make nothing wrong.
COST_TIME = {Kind.FEATURE_LOST, Kind.ACCUMULATOR_MOVED, Kind.MORE_SPILLS, Kind.LESS_OCCUPANCY, Kind.SLOWER}


def not_looked_at(comparison: Comparison, info: RunInfo | None, folder: Path) -> list[str]:
    """Returns a sentence for each reason for which the comparison says less than it seems to. ``info`` and ``folder``
    are those of the candidate's run."""
    side, sentences = comparison.candidate, []
    options = recorded_options(folder) or ()
    if narrowing := check_options(options, {}).narrowing:
        sentences.append(f"Options left cases out, and only what they name was run: {', '.join(narrowing)}.")
    if tier := _sample(comparison, info):
        sentences.append(f"The {tier} tier is a sample of the cases; --tier full has all of them.")
    if "--compile-only" in options or "--conformance-compile-only" in options:
        sentences.append("Nothing was run (--compile-only): code was compiled and inspected, no result was computed.")
    elif _without_gpu(comparison):
        sentences.append(
            f"No case was judged on a GPU: {_without_device(comparison.scope)}, and no time of a kernel was compared."
        )
    elif on_device := comparison.scope.levels.get(DEVICE, 0):
        rest = comparison.scope.judged - on_device
        if rest:
            sentences.append(f"{many(rest, 'judged case')} did not run on a device on both sides.")
    if info and info.targets:
        sentences.append(f"Only these targets were compiled for: {', '.join(info.targets)}.")
    for status, what in ((Status.NOT_RUN, "could not be run here"), (Status.NOT_APPLICABLE, "were refused")):
        if count := side.statuses.get(status.value):
            sentences.append(
                f"{count} of the candidate's {side.cases} cases {what} ({status.value}): see the reasons below."
            )
    if both := refused(comparison.scope):
        sentences.append(f"{both}.")
    return [*sentences, *(f"{warning[:1].upper()}{warning[1:]}." for warning in comparison.warnings)]


def reach(comparison: Comparison, info: RunInfo | None) -> str:
    """Returns the reach of the answer in few words, then how many cases were judged and what they prove. The reach is
    such as "only 24 of 1,373 cases (--kernel mm), quick tier, no GPU"."""
    sample, narrowed = _sample(comparison, info), narrowing_text(comparison)
    parts = [f"only {narrowed}" if narrowed else "", f"{sample} tier" if sample else ""]
    parts.append("no GPU" if _without_gpu(comparison) else "")
    scope = comparison.scope
    proven = f"{scope.judged} of {scope.cases} cases: {'; '.join(proof(scope))}" if scope.cases else ""
    return "; ".join(filter(None, [", ".join(filter(None, parts)), proven]))


def meaning(comparison: Comparison, group: Group) -> str:
    """Returns the meaning of a group, and for wrong results what computed them."""
    interpreted = group.kind is Kind.NEW_FAIL and group.cause.startswith("numerics/") and _without_gpu(comparison)
    return f"{group.meaning} Triton's interpreter computed it, no GPU." if interpreted else group.meaning


def next_steps(comparison: Comparison, info: RunInfo | None) -> list[str]:
    """Returns the steps that the reader can take now, one sentence each, the first thing first. If a side has to run
    again, nothing else is advised: what was compared is no answer."""
    kinds = {group.kind for group in comparison.regressions}
    steps = [
        f"Run the {broken.side} again: it is no answer ({broken.fault_class.value})." for broken in comparison.broken
    ]
    if steps:
        return steps
    judged = kinds - {Kind.LOST_COVERAGE}
    if judged and judged <= COST_TIME and not comparison.newly_failing:
        steps.append(f"{_no_failure(comparison)}Keep the baseline where that matters.")
    elif judged:
        steps.append("Keep the baseline where you use the kernels and targets of the regressions.")
    if Kind.NEW_KNOWN_DEFECT in kinds:
        steps.append(_about_known_defects(comparison))
    if comparison.objections:
        steps.append("Read what else speaks against the candidate, under Changes: some of it may be put right.")
    if Kind.LOST_COVERAGE in kinds:
        steps.append("Remove what keeps the cases of LOST_COVERAGE from being judged, and run the gate again.")
    if kinds:
        steps.append(
            "Open a cause: it lists its cases. The page of a case shows what is wrong, the code of both stacks and the "
            "command that runs it again."
        )
    if any(_CONFIRMED.search(script) for script in comparison.scripts):
        steps.append("Send a confirmed script to the makers of the component: it needs torch and triton alone.")
    if kinds:
        steps.append(
            "Accept a regression that is none of your concern in a file for --waivers, with a reason and date."
        )
    if not comparison.safe:
        return steps
    if not comparison.scope.judged:
        return [
            "Find out why no case was judged on both sides, and run the gate again: nothing speaks for the candidate."
        ]
    if comparison.newly_failing:
        steps.append(
            f"Read which cases newly fail before you rely on the candidate ({newly_failing(comparison)}): what they "
            "fail by only warns, or your waivers accept it."
        )
    steps.append("Replace the baseline, as far as the limits next to this list allow.")
    if any(group.severity is Severity.WARNING for group in comparison.groups):
        steps.append("Read the warnings under Changes first: they fail nothing.")
    if _without_gpu(comparison):
        steps.append("Run the gate on a GPU before you rely on speed, or on results of the hardware itself.")
    if _sample(comparison, info):
        steps.append("Run the gate with --tier full before a release.")
    return steps


def _about_known_defects(comparison: Comparison) -> str:
    """Returns a sentence on what to do about failures by known defects: wait for the releases that mend them, as far as
    entries say so."""
    regressions = (one for group in comparison.regressions for one in group.findings)
    releases = sorted({one.defect.fixed_in for one in regressions if one.defect and one.defect.fixed_in})
    mended = f"; the release that mends it, where one is known, is {' or '.join(releases)}" if releases else ""
    return f"Follow the links of the known defects: that a defect is known does not make the candidate safe{mended}."


def _sample(comparison: Comparison, info: RunInfo | None) -> str | None:
    """The candidate's tier if it is a sample of the cases."""
    tier = comparison.candidate.tier or (info.tier if info else None)
    return None if tier in WHOLE_TIERS else tier


#: What a warning of a kind may come to.
_RISKS = {
    Kind.UNDEFINED_LANES: "nothing promises that such lanes stay 0",
    Kind.SYNC_CHANGED: "what waits less often may race",
}


def _no_failure(comparison: Comparison) -> str:
    """Returns a sentence on what got worse and that nothing newly fails, if every case could be judged and nothing else
    speaks against the candidate."""
    worse = "what got worse may cost time. "
    kinds = {group.kind for group in comparison.groups}
    if Kind.LOST_COVERAGE in kinds or comparison.objections:
        return f"Of what was judged, {worse}"
    to_read = [f"Read what {kind.value} says: {risk}. " for kind, risk in _RISKS.items() if kind in kinds]
    return f"No new failure was seen{', and' if to_read else ':'} {worse}{''.join(to_read)}"


def _without_gpu(comparison: Comparison) -> bool:
    """Returns True if no case was judged on a device on both sides. A device in a run's stack says nothing of its
    cases."""
    return DEVICE not in comparison.scope.levels


def _without_device(scope: Scope) -> str:
    """Returns a text of what judged the cases instead of a device."""
    texts = {
        ProofLevel.EXECUTED.words: "the TTGIR of compiled kernels was run, and what is below it was inspected alone",
        ProofLevel.INTERPRETED.words: "Triton's interpreter ran the source of kernels",
        ProofLevel.COMPILED.words: "code was compiled and inspected",
    }
    ways = [text for level, text in texts.items() if scope.levels.get(level)]
    return "; ".join(ways) or "no kernel was run"
