"""``summary.md`` of a run, for people and for the page of a CI's job: the verdict, then what failed, then tables."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.records import CaseRecord, RunInfo, Status, first_of
from conformance.reporting.failure_groups import FailureGroup, example_text
from conformance.reporting.run_verdict import count_lines, exit_line, fault_lines, group_line, headline, many
from conformance.reporting.summary import Summary
from conformance.reporting.text import clean, indented, markdown_literal, markdown_table, one_line

#: Failing cases that are listed: GitHub takes 1 MiB for the summary of a step. The records have all of them.
CASES_LISTED = 2000
#: Causes of which an example is shown in full, and the characters of one.
EXAMPLES, EXAMPLE_LIMIT = 50, 8000
#: Cases of an expected failure that are named.
CASES_NAMED = 20

Rows = list[list[str]]


def render_markdown(summary: Summary) -> str:
    """Returns the text of ``summary.md``."""
    run = summary.run
    blocks = ["# Conformance run", f"**{markdown_literal(headline(summary))}.**"]
    blocks += [f"**Problem:** {clean(problem)}" for problem in run.problems]
    blocks += [markdown_literal(line) for line in (*fault_lines(run), exit_line(run)) if line]
    blocks.append("\n".join(f"- {markdown_literal(line)}" for line in count_lines(summary)))
    if summary.failures:
        blocks.append("## Failed cases")
    left = CASES_LISTED
    for number, group in enumerate(summary.failures, 1):
        blocks += _group_blocks(number, group, left)
        left = max(left - group.count, 0)
    if summary.expected:
        columns = [(e.id, str(len(e.cases)), e.detail, first_of(e.cases, CASES_NAMED)) for e in summary.expected]
        rows = [[*map(one_line, row)] for row in columns]
        header = ["expected failure", "number", "where it is reported", "cases"]
        blocks += ["## Expected failures", markdown_table([header, *rows])]
    if summary.statuses:
        blocks += ["## By kernel", markdown_table(_status_rows("kernel", summary.by_kernel, summary.statuses))]
        blocks += ["## By suite", markdown_table(_status_rows("suite", summary.by_suite, summary.statuses))]
    if summary.slowest:
        rows = [[one_line(case), f"{seconds:.2f}"] for case, seconds in summary.slowest]
        blocks += ["## Slowest cases", markdown_table([["case", "seconds"], *rows])]
    rows = [[label, clean(text)] for label, text in _facts(summary)]
    blocks += ["## The run", markdown_table([["", ""], *rows])]
    return "\n\n".join(blocks) + "\n"


def _group_blocks(number: int, group: FailureGroup, most: int) -> list[str]:
    """Returns a cause with an example in full, and its cases by kernel with what their checks said."""
    blocks = [f"### {number}. {markdown_literal(group_line(group))}"]
    if number <= EXAMPLES:
        blocks += [f"`{one_line(group.example.case)}`:", indented(_example(group.example))]
    lines = [
        f"- `{one_line(case)}`: {markdown_literal(note)}" for cases in group.kernels.values() for case, note in cases
    ]
    shown = lines[:most]
    if len(lines) > 1 and shown:
        blocks += [f"<details><summary>{many(len(lines), 'case')}</summary>", "\n".join(shown), "</details>"]
    if len(lines) > len(shown):
        blocks.append(f"{len(lines) - len(shown):,} more cases of this cause are in the records.")
    return blocks


def _example(record: CaseRecord) -> str:
    text = example_text(record)[:EXAMPLE_LIMIT]
    return "\n".join(filter(None, [text, f"reproduce: {clean(record.repro)}" if record.repro else ""]))


def _status_rows(title: str, groups: Mapping[str, Mapping[Status, int]], statuses: Mapping[Status, int]) -> Rows:
    """Returns a header, a row per group and a total; only the statuses that occur have a column."""
    columns = [status for status in Status if statuses.get(status)]
    rows = [[title, *(status.value for status in columns)]]
    for name, counts in (*groups.items(), ("total", statuses)):
        rows.append([one_line(name), *(str(counts.get(status, 0)) for status in columns)])
    return rows


def _facts(summary: Summary) -> list[tuple[str, str]]:
    """Facts of one line each: a label and its text."""
    run = summary.run
    facts = [("run", run.id), ("started", run.started), ("stack", _stack(run)), ("tier", run.tier)]
    facts += [("seed", str(run.seed)), ("targets", ", ".join(run.targets) or "default")]
    facts += [("workers", str(run.workers)), ("GPUs", ", ".join(run.gpus) or "none")]
    if summary.executed or summary.unknown:
        unknown = [f"not run: {count} with {one_line(what)}" for what, count in sorted(summary.unknown.items())]
        wrong = f", wrong in {summary.wrong}" if summary.wrong else ""
        executed = f"of {summary.executed} cases{wrong}, with layouts checked of {summary.layouts}"
        facts.append(("TTGIR run", "; ".join([executed, *unknown])))
    if summary.unknown_order:
        counts = [f"{kind} of {count} cases" for kind, count in sorted(summary.unknown_order.items())]
        facts.append(("order not known", one_line(", ".join(counts))))
    if summary.rate is not None:
        text = f"{summary.rate:.2f} verified cases per second: {summary.verified} in {run.wall_s:.1f} s"
        facts.append(("rate", f"{text} (passed, every fill, at least 2 x 2 tiles)"))
    for label, busy in (("busy by worker", summary.busy_s), ("busy by GPU", summary.gpu_busy_s)):
        if busy:
            facts.append((label, ", ".join(f"{one_line(name)} {seconds:.1f} s" for name, seconds in busy.items())))
    return [*facts, *(_labelled(note) for note in summary.notes)]


def _labelled(note: str) -> tuple[str, str]:
    label, _, text = note.partition(": ")
    return label, text


def _stack(run: RunInfo) -> str:
    return ", ".join(f"{name} {clean(str(version))}" for name, version in run.stack.items() if version is not None)
