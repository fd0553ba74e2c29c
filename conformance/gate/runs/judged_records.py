"""The parts of a run's records that a verdict on it needs, small enough to hold a million of them.

Mustpass lists, claims and waivers look at a run's cases in many orders. They need the outcome of each case, its stack
and target, and what failed; not its problem, its figures or the texts of what passed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from conformance.records import CaseRecord, Status, Verdict

_NOTHING: Mapping[str, Any] = {}


def judged_records(records: Iterable[CaseRecord]) -> list[CaseRecord]:
    """``records`` without what no verdict looks at. Equal parts of different records are one object."""
    shared: dict[Any, Any] = {}

    def one(value: Any, key: Any = None) -> Any:
        return shared.setdefault(value if key is None else key, value)

    def shortened(record: CaseRecord) -> CaseRecord:
        checks = tuple((v.check, v.passed, "" if v.passed else v.text) for v in record.verdicts)
        verdicts = shared.get(checks)
        if verdicts is None:
            verdicts = one(tuple(one(Verdict(*check, _NOTHING), check) for check in checks), checks)
        return CaseRecord(
            case=record.case,
            suite=one(record.suite),
            status=record.status,
            reason=one(record.reason),
            kernel=one(record.kernel),
            options=_NOTHING,
            target=one(record.target),
            executor=one(record.executor),
            tier=one(record.tier),
            seed=record.seed,
            stack=one(record.stack, repr(record.stack)),
            durations=_NOTHING,
            verdicts=verdicts,
            observed=_NOTHING,
            artefacts=_NOTHING,
            diagnosis="" if record.status is Status.PASS else record.diagnosis,
            fault=one(record.fault),
        )

    return [shortened(record) for record in records]
