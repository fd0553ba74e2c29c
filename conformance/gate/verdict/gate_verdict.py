"""The verdict of the gate: comparison, waivers, claims and mustpass lists as one answer with its reasons.

The user's waivers, mustpass lists and claims are applied here too.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from enum import Enum

from conformance.gate.mustpass.mustpass_check import Headline, MustpassCheck
from conformance.gate.mustpass.profiles import Claim, State
from conformance.gate.verdict.apply_waivers import AppliedWaivers, WaivedCase, suggested
from conformance.gate.verdict.group_notes import grouped, noted
from conformance.user_files.findings import Comparison, Finding, Group, Kind, Severity

#: How many cases of a reason are named; the others are counted.
CASES_SHOWN = 5


class Part(str, Enum):
    """The part of a comparison that a reason is about. The order is that of a report."""

    RUN = "run"  # what was read cannot be relied on, so nothing below can either
    REGRESSION = "regression"
    MUSTPASS = "mustpass"
    CLAIM = "claim"
    WAIVER = "waiver"


@dataclass(frozen=True)
class GateReason:
    """One reason to refuse the candidate. ``cases`` are the ids of its cases; ``details`` has a text for each of them,
    or is empty. ``edit`` is what the user can change in a file, as text to print."""

    part: Part
    text: str
    cases: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    edit: str = ""

    def lines(self) -> list[str]:
        """Returns the reason as lines of text: what it says, its first cases, and the edit."""
        named = [f"{case}: {text}" for case, text in zip(self.cases, self.details, strict=False)] or self.cases
        lines = [f"{self.part.value}: {self.text}", *(f"    {case}" for case in named[:CASES_SHOWN])]
        lines += [f"    and {len(self.cases) - CASES_SHOWN} more"] if len(self.cases) > CASES_SHOWN else []
        return [*lines, *(f"    {line}" for line in self.edit.splitlines())]


@dataclass(frozen=True)
class GateVerdict:
    """The gate's answer, pass or not, and all that a report says of it. ``notes`` fail nothing."""

    reasons: tuple[GateReason, ...]
    headlines: tuple[Headline, ...]
    claims: tuple[Claim, ...]
    waived: tuple[WaivedCase, ...]
    notes: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return not self.reasons


def decide(
    *,
    comparison: Comparison | None = None,
    waivers: AppliedWaivers | None = None,
    checked: MustpassCheck | None = None,
    claims: Sequence[Claim] = (),
    not_claimed: Sequence[tuple[str, str]] = (),
    run_problems: Sequence[str] = (),
    passing: Sequence[str] = (),
) -> GateVerdict:
    """The verdict of the gate. The candidate fails if

    * the run has a problem,
    * it has a regression that no waiver covers,
    * it differs from the mustpass lists,
    * a claim is not proven, or
    * a waiver does not hold.

    ``passing`` are the candidate's passing cases, which a suggested waiver leaves out.
    """
    waivers = waivers or AppliedWaivers(uncovered=comparison.regressions if comparison else ())
    problems = list(run_problems)
    if comparison:
        candidate = comparison.candidate
        problems += [*comparison.objections, *(f"{candidate.name}: {problem}" for problem in candidate.problems)]
    reasons = [GateReason(Part.RUN, text) for text in problems]
    reasons += [_regression(group, comparison, passing) for group in waivers.uncovered if comparison]
    if checked:
        reasons += [GateReason(Part.MUSTPASS, text) for text in checked.lacking]
        reasons += [
            GateReason(Part.MUSTPASS, difference.title, difference.cases, difference.outcomes)
            for difference in checked.differences
        ]
    order = (State.FAILED, State.NOT_PROVEN)
    bad = sorted((claim for claim in claims if claim.state in order), key=lambda claim: order.index(claim.state))
    reasons += [GateReason(Part.CLAIM, str(claim), claim.cases) for claim in bad]
    reasons += [GateReason(Part.WAIVER, str(problem), edit=problem.edit) for problem in waivers.problems]
    return GateVerdict(
        tuple(reasons),
        checked.headlines if checked else (),
        tuple(claims),
        waivers.waived,
        (*waivers.notes, *(f"{target}: {profile} is shown and not claimed" for target, profile in not_claimed)),
    )


def _regression(group: Group, comparison: Comparison, passing: Sequence[str]) -> GateReason:
    cases = tuple(finding.case for finding in group.findings)
    text = f"{group.kind.value}: {group.cause} ({len(cases)} {'case' if len(cases) == 1 else 'cases'})"
    return GateReason(Part.REGRESSION, text, cases, edit=suggested(group, comparison, passing))


def lines(verdict: GateVerdict) -> list[str]:
    """Returns the verdict as text, worst first: the first cases of each reason. Records and files are quoted as they
    are, so clean it before it is printed."""
    text = [f"gate: {'passed' if verdict.passed else f'FAILED, {len(verdict.reasons)} reasons'}"]
    text += [str(headline) for headline in verdict.headlines]
    for state in State:
        count = sum(claim.state is state for claim in verdict.claims)
        text += [f"claims {state.value}: {count} of {len(verdict.claims)}"] if count else []
    for reason in verdict.reasons:
        text += reason.lines()
    text += [f"waived: {case.kind.value} {case.case}: {case.waiver.reason} ({case.waiver})" for case in verdict.waived]
    text += [f"claim: {claim}" for claim in verdict.claims if claim.state in (State.PROVEN, State.EXCUSED)]
    return [*text, *(f"note: {note}" for note in verdict.notes)]


_COMPARED = (Part.RUN, Part.REGRESSION)


def with_policy(comparison: Comparison, verdict: GateVerdict, uncovered: Iterable[Group]) -> Comparison:
    """``comparison`` as ``verdict`` leaves it.

    Its regressions are the ``uncovered`` ones. Those that waivers cover become findings of the kind WAIVED. The reasons
    of ``verdict`` that a comparison does not know, such as an unproven claim, become objections; its notes, warnings.
    """
    others = [group for group in comparison.groups if group.severity is not Severity.REGRESSION]
    findings = [finding for group in (*uncovered, *others) for finding in group.findings]
    regressions = {(one.case, one.kind): one for group in comparison.regressions for one in group.findings}
    findings += [_waived_finding(waived, regressions.get((waived.case, waived.kind))) for waived in verdict.waived]
    objections = tuple("\n".join(reason.lines()) for reason in verdict.reasons if reason.part not in _COMPARED)
    return replace(
        comparison,
        groups=noted(grouped(findings), comparison.assemblers, comparison.own_thresholds, comparison.groups),
        warnings=(*comparison.warnings, *verdict.notes),
        objections=(*comparison.objections, *objections),
    )


def _waived_finding(waived: WaivedCase, regression: Finding | None) -> Finding:
    """Returns the finding that keeps a waived case visible. It has the subject of the ``regression``, if any, and says
    with it whether the case newly fails."""
    cause = f"{waived.kind.value}, {waived.waiver.reason} ({waived.waiver})"
    if regression is None:
        return Finding(Kind.WAIVED, waived.case, None, None, cause, "", waived.text)
    return replace(
        regression, kind=Kind.WAIVED, cause=cause, before="", after=waived.text, ratio=None, detail="", from_zero=0.0
    )
