"""Text tables, and text from records made safe to print."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence

from conformance.plain_json import TEXT_LIMIT

#: Signs that could begin markup, a mention, a reference, a link, a formula or a workflow command.
_MARKDOWN_SIGNS = re.compile(r"[\\`*\[\]|~#!$@]|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|:(?=[:/])|(?<=www)\.")


def clean(text: str) -> str:
    """``text`` with control characters escaped, so that a record cannot move the cursor or rename the window."""
    return "".join(char if char.isprintable() or char in "\n\t" else f"\\x{ord(char):02x}" for char in text)


def one_line(text: str) -> str:
    """:func:`clean` for a text that must stay on its line: an end of a line is escaped, too, so that it forges none."""
    return clean(text).replace("\n", "\\n").replace("\t", " ")


def log_safe(text: str) -> str:
    """Returns :func:`clean` text for a log of GitHub's, also without what begins a command there. That is ``::`` at the
    start of a line or after its blanks, and ``##[``."""
    lines = clean(text).replace("##[", "# #[").split("\n")
    return "\n".join(f"\\{line}" if line.lstrip().startswith("::") else line for line in lines)


#: Characters of a line that is printed; of a longer one these are printed first. A legal id fits in a line.
LINE_LIMIT, LINE_SHOWN = TEXT_LIMIT + 1_000, 2_000


def shown(text: str) -> str:
    """Returns ``text`` for a person: of a line that is longer than one with a legal id, the beginning and its length.

    >>> len(shown("short\\n" + "x" * 500_000))
    2030
    """
    lines = (
        line if len(line) <= LINE_LIMIT else f"{line[:LINE_SHOWN]} ... ({len(line)} characters)"
        for line in text.split("\n")
    )
    return "\n".join(lines)


def markdown_literal(text: str) -> str:
    """``text`` so that Markdown shows it literally: each sign that could mean more becomes a character reference.

    >>> markdown_literal("a*b|c")
    'a&#42;b&#124;c'
    """
    escaped = html.escape(clean(text).replace("\n", " ").replace("\t", " "), quote=False)
    return _MARKDOWN_SIGNS.sub(lambda match: f"&#{ord(match.group())};", escaped)


def indented(text: str) -> str:
    return "\n".join("    " + line for line in text.splitlines())


def text_table(rows: Sequence[Sequence[str]]) -> str:
    """Columns aligned: the first to the left, the others, which hold numbers, to the right.

    >>> print(text_table([["kernel", "cases"], ["mm", "24"], ["addmm", "8"]]))
    kernel  cases
    mm         24
    addmm       8
    """
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join(lines)


def markdown_table(rows: Sequence[Sequence[str]]) -> str:
    """The first row is the header.

    >>> print(markdown_table([["kernel", "cases"], ["mm", "24"]]))
    | kernel | cases |
    |---|---|
    | mm | 24 |
    """
    lines = ["| " + " | ".join(cell.replace("|", "\\|").replace("\n", " ") for cell in row) + " |" for row in rows]
    lines.insert(1, "|" + "---|" * len(rows[0]))
    return "\n".join(lines)
