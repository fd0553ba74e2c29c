"""Describes what GitHub Actions shows: annotations of a step and the job's summary for a comparison, and groups of a
log.

Format of the commands and their escaping: GitHub's "Workflow commands for GitHub Actions" and the toolkit's
``packages/core/src/command.ts``. A step shows at most 10 annotations of each level; a summary holds at most 1 MiB.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from pathlib import Path

from conformance.gate.shortened_text import first_words
from conformance.reporting.comparison import render_markdown, summary_line
from conformance.reporting.first_line import answer
from conformance.reporting.text import clean
from conformance.user_files.findings import Comparison, Group, Severity

ANNOTATIONS = 10
SUMMARY_LIMIT = 1 << 20
_LEVELS = {Severity.REGRESSION: "error", Severity.WARNING: "warning"}


def runs_in_actions() -> bool:
    return os.environ.get("GITHUB_ACTIONS") == "true"


def annotation_lines(comparison: Comparison) -> list[str]:
    """The annotations: one if there is no answer, one for all objections and one per group, the worst first. GitHub
    shows ten of each level, so the last of a level counts the rest."""
    text = first_words("\n".join(comparison.objections), 2000)
    lines = [_annotation("error", "no answer", first_words(answer(comparison), 2000))] if comparison.broken else []
    lines += [_annotation("error", f"{len(comparison.objections)} objections", text)] if comparison.objections else []
    for severity, level in _LEVELS.items():
        groups = [group for group in comparison.groups if group.severity is severity]
        room = ANNOTATIONS - (len(lines) if severity is Severity.REGRESSION else 0)
        cut = len(groups) > room
        shown = groups[: room - 1] if cut else groups
        lines += [_annotation(level, f"{group.kind.value}: {group.cause}", _message(group)) for group in shown]
        if cut:
            rest = len(groups) - len(shown)
            lines.append(_annotation(level, f"{rest} more groups", answer(comparison)))
    return lines


def _message(group: Group) -> str:
    first = group.findings[0]
    change = f"{first.before} -> {first.after}" if first.before else first.after
    notes = "".join(f"{note}\n" for note in group.notes)
    return first_words(f"{summary_line(group)}\n{notes}first: {first.case}\n{change}\n{first.detail}".rstrip(), 2000)


def _annotation(level: str, title: str, message: str) -> str:
    title = _data(title[:200]).replace(":", "%3A").replace(",", "%2C")
    return f"::{level} title={title}::{_data(message)}"


def _data(text: str) -> str:
    """A command is one line: what would end it is encoded."""
    text = clean(text).replace("%", "%25")
    return text.replace("\r", "%0D").replace("\n", "%0A")


def folded(title: str, lines: Iterable[str]) -> list[str]:
    """``lines`` below their ``title``; in a log of GitHub's as a group that can be opened. They are safe to print."""
    if runs_in_actions():
        return [f"::group::{title}", *lines, "::endgroup::"]
    return [f"{title}:", *lines]


def append_summary(comparison: Comparison) -> None:
    """Appends the comparison to the file of the job's summary, if there is one. Raises OSError."""
    name = os.environ.get("GITHUB_STEP_SUMMARY")
    if not name:
        return
    file = Path(name)
    room = SUMMARY_LIMIT - (file.stat().st_size if file.exists() else 0)
    # Characters of up to 4 bytes; short of the limit, so that what comes after has room too.
    text = render_markdown(comparison, min(room // 4, SUMMARY_LIMIT // 8)) if room > 4000 else ""
    with file.open("a", encoding="utf-8") as stream:
        stream.write(text)
