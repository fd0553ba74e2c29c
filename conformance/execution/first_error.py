"""What an exception was raised from: compilers and interpreters wrap what went wrong, and some lose its words."""

from __future__ import annotations

import traceback


def with_first_error(error: BaseException) -> str:
    """The type and words of ``error``, and on a line of its own the error that it was raised from first, unless its
    words are there already. Of one without words, such as an assertion, the line of source that raised it is given."""
    text = f"{type(error).__name__}: {error}"
    first = error
    while first.__cause__ is not None:
        first = first.__cause__
    frames = traceback.extract_tb(first.__traceback__)
    words = str(first) or (frames[-1].line if frames else "")
    return text if first is error or not words or words in text else f"{text}\n{type(first).__name__}: {words}"
