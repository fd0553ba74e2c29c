"""Checks that passed with a warning, once for each kernel."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

from conformance.records import CaseRecord


@dataclass(frozen=True)
class NotedCheck:
    """A check that ``cases`` of ``kernel`` passed with a warning. ``text`` is that of the first case."""

    kernel: str
    check: str
    text: str
    cases: int

    def __str__(self) -> str:
        number = f"{self.cases:,} case{'' if self.cases == 1 else 's'}"
        return f"{self.kernel}, {self.check} in {number}: {self.text}"


class NotedChecks:
    """Collects the warnings of records, one at a time."""

    def __init__(self) -> None:
        self._first: dict[tuple[str, str], tuple[str, str]] = {}
        self._cases: Counter[tuple[str, str]] = Counter()

    def add(self, record: CaseRecord) -> None:
        """Takes what ``record`` warns of."""
        for verdict in record.verdicts:
            if verdict.passed and verdict.details.get("severity") == "warn":
                key = record.kernel or "(none)", verdict.check
                self._cases[key] += 1
                self._first[key] = min(self._first.get(key, (record.case, verdict.text)), (record.case, verdict.text))

    def each(self) -> list[NotedCheck]:
        """Returns the warnings in the order of kernels."""
        return [NotedCheck(*key, self._first[key][1], self._cases[key]) for key in sorted(self._first)]
