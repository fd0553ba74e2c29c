"""Cases whose compiled code needs more memory than the target has: not applicable, with the bytes that were measured.

A case that fitted and does not now has crossed the limit; one that fits again is fixed. What fits on neither side is
launched by nobody, so its code is not compared.
"""

from __future__ import annotations

from conformance.gate.changes.status_changes import Standing, finding, standing
from conformance.gate.findings import Finding, Kind
from conformance.gate.runs.run_reader import ComparedRecord
from conformance.records import ReasonCode, Status


def past_limit(record: ComparedRecord | None) -> bool:
    """Whether the code of a case was compiled and needs more memory than the target has. A refusal by estimate has no
    code."""
    return (
        record is not None
        and record.status is Status.NOT_APPLICABLE
        and record.reason.startswith(ReasonCode.SHARED_MEMORY.value)
        and record.resources is not None
    )


def limit_findings(before: ComparedRecord, after: ComparedRecord, became: Finding | None) -> list[Finding]:
    """The findings about a case with a side past the limit; ``became`` is the one about its statuses."""
    if past_limit(after):
        if standing(before) is Standing.ABSENT:  # past the limit, too, or refused: nobody lost it
            return []
        cause, needs = _past(after), (_needs(before), _needs(after))
        return [finding(Kind.LIMIT_CROSSED, after, cause, *needs, detail=after.reason_detail)]
    if standing(after) in (Standing.PASSED, Standing.COMPILED):
        return [finding(Kind.FIXED, after, f"was {_past(before)}", _needs(before), _needs(after))]
    return [became] if became else []


def _past(record: ComparedRecord) -> str:
    """Which limit a record is past, by the parts of its reason's sentence, such as "shared memory: 240000 bytes"."""
    which = sorted({part.partition(":")[0] for part in record.reason_detail.split("; ") if ":" in part})
    where = f" on {record.target}" if record.target else ""
    return f"past the limit of {', '.join(which) or 'memory'}{where}"


def _needs(record: ComparedRecord) -> str:
    return record.status.value if record.resources is None else f"{record.resources.shared_memory} bytes"
