"""Describes what the failure of a record does, and the known defect by which a case fails as an entry expects.

Both follow from the record: from its failing checks, or, where none failed, from the status that the failure had before
an entry excused it. What they do not tell is unknown. Of several failing checks the worst counts.
"""

from __future__ import annotations

import re

from conformance.gate.runs.failure_causes import compiler_cause
from conformance.records import CaseRecord, Check, CheckKind, Status
from conformance.user_files.findings import Harm, KnownDefect

_OF_KIND = {
    CheckKind.NUMERICS: Harm.WRONG,
    CheckKind.UNDEFINED_LANES: Harm.WRONG,
    CheckKind.MEMORY: Harm.MEMORY,
    CheckKind.RACES: Harm.RACE,
    CheckKind.REPEAT: Harm.RACE,
    CheckKind.REQUIRES: Harm.FEATURE_LOST,
    CheckKind.FORBIDS: Harm.FEATURE_LOST,
    CheckKind.RESOURCES: Harm.TOO_LARGE,
    CheckKind.SPILLS: Harm.SPILLS,
    CheckKind.COMPILE: Harm.NOT_COMPILED,
}
#: Of checks of the code, by the first part of what they look at.
_OF_CODE = {
    **dict.fromkeys(("operand-slots", "lds-across-barrier", "wgmma-wait", "order"), Harm.RACE),
    **dict.fromkeys(("repeated-k", "operand-order", "operands", "products", "sums", "tiles", "promotion"), Harm.WRONG),
}
#: Faults that end a run of TTGIR, by words of their texts; "nobody has waited" in records of older versions.
_OF_RUN = (
    *(("deadlock", Harm.CRASH), ("no end after", Harm.CRASH)),
    *(("before anybody waited", Harm.RACE), ("which wrote it", Harm.RACE), ("may still be", Harm.RACE)),
    *(
        ("ends without a wait", Harm.RACE),
        ("nobody has waited", Harm.RACE),
        ("arrivals and has them", Harm.RACE),
        ("still waits for", Harm.RACE),
    ),
    *(("outside of every operand", Harm.MEMORY), (" touches ", Harm.MEMORY)),
)
#: The forbidden feature that is counted as a figure.
_SPILL = "SPILL"
#: What a diagnosis says of an exception that the kernel itself raised: in the interpreter, or as it was compiled.
_RAISED = "CAUSE the kernel raises "
_LINK = re.compile(r"https://[^\s,]+")
_STOPPED = (Status.CRASH, Status.TIMEOUT, Status.OOM)


def harm_of(record: CaseRecord) -> Harm:
    """Returns the harm that the failure of ``record`` does to users of its kernel."""
    harms = [harm for check, text in record.failing if (harm := harm_of_check(Check.parse(check), text))]
    status = _status(record)
    if status in _STOPPED:
        compiled = record.executor is not None or record.figures.resources is not None
        harms.append(Harm.CRASH if compiled else Harm.NOT_COMPILED)
    elif status is Status.FLAKY:
        harms.append(Harm.RACE)
    elif not harms and (status is Status.COMPILE_ERROR or compiler_cause(record.diagnosis)):
        harms.append(Harm.NOT_COMPILED)
    elif not harms and _RAISED in record.diagnosis:
        harms.append(Harm.RAISES)
    return min(harms, key=[*Harm].index, default=Harm.UNKNOWN)


def known_defect(record: CaseRecord) -> KnownDefect:
    """The defect by which the case of ``record``, an expected failure, fails."""
    entry = record.figures.expected_failure
    _, _, subject = record.reason_name.partition(" ")
    link = entry.upstream if entry else next(iter(_LINK.findall(record.reason_detail)), "")
    return KnownDefect(subject.strip("()"), harm_of(record), link, entry.fixed_in if entry else "")


def words_of(record: CaseRecord) -> str:
    """Returns the text of ``record``, an expected failure: its first failing check, else its diagnosis without the name
    of its entry."""
    if record.failing:
        check, text = record.failing[0]
        return f"{check}: {text}"
    _, _, diagnosis = record.diagnosis.partition("\n")
    return compiler_cause(diagnosis) or diagnosis


def _status(record: CaseRecord) -> Status | None:
    """The status of ``record`` before an entry excused it; None if the record does not say it."""
    if record.status is not Status.EXPECTED_FAIL:
        return record.status
    return record.figures.expected_failure.status if record.figures.expected_failure else None


def harm_of_check(check: Check, text: str = "") -> Harm | None:
    """Returns the harm that ``check`` shows by failing with this ``text``; None for a check that only explains
    others."""
    if check.kind is CheckKind.DIAGNOSIS:
        return None
    if check.kind is CheckKind.EXECUTED:
        return _harm_of_run(check.subject, text)
    if check.kind is CheckKind.FORBIDS and check.subject == _SPILL:
        return Harm.SPILLS
    if check.kind is CheckKind.CODEGEN:
        return _OF_CODE.get(check.subject.partition("/")[0], Harm.UNKNOWN)
    return _OF_KIND.get(check.kind, Harm.UNKNOWN)


def _harm_of_run(subject: str, text: str) -> Harm:
    """Returns the harm of a fault that running TTGIR, or comparing its layouts, showed. A check of a run has its own
    name below the stage's. Values in other layouts than operations take them are wrong numbers."""
    stage, _, check = subject.partition("/")
    if check:
        return harm_of_check(Check.parse(check), text) or Harm.UNKNOWN
    if stage == "layouts":
        return Harm.WRONG
    return next((harm for words, harm in _OF_RUN if words in text), Harm.UNKNOWN)
