"""A file of case ids, one a line: which cases somebody asks for. Empty lines and lines that begin with # count not."""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from pathlib import Path

from conformance.records import plain_file, replace_file


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
