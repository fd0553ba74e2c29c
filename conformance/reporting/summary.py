"""Counts the records of a run for its summary."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from conformance.proof_level import ProofCount, ttgir_was_right
from conformance.records import CaseRecord, RunInfo, Status
from conformance.reporting.failure_groups import FailureGroup, FailureGroups
from conformance.reporting.noted_checks import NotedCheck, NotedChecks

SLOWEST = 5  # cases listed by duration
_SKIPS = (Status.NOT_APPLICABLE, Status.NOT_RUN)
FAILURES = tuple(status for status in Status if status not in (Status.PASS, Status.EXPECTED_FAIL, *_SKIPS))


#: How many records have each status, by a name.
Groups = defaultdict[str, Counter[Status]]


@dataclass(frozen=True)
class ExpectedEntry:
    """An expected failure and the ids of the cases that failed as it says. ``detail`` is the sentence of their reason:
    where the defect is reported, who looks after the entry, and when it expires."""

    id: str
    detail: str
    cases: Sequence[str]

    @property
    def link(self) -> str:
        """Returns the address at which the defect is reported."""
        return self.detail.partition(", ")[0]


@dataclass(frozen=True)
class Summary:
    """The contents of a summary. ``verified`` counts the distinct verified cases (see :func:`is_verified`), the unit of
    the rate. ``busy_s`` and ``gpu_busy_s`` map a worker or GPU to the seconds that it spent on cases. ``skips`` counts
    the reasons of cases that were refused or not run, by their status. ``failures`` are the groups of failing cases,
    the gravest first, ``expected`` the entries that cases failed by. Cases are in the order of their ids. ``executed``
    cases had the TTGIR of their compiled kernels run, and ``wrong`` of them were wrong; ``unknown`` counts the others
    by what is not known; the layouts of ``layouts`` cases were checked. ``unknown_order`` counts by kind the cases of
    which that order of the code is not known. ``proven`` counts the cases that passed by what proves them. ``noted``
    are the checks that passed with a warning, ``notes`` lines about how the run went."""

    run: RunInfo
    statuses: Mapping[Status, int]
    by_kernel: Mapping[str, Mapping[Status, int]]
    by_suite: Mapping[str, Mapping[Status, int]]
    skips: Mapping[Status, Mapping[str, int]]
    verified: int
    busy_s: Mapping[str, float]
    gpu_busy_s: Mapping[str, float]
    slowest: Sequence[tuple[str, float]]
    failures: Sequence[FailureGroup]
    expected: Sequence[ExpectedEntry]
    executed: int = 0
    wrong: int = 0
    layouts: int = 0
    unknown: Mapping[str, int] = field(default_factory=dict)
    unknown_order: Mapping[str, int] = field(default_factory=dict)
    proven: ProofCount = field(default_factory=ProofCount)
    noted: Sequence[NotedCheck] = ()
    notes: Sequence[str] = ()

    @property
    def failed(self) -> int:
        """Returns the number of cases that failed and should not have."""
        return sum(self.statuses.get(status, 0) for status in FAILURES)

    @property
    def judged(self) -> int:
        """Returns the number of cases that passed or failed, as expected or not."""
        return sum(count for status, count in self.statuses.items() if status not in _SKIPS)

    @property
    def rate(self) -> float | None:
        """Verified cases per second of wall-clock time; None while the run has not ended."""
        return self.verified / self.run.wall_s if self.run.wall_s else None


class Tally:
    """Counts records, one at a time, and keeps of them no more than a summary shows: a run may have any size."""

    def __init__(self) -> None:
        self.statuses: Counter[Status] = Counter()
        self._by_kernel: Groups = defaultdict(Counter)
        self._by_suite: Groups = defaultdict(Counter)
        self._skips: Groups = defaultdict(Counter)
        self._verified: set[str] = set()
        self._busy: defaultdict[str, float] = defaultdict(float)
        self._gpu_busy: defaultdict[str, float] = defaultdict(float)
        self._slowest: list[tuple[float, str]] = []
        self._failures = FailureGroups()
        self._expected: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        self._executed = self._wrong = 0
        self._unknown: Counter[str] = Counter()
        self._unknown_order: Counter[str] = Counter()
        self._layouts = 0
        self._proven = ProofCount()
        self._noted = NotedChecks()

    def add(self, record: CaseRecord) -> None:
        """Counts one record in every figure of the summary."""
        status, reason, seconds = record.status, record.reason, record.durations.get("total", 0.0)
        self.statuses[status] += 1
        self._by_kernel[record.kernel or "(none)"][status] += 1
        self._by_suite[record.suite][status] += 1
        self._busy[record.worker] += seconds
        if record.gpu is not None:
            self._gpu_busy[record.gpu] += seconds
        if "total" in record.durations:
            self._slowest = sorted([*self._slowest, (-seconds, record.case)])[:SLOWEST]
        if isinstance(ttgir := record.observed.get("ttgir"), Mapping):
            unknown = str(ttgir.get("unknown") or "")
            self._unknown.update([unknown] if unknown else [])
            self._layouts += ttgir.get("layouts") == "checked"
        order = record.observed.get("order")
        if isinstance(order, Mapping) and isinstance(kinds := order.get("unknown"), Mapping):
            self._unknown_order.update(map(str, kinds))
        self._proven.add(record)
        self._noted.add(record)
        failing = {verdict.check for verdict in record.verdicts if not verdict.passed}
        right = ttgir_was_right([verdict.check for verdict in record.verdicts], failing)
        self._executed += right is not None
        self._wrong += right is False
        if is_verified(record):
            self._verified.add(record.case)
        elif status is Status.EXPECTED_FAIL:
            entry = (reason.subject, reason.detail) if reason else ("(no entry)", "")
            self._expected[entry].append(record.case)
        elif status in _SKIPS and reason is not None:
            self._skips[reason.code.value][status] += 1
        elif status in FAILURES:
            self._failures.add(record)

    def summary(self, run: RunInfo, notes: Sequence[str] = ()) -> Summary:
        """The summary of the records so far, which are those of ``run``."""
        return Summary(
            run=run,
            statuses=self.statuses,
            by_kernel=dict(sorted(self._by_kernel.items())),
            by_suite=dict(sorted(self._by_suite.items())),
            skips={
                status: {code: counts[status] for code, counts in sorted(self._skips.items()) if counts[status]}
                for status in _SKIPS
            },
            verified=len(self._verified),
            busy_s=dict(sorted(self._busy.items())),
            gpu_busy_s=dict(sorted(self._gpu_busy.items())),
            slowest=[(case, -seconds) for seconds, case in self._slowest],
            failures=self._failures.ranked(),
            expected=[ExpectedEntry(*entry, sorted(cases)) for entry, cases in sorted(self._expected.items())],
            executed=self._executed,
            wrong=self._wrong,
            unknown=self._unknown,
            unknown_order=self._unknown_order,
            layouts=self._layouts,
            proven=self._proven,
            noted=self._noted.each(),
            notes=notes,
        )


def is_verified(record: CaseRecord) -> bool:
    """Returns True if the case counts towards the rate. It must have passed, with every fill of its problem judged and
    an output of at least 2 x 2 tiles. A record of an older version does not say so and does not count."""
    tiles = record.observed.get("tiles")
    large = isinstance(tiles, (list, tuple)) and len(tiles) > 0 and all(isinstance(n, int) and n > 1 for n in tiles)
    return record.status is Status.PASS and record.observed.get("complete") is True and large
