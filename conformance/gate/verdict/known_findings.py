"""Says of each cause whether an earlier answer has it. That a cause is known changes nothing else in the answer."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from conformance.gate.earlier_answer import EarlierAnswer, EarlierCause
from conformance.gate.verdict.finding_signatures import signature
from conformance.user_files.findings import Comparison, Group, Kind, Severity

#: How many kernels and targets are named that an earlier answer has not.
PLACES_SHOWN = 5
#: Kinds of failures whose causes are worded alike.
_FAILING = (Kind.NEW_FAIL, Kind.NEW_CRASH, Kind.NONDETERMINISTIC, Kind.STILL_FAIL)
_NEW, _MORE, _KNOWN = "new", "in more kernels or targets", "known"


def with_known(comparison: Comparison, answers: Sequence[EarlierAnswer]) -> Comparison:
    """``comparison`` with what the earlier ``answers`` say of its regressions and warnings; itself without answers."""
    if not answers:
        return comparison
    answers = sorted(answers, key=lambda one: one.date or "9999")
    counts, groups = Counter[str](), []
    for group in comparison.groups:
        if group.severity is Severity.INFO:
            groups.append(group)
            continue
        state, text = _state(group, answers)
        counts[state] += group.severity is Severity.REGRESSION
        groups.append(replace(group, earlier=text, notes=(text, *group.notes)))
    return replace(
        comparison, groups=tuple(groups), history=(*comparison.history, _summary(comparison, answers, counts))
    )


def _state(group: Group, answers: Sequence[EarlierAnswer]) -> tuple[str, str]:
    """Returns the state of ``group`` (known or new), and a sentence about it."""
    name, as_kind = _earlier_name(group, answers)
    first = next((answer for answer in answers if name in answer.causes), None)
    if first is None:
        waived = {(one.case, group.kind.value) for one in group.findings}
        other = next((answer for answer in answers if waived <= answer.waived), None)
        if other:
            return _KNOWN, f"as in {other}, where waivers covered it"
        return _NEW, f"{'not in' if answers[-1].partial else 'new since'} {answers[-1]}"
    earlier = [answer.causes[name] for answer in answers if name in answer.causes]
    places = {place for one in earlier for place in one.places}
    more = sorted(
        {(one.kernel or "", one.target or "") for one in group.findings if (one.kernel, one.target) not in places}
    )
    then = as_kind + _then(group, earlier)
    if not more:
        return _KNOWN, f"as in {first}{then}"
    shown = ", ".join(" on ".join(filter(None, place)) for place in more[:PLACES_SHOWN])
    rest = f" and {len(more) - PLACES_SHOWN} more" if len(more) > PLACES_SHOWN else ""
    return _MORE, f"as in {first}{then}, and now also in {shown}{rest}"


def _earlier_name(group: Group, answers: Sequence[EarlierAnswer]) -> tuple[str, str]:
    """Returns the signature by which ``answers`` know ``group``, and a note if they know it as another kind. A case
    that newly failed then may fail on both sides now."""
    own = signature(group.kind, group.cause)
    signatures = {name for answer in answers for name in answer.causes}
    if own not in signatures and group.kind in _FAILING:
        for kind in _FAILING:
            if (name := signature(kind, group.cause)) in signatures:
                return name, f", there {kind.value}"
    return own, ""


def _then(group: Group, earlier: Sequence[EarlierCause]) -> str:
    """Returns the sentence that the cause was no regression then, if it is one now."""
    was_one = any(one.severity == Severity.REGRESSION.value for one in earlier)
    return (
        "" if was_one or group.severity is not Severity.REGRESSION else f", where it was only a {earlier[-1].severity}"
    )


def _summary(comparison: Comparison, answers: Sequence[EarlierAnswer], counts: Counter[str]) -> str:
    """Returns a sentence for the first screen: how many causes of regressions are new."""
    last, now = answers[-1], _present(comparison, answers[-1])
    gone = sum(one.severity == Severity.REGRESSION.value and name not in now for name, one in last.causes.items())
    total, new = counts.total(), "not in the earlier answer," if last.partial else "new"
    parts = [
        f"{_are(counts[_NEW])} {new} of {total} {'cause' if total == 1 else 'causes'} of regressions",
        f"{_are(counts[_MORE])} known and now in more kernels or targets",
        f"{_are(counts[_KNOWN])} as there",
        f"{_are(gone)} {'not compared now' if comparison.broken or comparison.narrowing else 'gone'}",
    ]
    shown = [
        parts[0],
        *(part for part, count in zip(parts[1:], (counts[_MORE], counts[_KNOWN], gone), strict=True) if count),
    ]
    return f"since {last}: {', '.join(shown)}"


def _present(comparison: Comparison, last: EarlierAnswer) -> set[str]:
    """Returns the signatures of the causes of ``last`` that ``comparison`` has, too. A failure may have another kind
    now, and waivers may cover more."""
    now = set[str]()
    for group in comparison.groups:
        kinds = _FAILING if group.kind in _FAILING else (group.kind,)
        now |= {signature(kind, group.cause) for kind in kinds}
        if group.kind is Kind.WAIVED:
            kind, cases = group.cause.partition(",")[0], {one.case for one in group.findings}
            now |= {name for name, one in last.causes.items() if name.startswith(f"{kind}-") and one.cases & cases}
    return now


def _are(count: int) -> str:
    return f"{count} {'is' if count == 1 else 'are'}"
