"""The check ``undefined-lanes``: lanes that the mask of a load leaves without a value, and that reach a result.

Triton leaves such lanes undefined, so in the interpreter they are NaN. If the code of the target gives them 0, the case
is judged with 0, and the check says what was seen. Otherwise they stay NaN, and the case fails.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from conformance.execution.compile.masked_loads import NOT_SHOWN, ZERO, masked_values, places_without_value
from conformance.execution.interpreter.accesses import UndefinedLanes
from conformance.execution.interpreter.lane_words import lane_words
from conformance.execution.trial.trial import Trial
from conformance.judging.harness import Harness
from conformance.kernels.kernel import Kernel, Plan
from conformance.problems import Problem
from conformance.records import Check, CheckKind, Verdict

NAME = str(Check(CheckKind.UNDEFINED_LANES))


def judged_lanes(
    harness: Harness, kernel: Kernel, plan: Plan, fills: tuple[str, ...] | None, trial: Trial, llir: Iterable[str]
) -> tuple[Trial, list[Verdict]]:
    """Returns the trial of ``plan`` with the values that the code gives to undefined lanes, and the verdict about them.
    ``trial`` is that in which all of them are NaN; it is returned as it is if none reaches a result. ``llir`` are the
    texts of the plan's compiled launches."""
    places, severity = trial.lanes.undefined, trial.contract.undefined_lanes
    if not places or (trial.passed and severity != "zero"):
        return trial, []
    shown = masked_values(llir)
    values = {place: shown.get(place, NOT_SHOWN) for place in places}
    zero = frozenset(place for place, value in values.items() if value == ZERO)
    reaching = [] if trial.passed else _reaching(harness, kernel, plan, trial)
    if severity == "zero" and zero != places.keys():
        broken = {place: places[place] for place in places if place not in zero}
        text = (
            f"{_words(plan.problem, broken)} without a value: by the contract it is 0, {_given(plan, values, broken)}"
        )
        verdict = Verdict(NAME, False, text)
    elif severity == "zero":
        verdict = Verdict(NAME, True, f"0, as the contract says: {', '.join(sorted(places))}")
    elif not reaching:
        return trial, []
    else:
        lanes = {place: places[place] for place in reaching}
        text = f"{_words(plan.problem, lanes)}, reach the result: {_given(plan, values, lanes)}"
        passed = severity != "error" and zero >= lanes.keys()
        verdict = Verdict(NAME, passed, text, {"severity": "warn" if passed else "error"})
    again = harness.trial(kernel, plan, fills, zero) if zero and reaching else trial
    hidden = severity == "off" and verdict.passed
    return again, [] if hidden else [verdict]


def lanes_of_code(plan: Plan, severity: str, ttir: Iterable[str], llir: Iterable[str]) -> tuple[str, list[Verdict]]:
    """Returns what is not known of undefined lanes if only the TTGIR of ``plan`` is run, in which they are 0. It is ""
    if the code gives 0 to all. Then follows the verdict that notes them. ``severity`` is that of the contract."""
    places = sorted(places_without_value(ttir))
    shown = masked_values(llir) if places else {}
    unknown = [place for place in places if shown.get(place, NOT_SHOWN) != ZERO]
    if unknown:
        return f"lanes that the mask of {unknown[0]} leaves without a value", []
    if not places or severity == "off":
        return "", []
    if severity == "zero":
        return "", [Verdict(NAME, True, f"0, as the contract says: {', '.join(places)}")]
    text = f"lanes ({', '.join(places)}), which the mask leaves without a value, may reach the result: the source was "
    text += f"not run, and the code for {plan.target.id} gives them 0"
    return "", [Verdict(NAME, severity != "error", text, {"severity": "error" if severity == "error" else "warn"})]


def _reaching(harness: Harness, kernel: Kernel, plan: Plan, trial: Trial) -> list[str]:
    """Returns the lines whose undefined lanes reach a result of the first wrong fill. If those of the line are NaN and
    all others 0, the result is not the one that it is if all are 0. Lines of which none does so alone may do so
    together, as integers that are multiplied: these are all lines."""
    checks = [Check.parse(verdict.check) for verdict in trial.verdicts if not verdict.passed]
    wrong = [check for check in checks if check.kind in (CheckKind.NUMERICS, CheckKind.REPEAT) and check.subject]
    if not wrong:
        return []
    fill = (wrong[0].subject.partition("/")[0],)
    every = frozenset(trial.lanes.undefined)
    right = harness.trial(kernel, plan, fill, every)
    if not _differ(right, trial):
        return []
    alone = [place for place in every if _differ(right, harness.trial(kernel, plan, fill, every - {place}))]
    return sorted(alone or every)


def _differ(first: Trial, second: Trial) -> bool:
    """True if a verdict about the first trial's fill is another one in the second."""
    texts = {verdict.check: verdict.text for verdict in second.verdicts}
    numbers = [verdict for verdict in first.verdicts if verdict.check.startswith(CheckKind.NUMERICS.value)]
    repeats = any(
        verdict.check.startswith(CheckKind.REPEAT.value) and not verdict.passed for verdict in second.verdicts
    )
    return repeats or any(texts.get(verdict.check) != verdict.text for verdict in numbers)


def _given(plan: Plan, values: Mapping[str, str], places: Iterable[str]) -> str:
    given = dict.fromkeys(values[place] for place in places)
    return f"the code for {plan.target.id} gives them {' and '.join(given)}"


def _words(problem: Problem, lanes: Mapping[str, UndefinedLanes]) -> str:
    """Returns such as "k 33 to 63 of a (mm.py:24), which the mask leaves without a value"."""
    texts = [f"{lane_words(problem, of_operands) or 'lanes'} ({place})" for place, of_operands in lanes.items()]
    return f"{' and '.join(texts)}, which the mask leaves without a value"
