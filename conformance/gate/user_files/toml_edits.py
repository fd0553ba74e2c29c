"""Where a table of a TOML file stands in it, and an edit of it that ``patch`` can apply."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from conformance.gate.user_files.toml_entries import EntryError, load, matches

_CONTEXT = 3  # unchanged lines before and after, as diff has them


@dataclass(frozen=True)
class Span:
    """Lines of a file that hold one table: ``start`` and ``stop`` are indices into its lines, ``stop`` excluded."""

    start: int
    stop: int


def spans(text: str, file: str, table: str) -> list[Span]:
    """Where each ``[[table]]`` of the TOML ``text`` stands. The parser gives no lines, so each table is parsed again on
    its own, from one header to the next: a header inside a text of several lines leaves the table before it unfinished,
    and is passed over. Raises :class:`EntryError` for a table that is written in another way."""
    lines = text.split("\n")
    header = re.compile(rf"\s*\[\[\s*[\"']?{table}[\"']?\s*\]\]\s*(#.*)?\r?")
    heads = [number for number, line in enumerate(lines) if header.fullmatch(line)]
    wanted = load(text, file).get(table, [])
    found: list[Span] = []
    at = 0
    while at < len(heads):
        stops = [*heads[at + 1 :], len(lines)]
        for step, stop in enumerate(stops, 1):
            if len(found) < len(wanted) and _parsed(lines[heads[at] : stop]) == {table: [wanted[len(found)]]}:
                found.append(Span(heads[at], _without_tail(lines, heads[at], stop)))
                at += step
                break
        else:
            at += 1
    if len(found) != len(wanted):
        raise EntryError(f"{file}: write each {table} as [[{table}]] on a line of its own and its keys below it")
    return found


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


def key_span(text: str, span: Span, table: str, key: str) -> Span:
    """The lines of ``key`` of the table at ``span``: those without which everything but the key is as it was."""
    lines = text.split("\n")[span.start : span.stop]
    (whole,) = (_parsed(lines) or {})[table]
    rest = {table: [{name: value for name, value in whole.items() if name != key}]}
    for start, line in enumerate(lines):
        if not re.match(rf"\s*[\"']?{key}[\"']?\s*=", line):
            continue
        for stop in range(start + 1, len(lines) + 1):
            if _parsed([*lines[:start], *lines[stop:]]) == rest:
                return Span(span.start + start, span.start + stop)
    return span


def hunk(text: str, file: str, span: Span, replacement: Sequence[str] = ()) -> str:
    """A unified diff of ``file`` that puts ``replacement`` where the lines of ``span`` are."""
    lines = text.removesuffix("\n").split("\n")
    before = lines[max(0, span.start - _CONTEXT) : span.start]
    removed = lines[span.start : span.stop]
    after = lines[span.stop : span.stop + _CONTEXT]
    first = span.start - len(before) + 1
    old, new = (len(before) + len(middle) + len(after) for middle in (removed, replacement))
    header = [f"--- {file}", f"+++ {file}", f"@@ -{first},{old} +{first if new else 0},{new} @@"]
    body = [
        *(f" {line}" for line in before),
        *(f"-{line}" for line in removed),
        *(f"+{line}" for line in replacement),
        *(f" {line}" for line in after),
    ]
    return "\n".join([*header, *body])


def toml_text(value: str) -> str:
    """``value`` as a TOML string. JSON's escapes are TOML's but for DEL, which JSON leaves as it is."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def toml_patterns(patterns: Sequence[str]) -> list[str]:
    """Lines of a key ``cases`` that holds ``patterns``."""
    if len(patterns) == 1:
        return [f"cases = {toml_text(patterns[0])}"]
    return ["cases = [", *(f"    {toml_text(pattern)}," for pattern in patterns), "]"]


def narrowest(wanted: Sequence[str], others: Sequence[str]) -> list[str]:
    """Patterns that match every id of ``wanted`` and none of ``others``: for each test function what its cases have in
    common at their beginning and end, or the ids themselves where that is too wide."""
    functions: dict[str, list[str]] = {}
    for case in wanted:
        functions.setdefault(case.split("[", 1)[0], []).append(case)
    patterns: list[str] = []
    for function, cases in functions.items():
        together = _common(cases)
        beside = (other for other in others if other.startswith(function))
        patterns += sorted(cases) if any(matches(together, other) for other in beside) else [together]
    return patterns


def _common(cases: Sequence[str]) -> str:
    """The beginning and the end that all ``cases`` share, with a star between them."""
    if len(set(cases)) == 1:
        return cases[0]
    low, high = min(cases), max(cases)
    start = next((n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    tails = [case[start:][::-1] for case in cases]
    low, high = min(tails), max(tails)
    end = next((n for n, (a, b) in enumerate(zip(low, high, strict=False)) if a != b), min(len(low), len(high)))
    return cases[0][:start] + "*" + (cases[0][-end:] if end else "")
