"""A compact account of a run, to publish with its summary."""

from __future__ import annotations

import hashlib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from conformance.proof_level import ProofCount
from conformance.records import SCHEMA, CaseRecord, Status
from conformance.reporting.summary import is_verified

_GROUPS: Mapping[str, Callable[[CaseRecord], str]] = {
    "statuses": lambda record: "all",
    "kernels": lambda record: record.kernel or "(none)",
    "suites": lambda record: record.suite,
    "targets": lambda record: record.target or "(none)",
}


def digest(records: Iterable[CaseRecord]) -> dict[str, Any]:
    """Counts by status, in all and by kernel, suite and target. ``proven_by`` counts the cases that passed by what
    proves them. ``sha256`` is that of the sorted lines "case status".
    It is the same for two runs with the same outcomes. Their order, machine and duration do not count."""
    groups: dict[str, defaultdict[str, Counter[Status]]] = {name: defaultdict(Counter) for name in _GROUPS}
    lines: list[str] = []
    stacks: set[str] = set()
    verified: set[str] = set()
    proven = ProofCount()
    for record in records:
        lines.append(f"{record.case} {record.status.value}\n")
        stacks.add(", ".join(f"{name} {version}" for name, version in sorted(record.stack.items()) if version))
        verified |= {record.case} if is_verified(record) else set()
        proven.add(record)
        for name, key in _GROUPS.items():
            groups[name][key(record)][record.status] += 1
    lines.sort()

    def counts(name: str) -> dict[str, dict[str, int]]:
        return {key: {s.value: group[s] for s in Status if group[s]} for key, group in sorted(groups[name].items())}

    return {
        "schema": SCHEMA,
        "cases": len(lines),
        "verified": len(verified),
        "statuses": counts("statuses").get("all", {}),
        "proven_by": proven.by_name(),
        **{name: counts(name) for name in ("kernels", "suites", "targets")},
        "stacks": sorted(stacks),
        "sha256": hashlib.sha256("".join(lines).encode()).hexdigest(),
    }
