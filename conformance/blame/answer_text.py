"""The answer about a case as text, and as data."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from conformance.blame.attribution import StageSpan
from conformance.blame.inquiry import Attribution, CaseAnswer, LaunchAnswer, OtherLaunch, PassBlame
from conformance.blame.symptoms import COMPILES, ORDERS
from conformance.reporting.text import text_table

#: What each stage is, in words.
MEANINGS = {
    "source": "the front end",
    "ttir": "the passes on TTIR",
    "ttgir": "TTIR to TTGIR",
    "llir": "TTGIR to LLVM IR",
    "ptx": "LLVM IR to PTX",
    "amdgcn": "LLVM IR to AMD assembly",
    "cubin": "ptxas",
    "hsaco": "AMD's assembler and linker",
}
#: How many passes are named, of those between two places where something could be measured.
SHOWN_PASSES = 6
WITHOUT_DEVICE = "judged without a device: no time and no result of the hardware was compared"


def text(answer: CaseAnswer) -> str:
    """Yields for each launch who is guilty of what differs. The first difference, and those that the user named, come
    with all that was measured, the others in a line."""
    lines = [answer.case, f"good: {answer.names[0]}; bad: {answer.names[1]}"]
    for launch in answer.launches:
        lines += ["", *_launch(launch, len(answer.launches) + len(answer.others) > 1)]
    if not answer.launches:
        lines += ["", "nothing that is looked at differs between the two stacks"]
    if answer.others:
        lines += ["", "not asked about, because another launch differs in more:"]
        lines += [f"  {other.function}: {_changes(other)}" for other in answer.others]
    if answer.together:
        lines += ["", _together(answer)]
    lines += ["", f"{WITHOUT_DEVICE}; {answer.seconds:.0f} s"]
    if answer.orders_why_not:
        lines.append(answer.orders_why_not)
    return "\n".join(lines)


def _changes(other: OtherLaunch) -> str:
    return "; ".join(f"{name} {_value(name, good)} -> {_value(name, bad)}" for name, good, bad in other.changes)


def _together(answer: CaseAnswer) -> str:
    return f"{ORDERS}, if all launches are those of {answer.names[1]}, and none of them alone: {answer.together[:300]}"


def _launch(launch: LaunchAnswer, several: bool) -> Iterator[str]:
    if several:
        yield f"{launch.function}:"
    others: dict[str, list[str]] = {}
    for place, one in enumerate(launch.attributions):
        change = f"{one.symptom} {_value(one.symptom, one.good)} -> {_value(one.symptom, one.bad)}"
        if place and not one.passes:
            others.setdefault(f"{guilty(launch.stages, one)} ({_agreement(launch.stages, one)})", []).append(change)
            continue
        yield f"{change}: {guilty(launch.stages, one)}"
        if one.text:
            yield f"  {one.text[:300]}"
        yield f"  {_agreement(launch.stages, one)}"
        for direction, passes in zip(("bad", "good"), one.passes, strict=False):
            yield f"  {_passes(direction, passes)}"
        begins = ("the bad compiler goes on behind the good one's", "the good compiler goes on behind the bad one's")
        rows = [("", "nothing", *launch.stages)]
        rows += [
            (begin, *(_value(one.symptom, value) for value in values))
            for begin, values in zip(begins, (one.into_bad, one.into_good), strict=True)
        ]
        yield from (f"  {line}" for line in text_table(rows).split("\n"))
    for who, changes in others.items():
        yield f"{who}: {'; '.join(changes)}"
    if launch.not_swapped:
        yield "not swapped, or in another way:"
        yield from (f"  {sentence}" for sentence in launch.not_swapped)


def summary(answer: CaseAnswer) -> str:
    """The answer in a line: of each launch the first difference, who is guilty, and of which passes."""
    sentences = []
    for launch in answer.launches:
        one = launch.attributions[0]
        change = f"{one.symptom} {_value(one.symptom, one.good)} -> {_value(one.symptom, one.bad)}"
        passes = dict.fromkeys(name for each in one.passes for name in each.bad)
        turns = f"; it turns with {_names(list(passes))}" if passes else ""
        who = f"{guilty(launch.stages, one)}, {_agreement(launch.stages, one)}"
        sentences.append(f"{launch.function}, {change}: {who}{turns}")
    sentences += [_together(answer)] if answer.together else []
    if not sentences:
        sentences = ["nothing that is looked at without a device differs"]
        sentences += [answer.orders_why_not] if answer.orders_why_not else []
    return "; ".join(sentences)


def guilty(stages: Sequence[str], one: Attribution) -> str:
    """Returns a text that names the stages guilty of a symptom."""
    blame = one.blame
    if blame.span is None:
        return "disagreement" if all(blame.by_direction) else "no single stage"
    return _span(stages, blame.span)


def _span(stages: Sequence[str], span: StageSpan) -> str:
    names = [MEANINGS[stage] for stage in stages[span.first - 1 : span.last]]
    return names[0] if len(names) == 1 else f"one of {'; '.join(names)}, which could not be separated"


def _agreement(stages: Sequence[str], one: Attribution) -> str:
    blame = one.blame
    said = "both directions agree" if blame.agreed else "only one direction could be measured"
    if blame.agreed is False:
        directions = [_span(stages, span) if span else "no single stage" for span in blame.by_direction]
        said = f"from the good one's text: {directions[0]}; from the bad one's: {directions[1]}"
    near = blame.beside if blame.span is not None else ()
    beside = ", ".join(f"{_span(stages, span)} ({span.share:.0%})" for span in near)
    return f"{said}; also {beside}" if beside else said


def _passes(direction: str, passes: PassBlame) -> str:
    begins = f"the {direction} compiler after passes of the other"
    if passes.why_not:
        return f"{begins}: {passes.why_not}"
    bad, good = (_names(names) for names in (passes.bad, passes.good))
    return f"{begins}: it turns with {bad}" if bad == good else f"{begins}: it turns with {bad} (good: {good})"


def _names(names: Sequence[str]) -> str:
    more = len(names) - SHOWN_PASSES
    return ", ".join([*names[:SHOWN_PASSES], *([f"{more} more"] if more > 0 else [])]) or "none"


def _value(symptom: str, value: float | None) -> str:
    if value is None:
        return "?"
    flag = symptom in (COMPILES, ORDERS) or symptom.startswith(("check ", "feature "))
    return ("yes" if value else "no") if flag else f"{value:g}"


def data(answer: CaseAnswer) -> dict[str, Any]:
    """Returns the answer as JSON has it: for each launch and symptom the guilty stages and all that was measured."""
    launches = []
    for launch in answer.launches:
        one = dataclasses.asdict(launch)
        for symptom, attribution in zip(one["attributions"], launch.attributions, strict=True):
            span = attribution.blame.span
            symptom["guilty"] = list(launch.stages[span.first - 1 : span.last]) if span else []
        launches.append(one)
    good, bad = answer.names
    others = [{"function": other.function, "changes": list(other.changes)} for other in answer.others]
    return {"case": answer.case, "target": answer.target, "good": good, "bad": bad, "launches": launches,
            "others": others, "together": answer.together, "named": answer.named,
            "orders_why_not": answer.orders_why_not, "seconds": answer.seconds}  # fmt: skip
