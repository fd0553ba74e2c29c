"""Cases whose compiled code needs more memory than the target has: not applicable, with the bytes that were measured.

A case that fitted and does not now has crossed the limit; one that fits again is fixed, and so is one that compiles for
the first time. What fits on neither side is never launched, so its code is not compared.
"""

from __future__ import annotations

from collections.abc import Collection

from conformance.gate.changes.occupancy import shared_memory_text
from conformance.gate.changes.status_changes import Standing, finding, never_compiled, standing
from conformance.gate.shortened_text import first_words
from conformance.records import CaseRecord, ReasonCode, Status
from conformance.user_files.findings import Finding, Kind


def past_limit(record: CaseRecord | None) -> bool:
    """True if the code of a case was compiled and needs more memory than the target has. A refusal by estimate has no
    code."""
    return (
        record is not None
        and record.status is Status.NOT_APPLICABLE
        and record.reason is not None
        and record.reason.code is ReasonCode.SHARED_MEMORY
        and record.figures.resources is not None
    )


def limit_findings(before: CaseRecord, after: CaseRecord, became: Finding | None) -> list[Finding]:
    """The findings about a case with a side past the limit; ``became`` is the one about its statuses."""
    if past_limit(after):
        if standing(before) is Standing.ABSENT:  # past the limit, too, or refused: it was not lost
            return []
        cause, limits = _past(after), crossed(after.reason_detail)
        needs = needed(before, limits), needed(after, limits)
        if never_compiled(before):
            return [finding(Kind.FIXED, after, f"did not compile, and is {cause} now", *needs)]
        return [finding(Kind.LIMIT_CROSSED, after, cause, *needs, detail=first_words(after.reason_detail, 500))]
    if standing(after) in (Standing.PASSED, Standing.COMPILED):
        limits = crossed(before.reason_detail)
        return [finding(Kind.FIXED, after, f"was {_past(before)}", needed(before, limits), needed(after, limits))]
    return [became] if became else []


def crossed(text: str) -> list[str]:
    """Returns the limits that ``text`` names, sorted. It has a sentence for each, such as "shared memory: 240000 bytes
    per block, sm_90 has 232448", with "; " between.

    >>> crossed("shared memory: 240000 bytes per block, 232448 allowed")
    ['shared memory']
    """
    return sorted({part.partition(":")[0].strip()[:40] for part in text.split("; ") if ":" in part})


def needed(record: CaseRecord, limits: Collection[str]) -> str:
    """Returns the amount of each of ``limits``, as :func:`crossed` names them, that the code of ``record`` needs; the
    record's status where that is not known."""
    used = record.figures.resources
    if used is None:
        return record.status.value
    texts = {
        "shared memory": f"{shared_memory_text(record.target, used.shared_memory)} of shared memory",
        "tensor memory": f"{used.tensor_memory} columns of tensor memory",
        "registers": f"{used.registers} registers for each of {used.threads} threads",
    }
    return ", ".join(text for name, text in texts.items() if name in limits) or record.status.value


def _past(record: CaseRecord) -> str:
    where = f" on {record.target}" if record.target else ""
    return f"past the limit of {', '.join(crossed(record.reason_detail)) or 'memory'}{where}"
