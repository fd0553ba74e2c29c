"""Finds the lines of a table in a TOML file, and makes edits of them that ``patch`` can apply."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Sequence
from typing import Any

from conformance.user_files.case_list import matches
from conformance.user_files.toml_entries import EntryError, LineSpan, load


def spans(text: str, file: str, table: str) -> list[LineSpan]:
    """Returns the lines of each ``[[table]]`` of the TOML ``text``, without the blank lines and comments after its last
    key.

    The parser gives no line numbers. So each table is parsed again by itself, from its header to the next one. A header
    inside a text of several lines is no header: the table before it cannot be parsed alone and goes on. Raises
    :class:`EntryError` for a table that is written in another way.
    """
    lines = text.split("\n")
    header = re.compile(rf"\s*\[\[\s*[\"']?{table}[\"']?\s*\]\]\s*(#.*)?\r?")
    heads = [number for number, line in enumerate(lines) if header.fullmatch(line)]
    places: list[LineSpan] = []
    for entry in load(text, file).get(table, []):
        place = next(
            (
                LineSpan(start, _without_tail(lines, start, stop))
                for start in heads
                for stop in (*(head for head in heads if head > start), len(lines))
                if _parsed(lines[start:stop]) == {table: [entry]}
            ),
            None,
        )
        if place is None:
            raise EntryError(f"{file}: write each {table} as [[{table}]] on a line of its own and its keys below it")
        heads = [head for head in heads if head >= place.stop]
        places.append(place)
    return places


def _parsed(lines: Sequence[str]) -> dict[str, Any] | None:
    try:
        return load("\n".join(lines), "")
    except EntryError:
        return None


def _without_tail(lines: Sequence[str], start: int, stop: int) -> int:
    """``stop`` before the blank lines and comments that follow the last key: they belong to what comes next."""
    while stop > start + 1 and (not lines[stop - 1].strip() or lines[stop - 1].lstrip().startswith("#")):
        stop -= 1
    return stop


def key_span(text: str, span: LineSpan, table: str, key: str) -> LineSpan:
    """The lines of ``key`` in the table at ``span``; all of the table if they cannot be told from the rest."""
    lines = text.split("\n")[span.start : span.stop]
    (whole,) = (_parsed(lines) or {})[table]
    rest = {table: [{name: value for name, value in whole.items() if name != key}]}
    for start, line in enumerate(lines):
        if re.match(rf"\s*[\"']?{key}[\"']?\s*=", line):
            for stop in range(start + 1, len(lines) + 1):
                if _parsed([*lines[:start], *lines[stop:]]) == rest:
                    return LineSpan(span.start + start, span.start + stop)
    return span


def hunk(text: str, file: str, span: LineSpan, replacement: Sequence[str] = ()) -> str:
    """A unified diff of ``file`` that puts ``replacement`` where the lines of ``span`` are."""
    lines = text.removesuffix("\n").split("\n")
    changed = [*lines[: span.start], *replacement, *lines[span.stop :]]
    return "\n".join(difflib.unified_diff(lines, changed, file, file, lineterm=""))


def toml_text(value: str) -> str:
    r"""``value`` as a TOML string. JSON's escapes are TOML's but for DEL, which JSON leaves as it is.

    >>> print(toml_text('the "old" code'))
    "the \"old\" code"
    """
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_patterns(patterns: Sequence[str]) -> list[str]:
    """Lines of a key ``cases`` that holds ``patterns``."""
    if len(patterns) == 1:
        return [f"cases = {toml_text(patterns[0])}"]
    return ["cases = [", *(f"    {toml_text(pattern)}," for pattern in patterns), "]"]


def narrowest(ids: Sequence[str], others: Sequence[str]) -> list[str]:
    """Patterns that match every id of ``ids`` and none of ``others``. For each test function this is the beginning
    and the end that its cases have in common. Where that is too wide, it is the ids themselves.

    >>> narrowest(["t.py::a[mm-x]", "t.py::a[mm-y]"], ["t.py::a[bmm-x]"])
    ['t.py::a[mm-*]']
    """
    functions: dict[str, list[str]] = {}
    for case in ids:
        functions.setdefault(case.split("[", 1)[0], []).append(case)
    patterns: list[str] = []
    for function, cases in functions.items():
        common = _common(cases)
        beside = (other for other in others if other.startswith(function))
        patterns += sorted(cases) if any(matches(common, other) for other in beside) else [common]
    return patterns


def _common(cases: Sequence[str]) -> str:
    """The beginning and the end that all ``cases`` share, with a star between them."""
    if len(set(cases)) == 1:
        return cases[0]
    start = _common_start(cases)
    tails = [case[len(start) :][::-1] for case in cases]
    return start + "*" + _common_start(tails)[::-1]


def _common_start(texts: Sequence[str]) -> str:
    low, high = min(texts), max(texts)
    stop = next((n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return low[:stop]
