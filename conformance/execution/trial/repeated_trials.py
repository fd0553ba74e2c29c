"""One launch judged several times: what comes and goes shows as trials that differ."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from msgspec.structs import replace

from conformance.execution.trial.trial import UNLESS_DECLARED, Trial
from conformance.records import Check, CheckKind, Verdict


def repeated(judge: Callable[[], Trial], repeats: int) -> Trial:
    """The trial that stands for ``repeats`` trials, each made by ``judge``; one trial is left as it is.

    It is the first that failed, and its failing verdicts say which one it was; the first of all if none did. All trials
    must agree in every bit of each fill's first output, where the contract promises that. A fill in which two differ
    fails the check ``repeat/<fill>``.
    """
    first = judge()
    if repeats == 1:
        return first
    failed = (1, first) if not first.passed else None
    differing: dict[str, int] = {}
    for number in range(2, repeats + 1):
        latest = judge()
        if failed is None and not latest.passed:
            failed = number, latest
        for fill in _differing(first.digests, latest.digests):
            differing.setdefault(fill, number)
    chosen = first if failed is None else _numbered(failed[1], f"trial {failed[0]} of {repeats}")
    checks = {verdict.check for verdict in chosen.verdicts}
    for fill, number in differing.items():
        check = str(Check(CheckKind.REPEAT, fill))
        if check not in checks:
            text = (
                f"trials 1 and {number} of {repeats} of one input differ: the kernel is not deterministic; "
                f"{UNLESS_DECLARED}"
            )
            chosen.verdicts.append(Verdict(check, False, text))
    if not differing:
        chosen.verdicts.append(Verdict(str(Check(CheckKind.REPEAT)), True, f"{repeats} trials agree in every bit"))
    return chosen


def _differing(first: Mapping[str, str], latest: Mapping[str, str]) -> list[str]:
    """Returns the fills whose outputs have other digests."""
    return [fill for fill, digest in first.items() if latest.get(fill) != digest]


def _numbered(trial: Trial, which: str) -> Trial:
    """``trial`` with ``which`` before the text of each verdict that failed."""
    trial.verdicts = [
        verdict if verdict.passed else replace(verdict, text=f"{which}: {verdict.text}") for verdict in trial.verdicts
    ]
    return trial
