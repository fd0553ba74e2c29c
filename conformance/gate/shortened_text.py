"""Shortens texts between words, so that what a user would copy, such as the id of a case, is whole or absent."""

from __future__ import annotations

MARK = "..."


def first_words(text: str, limit: int) -> str:
    """The beginning of ``text``, of ``limit`` characters at most, with :data:`MARK` behind it if that is not all.

    >>> first_words("no script for test_a.py::test_x[mm-bf16]", 30)
    'no script for ...'
    """
    if len(text) <= limit:
        return text
    ends = [at for at in range(limit, -1, -1) if text[at].isspace()]
    end = next((at for at in ends if _closed(text[:at])), next(iter(ends), 0))
    return f"{text[:end].rstrip()} {MARK}".lstrip()


def last_words(text: str, limit: int) -> str:
    """The end of ``text``, as :func:`first_words` has its beginning.

    >>> last_words("one two three four five", 12)
    '... four five'
    """
    if len(text) <= limit:
        return text
    starts = [at + 1 for at in range(len(text) - limit - 1, len(text)) if text[at].isspace()]
    start = next((at for at in starts if _closed(text[at:])), next(iter(starts), len(text)))
    return f"{MARK} {text[start:].lstrip()}".rstrip()


def _closed(text: str) -> bool:
    """Returns True if no id, whose parameters are in brackets and may hold blanks, goes on beyond ``text``."""
    return text.count("[") == text.count("]")
