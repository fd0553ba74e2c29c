"""Patterns of case ids, targets and checks, as people write them in TOML files.

In a pattern ``*`` is any text and ``?`` any one character. Every other character stands for itself, square brackets
too, because case ids are full of them. The whole text must match. Upper and lower case differ.
"""

from __future__ import annotations

import bisect
import functools
import re
from collections.abc import Iterable


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
