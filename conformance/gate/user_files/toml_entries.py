"""Entries that people write in TOML, one table each: their rules, patterns of case ids, ranges of versions.

Expected failures, waivers and profiles are such entries. Expected failures and waivers have files of their own because
different people write them at different times. An expected failure is a defect that the suites know while they run; it
decides the status in the record. A waiver is a change between two stacks that the user of the gate accepts. It is read
after the run and leaves the records as they are, so that evidence does not depend on who judges it.

In a pattern ``*`` is any text and ``?`` any one character. Every other character stands for itself, square brackets
too, for case ids are full of them. The whole id must match, upper and lower case being different.

Versions compare as packaging does: the local part (``2.13.0+cpu``) is left out, and a pre-release comes before its
release, so that ``>=2.13`` has no nightly build of 2.13 and ``>=2.13.dev0`` has all of them.
"""

from __future__ import annotations

import bisect
import functools
import importlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

VERSIONED = ("torch", "triton", "python", "ptxas", "ptxas-blackwell", "driver")
FILE_LIMIT = 1_000_000  # bytes: thousands of entries, and never what fills the memory

#: Whether a value will do, and what is required.
Rule = tuple[Callable[[Any], bool], str]


class EntryError(ValueError):
    """A file of entries cannot be used; the message says which entry and what is required."""


@dataclass(frozen=True)
class Form:
    """How an entry is written: its table in the file, what people call it, the rule of each key and which keys may be
    left out."""

    table: str
    title: str
    rules: Mapping[str, Rule]
    optional: tuple[str, ...] = ()

    @property
    def required(self) -> tuple[str, ...]:
        return tuple(key for key in self.rules if key not in self.optional)


def matches(pattern: str, text: str) -> bool:
    """Whether the whole of ``text`` is as ``pattern`` says; the module describes patterns."""
    return _expression(pattern).fullmatch(text) is not None


def any_matches(patterns: Iterable[str], text: str) -> bool:
    return any(matches(pattern, text) for pattern in patterns)


class Ids:
    """Ids of many cases, among which those that a pattern matches are found without trying each: what comes before
    the first wildcard leaves a range of the sorted ids."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._sorted = sorted(set(ids))

    def matching(self, pattern: str) -> list[str]:
        first = re.split(r"[*?]", pattern, maxsplit=1)[0]
        expression = _expression(pattern)
        start = bisect.bisect_left(self._sorted, first)
        stop = bisect.bisect_right(self._sorted, first, key=lambda case: case[: len(first)])
        return [case for case in self._sorted[start:stop] if expression.fullmatch(case)]


@functools.lru_cache(maxsize=1024)
def _expression(pattern: str) -> re.Pattern[str]:
    first, *rest = ("".join("." if char == "?" else re.escape(char) for char in part) for part in pattern.split("*"))
    if not rest:
        return re.compile(first, re.DOTALL)
    # Each part where it is first found and nowhere else: a plain .* would try them all, which a pattern of many stars
    # turns into hours. A group in a lookahead is not entered again.
    middle = "".join(f"(?=(.*?{part}))\\{number}" for number, part in enumerate(rest[:-1], 1))
    return re.compile(f"{first}{middle}.*{rest[-1]}", re.DOTALL)


def holds(stack: Mapping[str, str], found: Mapping[str, Any]) -> bool:
    """Whether every version (or name) in ``found`` is one of those that ``stack`` wants; one that is missing or cannot
    be read as such is not."""
    return all(_holds(component, wanted, found.get(component)) for component, wanted in stack.items())


def _holds(component: str, wanted: str, found: Any) -> bool:
    if component == "device" and found is None:
        return wanted == "none"
    if not isinstance(found, str):
        return False
    if component not in VERSIONED:
        return matches(wanted, found)
    try:
        return SpecifierSet(wanted).contains(Version(found), prereleases=True)
    except InvalidVersion:
        return False


def stack_problem(component: str, wanted: Any) -> str | None:
    """What is wrong with a line of the table ``stack``; None if nothing is."""
    given = f"stack.{component} = {wanted!r}"
    if component not in (*VERSIONED, "device"):
        return f"{given}: unknown component; the components are {', '.join((*VERSIONED, 'device'))}"
    if not is_text(wanted):
        return f"{given}: text is required"
    if component in VERSIONED:
        try:
            SpecifierSet(wanted)
        except InvalidSpecifier:
            return f"{given}: a version specifier such as '>=2.13,<2.14' is required"
    return None


def is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


def is_texts(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(is_text, value))


#: Rules that entries of several forms have.
TEXT: Rule = (is_text, "text")
STACK: Rule = (lambda value: isinstance(value, dict) and bool(value), "a table of one version specifier or more")
LINK: Rule = (lambda value: is_text(value) and re.fullmatch(r"https://\S+", value) is not None, "an https link")
DAY: Rule = (
    lambda value: isinstance(value, date) and not isinstance(value, datetime),
    "a date without quotes, such as 2027-06-30,",
)
TARGETS: Rule = (is_texts, "a list of patterns of target ids")


def read_text(path: Path, what: str) -> str:
    """The text of a file of ``what``. Raises :class:`EntryError`."""
    try:
        size = path.stat().st_size
        if size > FILE_LIMIT:
            raise EntryError(f"{path} has {size} bytes; a file of {what} has at most {FILE_LIMIT}")
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise EntryError(f"{path} cannot be read ({error}): give a file of {what}") from None


def load(text: str, file: str) -> dict[str, Any]:
    """The TOML in ``text``. Raises :class:`EntryError`."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        data: dict[str, Any] = toml.loads(text)
    except (ValueError, RecursionError) as error:
        raise EntryError(f"{file} is not TOML: {error}") from None
    return data


def tables(data: Mapping[str, Any], file: str, *forms: Form) -> list[list[dict[str, Any]]]:
    """The tables of ``data``, read from ``file``, in a list for each of ``forms``, every value as its rule requires.
    Raises :class:`EntryError`."""
    known = [form.table for form in forms]
    unknown = sorted(data.keys() - set(known))
    if unknown:
        read = " and ".join(f"[[{name}]]" for name in known)
        raise EntryError(f"{file}: unknown key {', '.join(unknown)}: only {read} tables are read")
    return [_tables(data.get(form.table, []), file, form) for form in forms]


def _tables(found: Any, file: str, form: Form) -> list[dict[str, Any]]:
    if not isinstance(found, list) or not all(isinstance(table, dict) for table in found):
        raise EntryError(f"{file}: {form.table} must be tables: write [[{form.table}]] above each entry")
    for number, table in enumerate(found, 1):
        problem = _problem(table, form)
        if problem:
            raise EntryError(f"{file}: {form.title} {table.get('id', number)!r}: {problem}")
    return found


def _problem(table: Mapping[str, Any], form: Form) -> str | None:
    """What is wrong with one table; None if nothing is."""
    unknown = sorted(table.keys() - form.rules.keys())
    if unknown:
        return f"unknown key {', '.join(unknown)}: the keys are {', '.join((*form.required, *form.optional))}"
    missing = [key for key in form.required if key not in table]
    if missing:
        return f"key {', '.join(missing)} is missing"
    for key, value in table.items():
        right, required = form.rules[key]
        if not right(value):
            return f"{key} = {value!r}: {required} is required"
    lines = table["stack"].items() if "stack" in table else ()
    return next((problem for line in lines if (problem := stack_problem(*line))), None)
