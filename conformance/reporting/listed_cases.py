"""Chooses the cases that a report lists, and counts all of them.

Records are looked at one at a time: a run may be larger than memory. The page must be one that a browser can open.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from conformance.records import CaseRecord, Status
from conformance.reporting import sweep
from conformance.reporting.noted_checks import NotedCheck, NotedChecks

#: Every status with what it means for the answer, the worst first. A case that was not run comes before a passed one,
#: because it proves nothing. A refusal to which the kernel is entitled comes last.
RANKED: Mapping[Status, str] = {
    Status.CRASH: "bad",
    Status.TIMEOUT: "bad",
    Status.OOM: "bad",
    Status.COMPILE_ERROR: "bad",
    Status.FAIL: "bad",
    Status.FLAKY: "bad",
    Status.UNEXPECTED_PASS: "bad",
    Status.EXPECTED_FAIL: "expected",
    Status.NOT_RUN: "unproven",
    Status.PASS: "good",
    Status.NOT_APPLICABLE: "outside",
}
RANK = {status: rank for rank, status in enumerate(RANKED)}

LISTED_LIMIT = 50_000  # cases of a run that is listed whole; of a larger one that many failing and that many others
PER_CELL = 20  # of the others, the cases of each suite, kernel, target, status and reason that are listed
CONFIGS_LIMIT = 100_000  # rows of the sweep over config spaces
_Cell = tuple[str, str | None, str | None, Status, str]


@dataclass
class ListedCases:
    """The listed cases of a run, and what all its cases say together.

    ``order`` are the indices of the listed records, the worst status first, then by case id. ``weights`` says how many
    cases each of them stands for. The first of its kind stands for those that are not listed, too, so that tables of
    counts are right. ``distinct`` is the number of different case ids, ``stack`` that of the first record. ``noted``
    are the checks that passed with a warning.
    """

    order: list[int] = field(default_factory=list)
    weights: list[int] = field(default_factory=list)
    statuses: Counter[Status] = field(default_factory=Counter)
    distinct: int = 0
    stack: Mapping[str, Any] = field(default_factory=dict)
    configs: list[sweep.Row] = field(default_factory=list)
    noted: list[NotedCheck] = field(default_factory=list)

    @property
    def recorded(self) -> int:
        return self.statuses.total()


def listed_cases(records: Sequence[CaseRecord], named: Collection[str] = ()) -> ListedCases:
    """Chooses from ``records``. Those of the cases ``named`` are listed like failing ones."""
    listed, configs, noted = ListedCases(), sweep.SweepRows(), NotedChecks()
    whole = len(records) <= LISTED_LIMIT
    cells: Counter[_Cell] = Counter()
    first: dict[_Cell, int] = {}  # index of the listed record that stands for its cell
    chosen: list[tuple[int, str, int]] = []
    shown: Counter[_Cell] = Counter()
    room = {True: LISTED_LIMIT, False: LISTED_LIMIT}  # for cases to read, and for examples of the others
    distinct: set[int] = set()  # hashes: a tenth of the memory of the ids
    for index, record in enumerate(records):
        if index == 0:
            listed.stack = record.stack
        listed.statuses[record.status] += 1
        distinct.add(hash(record.case))
        configs.add(record)
        noted.add(record)
        reason = record.reason.code.value if record.reason else ""
        cell = record.suite, record.kernel, record.target, record.status, reason
        cells[cell] += 1
        to_read = RANKED[record.status] in ("bad", "expected") or record.case in named
        if whole or (room[to_read] and (to_read or cells[cell] <= PER_CELL)):
            room[to_read] -= 1
            chosen.append((RANK[record.status], record.case, index))
            shown[cell] += 1
            first.setdefault(cell, index)
    listed.distinct, listed.configs, listed.noted = len(distinct), configs.rows(), noted.each()
    listed.order = [index for *_, index in sorted(chosen)]
    unlisted = {index: cells[cell] - shown[cell] for cell, index in first.items()}
    listed.weights = [1 + unlisted.get(index, 0) for index in listed.order]
    return listed
