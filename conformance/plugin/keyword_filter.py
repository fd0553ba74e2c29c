"""``-k`` with the text of a case id.

pytest's own expressions know no ``=``, ``,`` or ``::`` across files, of which case ids are full. A worker of xdist that
cannot read an expression ends the run in a traceback. So expressions are read before the run begins. Those with such
text are applied here: each word must be a part of the case's id.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable

import pytest

_TAKEN: pytest.StashKey[Callable[[str], bool] | None] = pytest.StashKey()

_TOKEN = re.compile(r"\[[^\[\]]*\]?|[()]|(?:[^\s()\[]|\[[^\[\]]*\]?)+")
_OWN_WORDS = ("and", "or", "not", "(", ")")
_PYTEST_WORD = re.compile(r"[\w:+\-.\[\]\\/]+")


def take(config: pytest.Config) -> Callable[[str], bool] | None:
    """Returns a filter of case ids for a ``-k`` that pytest's parser rejects, such as ``order=col.row``; None if pytest
    can parse it. The option is then empty for pytest. Raises pytest.UsageError for an expression that is wrong."""
    if _TAKEN not in config.stash:
        config.stash[_TAKEN] = _take(config)
    return config.stash[_TAKEN]


def _take(config: pytest.Config) -> Callable[[str], bool] | None:
    text, mark = config.option.keyword.strip(), config.option.markexpr.strip()
    match = matches(text)
    try:
        ast.parse(mark or "x", mode="eval")
    except SyntaxError:
        raise pytest.UsageError(f"-m {mark}: no expression of marks; write such as 'slow' or 'not slow'") from None
    words = [word for word in _TOKEN.findall(text) if word not in _OWN_WORDS]
    if all("::" not in word and _PYTEST_WORD.fullmatch(word) for word in words):
        return None
    config.option.keyword = ""
    return match


def matches(expression: str) -> Callable[[str], bool]:
    """Returns a function that says whether a case id has the words of ``expression``, joined by and, or, not and
    parentheses. Raises pytest.UsageError for an expression that cannot be read."""
    words: list[str] = []
    terms: list[str] = []
    for token in _TOKEN.findall(expression):
        if token in _OWN_WORDS:
            terms.append(token)
        else:
            terms.append(f"has({len(words)})")
            words.append(token.lower())
    try:
        code = compile(" ".join(terms) or "True", "-k", "eval")
    except SyntaxError:
        raise pytest.UsageError(
            f"-k {expression}: cannot be read; write parts of case ids, with and, or, not between them"
        ) from None

    def match(case: str) -> bool:
        lower = case.lower()
        return bool(eval(code, {"has": lambda number: words[number] in lower}))

    return match
