"""The end of a run in a terminal or a log: what failed, by cause; expected failures; and, as the last, the verdict."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from conformance.reporting import run_verdict
from conformance.reporting.failure_groups import FailureGroup, example_text
from conformance.reporting.run_verdict import group_line, many
from conformance.reporting.summary import ExpectedEntry, Summary
from conformance.reporting.summary_markdown import CASES_LISTED
from conformance.reporting.text import clean, indented, log_safe, one_line

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
    texts = [*run_verdict.count_lines(summary), run_verdict.tested_line(summary.run)]
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
