"""The summary of a run: counted from its records, shown as text in the terminal and as Markdown in its folder."""

from __future__ import annotations

import bisect
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from conformance.proof_level import ProofCount, ttgir_verdict
from conformance.records import CaseRecord, RunInfo, Status, first_of
from conformance.reporting.text import clean, indented, log_safe, markdown_table, one_line, text_table

SLOWEST = 5  # cases listed by duration
FAILURES_SHOWN = 20  # failures shown in full, and expected ones by entry; the records have all
_SKIPS = (Status.NOT_APPLICABLE, Status.NOT_RUN)
FAILURES = tuple(status for status in Status if status not in (Status.PASS, Status.EXPECTED_FAIL, *_SKIPS))


#: How many records have each status, by a name.
Groups = defaultdict[str, Counter[Status]]


@dataclass(frozen=True)
class Summary:
    """What a summary shows. ``verified`` counts the distinct verified cases (see :func:`is_verified`), the unit of the
    rate. ``busy_s`` and ``gpu_busy_s`` map a worker or GPU to the seconds that it spent on cases. ``failures`` are
    those shown in full, ``expected`` the cases of each expected failure. Cases are in the order of their ids.
    ``executed`` cases had the TTGIR of their compiled kernels run, and ``wrong`` of them were wrong; ``unknown`` counts
    the others by what is not known; the layouts of ``layouts`` cases were checked. ``proven`` counts the cases that
    passed by what proves them."""

    run: RunInfo
    statuses: Mapping[Status, int]
    by_kernel: Mapping[str, Mapping[Status, int]]
    by_suite: Mapping[str, Mapping[Status, int]]
    skips: Mapping[str, int]
    verified: int
    busy_s: Mapping[str, float]
    gpu_busy_s: Mapping[str, float]
    slowest: Sequence[tuple[str, float]]
    failures: Sequence[CaseRecord]
    expected: Mapping[str, Sequence[str]]
    executed: int = 0
    wrong: int = 0
    layouts: int = 0
    unknown: Mapping[str, int] = field(default_factory=dict)
    proven: ProofCount = field(default_factory=ProofCount)

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
        self._skips: Counter[str] = Counter()
        self._verified: set[str] = set()
        self._busy: defaultdict[str, float] = defaultdict(float)
        self._gpu_busy: defaultdict[str, float] = defaultdict(float)
        self._slowest: list[tuple[float, str]] = []
        self._failures: list[CaseRecord] = []
        self._expected: defaultdict[str, list[str]] = defaultdict(list)
        self._executed = self._wrong = 0
        self._unknown: Counter[str] = Counter()
        self._layouts = 0
        self._proven = ProofCount()

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
        self._proven.add(record)
        failing = {verdict.check for verdict in record.verdicts if not verdict.passed}
        right = ttgir_verdict([verdict.check for verdict in record.verdicts], failing)
        self._executed += right is not None
        self._wrong += right is False
        if is_verified(record):
            self._verified.add(record.case)
        elif status is Status.EXPECTED_FAIL:
            self._expected[f"{reason.subject}: {reason.detail}" if reason else "(none)"].append(record.case)
        elif status in _SKIPS and reason is not None:
            self._skips[reason.code.value] += 1
        elif status in FAILURES:
            bisect.insort(self._failures, record, key=lambda failure: failure.case)
            del self._failures[FAILURES_SHOWN:]

    def summary(self, run: RunInfo) -> Summary:
        """The summary of the records so far, which are those of ``run``."""
        return Summary(
            run=run,
            statuses=self.statuses,
            by_kernel=dict(sorted(self._by_kernel.items())),
            by_suite=dict(sorted(self._by_suite.items())),
            skips=self._skips,
            verified=len(self._verified),
            busy_s=dict(sorted(self._busy.items())),
            gpu_busy_s=dict(sorted(self._gpu_busy.items())),
            slowest=[(case, -seconds) for seconds, case in self._slowest],
            failures=self._failures,
            expected={entry: sorted(cases) for entry, cases in sorted(self._expected.items())},
            executed=self._executed,
            wrong=self._wrong,
            unknown=self._unknown,
            layouts=self._layouts,
            proven=self._proven,
        )


def is_verified(record: CaseRecord) -> bool:
    """Whether the case counts towards the rate: it passed, every fill that its problem has was judged, and its output
    has at least 2 x 2 tiles. The record says both; one of an older version says neither and does not count."""
    tiles = record.observed.get("tiles")
    large = isinstance(tiles, (list, tuple)) and len(tiles) > 0 and all(isinstance(n, int) and n > 1 for n in tiles)
    return record.status is Status.PASS and record.observed.get("complete") is True and large


Rows = list[list[str]]


def _status_rows(title: str, groups: Mapping[str, Mapping[Status, int]], statuses: Mapping[Status, int]) -> Rows:
    """A header, a row per group and a total; only the statuses that occur have a column."""
    columns = [status for status in Status if statuses.get(status)]
    rows = [[title, *(status.value for status in columns)]]
    for name, counts in (*groups.items(), ("total", statuses)):
        rows.append([one_line(name), *(str(counts.get(status, 0)) for status in columns)])
    return rows


def _facts(summary: Summary) -> list[tuple[str, str]]:
    """Facts of one line each: a label and its text."""
    run = summary.run
    facts = [
        ("cases", ", ".join(f"{summary.statuses[s]} {s.value}" for s in Status if summary.statuses.get(s)) or "none")
    ]
    if summary.skips:
        facts.append(("skip reasons", ", ".join(f"{code} {count}" for code, count in sorted(summary.skips.items()))))
    if summary.proven.total:
        facts.append(("proven by", str(summary.proven)))
    if summary.executed or summary.unknown:
        unknown = [f"not run: {count} with {one_line(what)}" for what, count in sorted(summary.unknown.items())]
        wrong = f", wrong in {summary.wrong}" if summary.wrong else ""
        facts.append(
            (
                "TTGIR run",
                "; ".join([f"of {summary.executed} cases{wrong}, with layouts checked of {summary.layouts}", *unknown]),
            )
        )
    if summary.rate is not None:
        text = f"{summary.rate:.2f} verified cases per second: {summary.verified} in {run.wall_s:.1f} s"
        facts.append(("rate", f"{text} (passed, every fill, at least 2 x 2 tiles)"))
    for label, busy in (("busy by worker", summary.busy_s), ("busy by GPU", summary.gpu_busy_s)):
        if busy:
            facts.append((label, ", ".join(f"{one_line(name)} {seconds:.1f} s" for name, seconds in busy.items())))
    return facts


def _stack(run: RunInfo) -> str:
    return ", ".join(f"{name} {clean(str(version))}" for name, version in run.stack.items() if version is not None)


def _failure(record: CaseRecord) -> str:
    lines = [clean(record.diagnosis)]
    failed = [f"{verdict.check}: {verdict.text}" for verdict in record.verdicts if not verdict.passed]
    lines += [text for text in failed if text not in record.diagnosis]
    lines += [f"reproduce: {record.repro}"] if record.repro else []
    return clean("\n".join(line for line in lines if line))


def _expected(summary: Summary) -> list[tuple[str, str]]:
    """Each expected failure that covered cases: its id with what is known of it, and a line with those cases."""
    return [(one_line(entry), one_line(first_of(cases, FAILURES_SHOWN))) for entry, cases in summary.expected.items()]


def _unshown(summary: Summary) -> str:
    hidden = sum(summary.statuses.get(status, 0) for status in FAILURES) - len(summary.failures)
    return f"... and {hidden} more; the records have all of them" if hidden > 0 else ""


def render_text(summary: Summary) -> str:
    """The summary for a terminal, or the log of a workflow, which takes commands from it."""
    blocks = []
    if summary.statuses:
        blocks.append(text_table(_status_rows("kernel", summary.by_kernel, summary.statuses)))
        blocks.append(text_table(_status_rows("suite", summary.by_suite, summary.statuses)))
    blocks.append("\n".join(f"{label}: {text}" for label, text in _facts(summary)))
    if summary.slowest:
        blocks.append(
            "slowest:\n" + "\n".join(f"  {seconds:8.2f} s  {one_line(case)}" for case, seconds in summary.slowest)
        )
    for entry, cases in _expected(summary):
        blocks.append(f"EXPECTED FAILURE {entry}\n{indented(cases)}")
    for record in summary.failures:
        blocks.append(f"{record.status.value.upper()} {one_line(record.case)}\n{indented(_failure(record))}")
    blocks += filter(None, [_unshown(summary)])
    blocks += [f"PROBLEM {clean(problem)}" for problem in summary.run.problems]
    return log_safe("\n\n".join(blocks))


def render_markdown(summary: Summary) -> str:
    """The same as Markdown, with the stack."""
    run = summary.run
    facts = [
        ("run", run.id),
        ("started", run.started),
        ("stack", _stack(run)),
        ("tier", run.tier),
        ("seed", str(run.seed)),
    ]
    facts += [("targets", ", ".join(run.targets) or "default"), ("workers", str(run.workers))]
    facts += [("GPUs", ", ".join(run.gpus) or "none"), *_facts(summary)]
    blocks = ["# Conformance run", markdown_table([["", ""], *([label, clean(text)] for label, text in facts)])]
    blocks += [f"**Problem:** {clean(problem)}" for problem in run.problems]
    if summary.statuses:
        blocks += ["## By kernel", markdown_table(_status_rows("kernel", summary.by_kernel, summary.statuses))]
        blocks += ["## By suite", markdown_table(_status_rows("suite", summary.by_suite, summary.statuses))]
    if summary.slowest:
        rows = [[clean(case), f"{seconds:.2f}"] for case, seconds in summary.slowest]
        blocks += ["## Slowest cases", markdown_table([["case", "seconds"], *rows])]
    if summary.expected:
        rows = [[entry, cases] for entry, cases in _expected(summary)]
        blocks += ["## Expected failures", markdown_table([["expected failure", "cases"], *rows])]
    if summary.failures:
        blocks.append("## Failures")
    for record in summary.failures:
        blocks += [f"### {record.status.value}: `{one_line(record.case)}`", indented(_failure(record))]
    blocks += filter(None, [_unshown(summary)])
    return "\n\n".join(blocks) + "\n"
