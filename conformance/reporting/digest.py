"""A compact account of a run, to publish beside its summary."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from typing import Any

from conformance.records import SCHEMA, CaseRecord, Status
from conformance.reporting.summary import is_verified


def digest(records: Iterable[CaseRecord]) -> dict[str, Any]:
    """Counts by status, in all and by kernel, suite and target. ``sha256`` is that of the sorted lines "case status".
    It is the same for two runs with the same outcomes. Their order, machine and duration do not count."""
    records = list(records)
    lines = sorted(f"{record.case} {record.status.value}\n" for record in records)

    def counts(key: Callable[[CaseRecord], str]) -> dict[str, dict[str, int]]:
        groups: defaultdict[str, Counter[Status]] = defaultdict(Counter)
        for record in records:
            groups[key(record)][record.status] += 1
        return {name: {s.value: group[s] for s in Status if group[s]} for name, group in sorted(groups.items())}

    return {
        "schema": SCHEMA,
        "cases": len(records),
        "verified": len({record.case for record in records if is_verified(record)}),
        "statuses": counts(lambda record: "all").get("all", {}),
        "kernels": counts(lambda record: record.kernel or "(none)"),
        "suites": counts(lambda record: record.suite),
        "targets": counts(lambda record: record.target or "(none)"),
        "stacks": sorted({", ".join(f"{k} {v}" for k, v in sorted(r.stack.items()) if v) for r in records}),
        "sha256": hashlib.sha256("".join(lines).encode()).hexdigest(),
    }
