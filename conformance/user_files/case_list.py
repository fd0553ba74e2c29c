"""Case ids in files of users: lists of ids, and patterns of ids, targets and checks.

In a pattern ``*`` is any text and ``?`` any one character. Every other character stands for itself, square brackets
too, because case ids are full of them. The whole text must match. Upper and lower case differ.
"""

from __future__ import annotations

import bisect
import functools
import hashlib
import re
from collections.abc import Collection, Iterable
from pathlib import Path

from conformance.records import plain_file, replace_file


def matches(pattern: str, text: str) -> bool:
    """True if the whole of ``text`` is as ``pattern`` says; the module describes patterns.

    >>> matches("test_tma.py::*[mm-*]", "test_tma.py::test_loads[mm-bf16]")
    True
    >>> matches("*[mm]", "test_tma.py::test_loads[mm-bf16]")
    False
    """
    return _expression(pattern).fullmatch(text) is not None


def any_matches(patterns: Iterable[str], text: str) -> bool:
    """True if ``text`` is as one of ``patterns`` says."""
    return any(matches(pattern, text) for pattern in patterns)


def longest_text(pattern: str) -> str:
    """Returns the longest text without wildcards that everything contains which ``pattern`` matches.

    >>> longest_text("test_tma.py::*[mm-*]")
    'test_tma.py::'
    """
    return max(re.split(r"[*?]", pattern), key=len)


class Ids:
    """Ids of many cases. Those that a pattern matches are found without trying each: the text before the pattern's
    first wildcard leaves a range of the sorted ids."""

    def __init__(self, ids: Iterable[str]) -> None:
        self._sorted = sorted(set(ids))

    def matching(self, pattern: str) -> list[str]:
        """Returns the ids that ``pattern`` matches, sorted."""
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
    # Each part is taken where it is found first, and nowhere else: a plain .* would try all places, which takes hours
    # for a pattern of many stars. The expression does not go back into a group in a lookahead.
    middle = "".join(f"(?=(.*?{part}))\\{number}" for number, part in enumerate(rest[:-1], 1))
    return re.compile(f"{first}{middle}.*{rest[-1]}", re.DOTALL)


class CaseListError(ValueError):
    """A file of case ids cannot be used; the message names the file, what is wrong with it and what to do."""


def read_case_list(file: Path) -> frozenset[str]:
    """Returns the ids in ``file``. Raises :class:`CaseListError` if it cannot be read, lists nothing, or has a line
    that is no case id."""
    try:
        lines = [line.strip() for line in plain_file(file).read_text(encoding="utf-8").splitlines()]
    except (OSError, ValueError) as error:
        raise CaseListError(f"{file} cannot be read ({error}): a file of case ids, one a line, is required") from None
    ids = [line for line in lines if line and not line.startswith("#")]
    if not ids:
        raise CaseListError(f"{file} lists no case: one id a line is required; 'conformance list' prints them")
    wrong = next((line for line in ids if "::" not in line), None)
    if wrong is not None:
        raise CaseListError(f"{file}: {wrong[:100]!r} is no id of a case; 'conformance list' prints them")
    return frozenset(ids)


def kept_case_list(cases: Collection[str], cache: Path) -> Path:
    """A file in ``cache`` that lists ``cases`` and is named by them: a run that is used again had the same list."""
    text = "".join(f"{case}\n" for case in sorted(cases))
    file = cache / "cases" / f"{hashlib.sha256(text.encode()).hexdigest()[:16]}.txt"
    file.parent.mkdir(parents=True, exist_ok=True)
    replace_file(file, text)
    return file
