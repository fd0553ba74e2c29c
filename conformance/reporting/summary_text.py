"""A run's summary for people: the end of its output, ``summary.md`` for a CI's job page, and an account to publish."""

from __future__ import annotations

import hashlib
import re
import textwrap
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from conformance.proof_level import ProofCount
from conformance.records import SCHEMA, CaseRecord, RunInfo, Status, first_of
from conformance.reporting import run_verdict
from conformance.reporting.case_command import case_command
from conformance.reporting.failure_groups import FailureGroup, example_text
from conformance.reporting.run_verdict import count_lines, exit_line, fault_lines, group_line, headline, many
from conformance.reporting.summary import ExpectedEntry, Summary, is_verified
from conformance.reporting.text import clean, indented, log_safe, markdown_literal, markdown_table, one_line

#: Failing cases that are listed: GitHub takes 1 MiB for the summary of a step. The records have all of them.
CASES_LISTED = 2000
#: Causes of which an example is shown in full, and the characters of one.
MARKDOWN_EXAMPLES, EXAMPLE_LIMIT = 50, 8000
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
    if summary.noted:
        blocks += ["## Warnings", "\n".join(f"- {markdown_literal(one_line(str(noted)))}" for noted in summary.noted)]
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
    if number <= MARKDOWN_EXAMPLES:
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
    return "\n".join(filter(None, [text, f"reproduce: {one_line(case_command(record))}"]))


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


#: Columns of a line that is made to fit; ids and commands are never cut.
WIDEST, NARROWEST = 120, 60
#: Lines about failing cases, and the fewest for each cause.
CASES_SHOWN, FEWEST_OF_GROUP = 100, 3
GROUPS_SHOWN = 30
ENTRIES_SHOWN = 60
#: Causes up to which an example of each is shown, and the lines of one.
EXAMPLES, EXAMPLE_LINES = 3, 16
#: Lines of a log's end that a hurried reader sees; pytest's own last line follows them.
LINES = 19
#: Causes, problems and faults of the run that the verdict names.
CAUSES_NAMED, PROBLEMS_NAMED, FAULTS_NAMED = 3, 2, 2


def expected_lines(entries: Sequence[ExpectedEntry], width: int = WIDEST) -> list[str]:
    """One line for each expected failure that cases failed by: its id, how many cases, and where it is reported."""
    shown = entries[:ENTRIES_SHOWN]
    counts = [many(len(entry.cases), "case") for entry in shown]
    names = [_cut(one_line(entry.id), width // 2) for entry in shown]
    wide, long = max(map(len, names), default=0), max(map(len, counts), default=0)
    lines = [
        f"  {name:{wide}}  {count:>{long}}  {_cut_middle(one_line(entry.link), width - wide - long - 6)}".rstrip()
        for name, count, entry in zip(names, counts, shown, strict=True)
    ]
    more = len(entries) - len(shown)
    return [*lines, *([f"  and {more} more: summary.md has all"] if more else [])]


def failure_lines(summary: Summary, tracebacks: Mapping[str, str], with_examples: bool = True) -> list[str]:
    """One line for each failing case below its cause and its kernel. For few causes the diagnosis of an example
    follows each. ``tracebacks`` are those of cases that ended by an error outside the checks; the first of each cause
    is shown."""
    shown = summary.failures[:GROUPS_SHOWN]
    each = max(FEWEST_OF_GROUP, CASES_SHOWN // max(len(shown), 1)) if summary.failed > CASES_SHOWN else CASES_SHOWN
    elsewhere = "summary.md has all" if summary.failed <= CASES_LISTED else "the report has all"
    lines: list[str] = []
    for number, group in enumerate(shown, 1):
        lines += ["", f"{number}. {one_line(group_line(group))}", *_case_lines(group, each, elsewhere)]
        traceback = next((tracebacks[case] for case in _cases(group) if case in tracebacks), "")
        if traceback:
            lines += [f"   traceback of the first: {one_line(group.example.case)}", indented(clean(traceback))]
        elif with_examples and len(summary.failures) <= EXAMPLES:
            lines += [f"   the first: {one_line(group.example.case)}", _shortened(example_text(group.example))]
    more = len(summary.failures) - len(shown)
    return [*lines[1:], *([f"and {more} more causes: {elsewhere}"] if more else [])]


def _cases(group: FailureGroup) -> Iterable[str]:
    return (case for cases in group.kernels.values() for case, _ in cases)


def _case_lines(group: FailureGroup, most: int, elsewhere: str) -> list[str]:
    lines: list[str] = []
    left = most
    for kernel, cases in group.kernels.items():
        if left <= 0:
            break
        lines.append(f"   {one_line(kernel)}:")
        lines += [f"     {one_line(case)}" for case, _ in cases[:left]]
        left -= len(cases)
    hidden = group.count - most
    return [*lines, *([f"     and {hidden:,} more: {elsewhere}"] if hidden > 0 else [])]


def _shortened(text: str) -> str:
    lines = text.splitlines()
    more = len(lines) - EXAMPLE_LINES
    rest = [f"... and {more} more lines: 'conformance show' has them"] if more > 1 else lines[EXAMPLE_LINES:]
    return indented("\n".join(line[:400] for line in [*lines[:EXAMPLE_LINES], *rest]))


def problem_lines(summary: Summary, lost: str = "", width: int = WIDEST) -> list[str]:
    """The problems and faults of the run in full, if :func:`verdict_lines` has to cut or leave out one of them."""
    texts = [*([lost] if lost else []), *summary.run.problems, *run_verdict.fault_lines(summary.run, lost)]
    fit = len(texts) <= PROBLEMS_NAMED and all(len(text) <= width for text in texts)
    return [] if fit else [f"  {one_line(text)}" for text in texts]


def verdict_lines(summary: Summary, folder: Path, summary_file: Path, lost: str = "", width: int = WIDEST) -> list[str]:
    """Returns the verdict, the counts, the causes of failures, the run's problems and what to open: the end of a log.
    The first line is the verdict. ``lost`` says why the run could not be finished; "" if it was."""
    width = max(NARROWEST, min(width, WIDEST))
    verdict = _wrapped(run_verdict.headline(summary, lost), width, "")
    texts = [*run_verdict.count_lines(summary), summary.run.reruns or "", run_verdict.tested_line(summary.run)]
    counts = [part for text in texts for part in _wrapped(text, width)]
    steps = run_verdict.what_to_open(summary, folder, summary_file)
    wide = max(map(len, steps))
    end = [f"{what + ':':{wide + 1}} {command}" for what, command in steps.items()]
    end += filter(None, [run_verdict.exit_line(summary.run)])
    details = _details(summary, lost, width)
    room = LINES - len(verdict) - len(counts) - len(end)
    if len(details) > room:
        details = [*details[: room - 1], "  and more: summary.md has all"]
    return [log_safe(line) for line in [*verdict, *details, *counts, *end]]


def _details(summary: Summary, lost: str, width: int) -> list[str]:
    """Returns a line for each of the gravest causes, problems and faults of the run."""
    causes = [f"  {number}. {one_line(group_line(group))}" for number, group in enumerate(summary.failures, 1)]
    problems = [f"PROBLEM {one_line(problem)}" for problem in (*([lost] if lost else []), *summary.run.problems)]
    faults = [one_line(line) for line in run_verdict.fault_lines(summary.run, lost)]
    lines: list[str] = []
    for texts, most, cut, noun in (
        (causes, CAUSES_NAMED, width, "cause"),
        (problems, PROBLEMS_NAMED, 2 * width, "problem"),
        (faults, FAULTS_NAMED, 2 * width, "fault"),
    ):
        lines += [_cut(text, cut) for text in texts[:most]]
        if len(texts) > most:
            lines.append(f"  and {many(len(texts) - most, f'more {noun}')}: summary.md has all")
    return lines


def _wrapped(text: str, width: int, indent: str = "  ") -> list[str]:
    return textwrap.wrap(
        one_line(text), width, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 3] + "..."


def _cut_middle(link: str, most: int) -> str:
    """``link`` without its scheme and its middle where it is too long: its host and its end say which one it is."""
    if len(link) <= most:
        return link
    link = re.sub(r"^https?://", "", link)
    most = max(most, 24)
    if len(link) <= most:
        return link
    head = most // 3
    return f"{link[:head]}...{link[len(link) - (most - head - 3) :]}"


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
