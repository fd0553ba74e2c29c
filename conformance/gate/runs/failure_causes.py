"""Words the cause of a failure so that all cases of one cause share it: without numbers, addresses or paths."""

from __future__ import annotations

import re

from conformance.gate.runs.compiler_lines import compiler_cause
from conformance.records import CaseRecord, Check, CheckKind, Status

#: Characters of a text that are read, and of a cause.
TEXT_LIMIT = 2000
CAUSE_LIMIT = 120

#: The statuses of a case whose compiler may have said why.
_BY_THE_COMPILER = (Status.COMPILE_ERROR, Status.CRASH, Status.TIMEOUT, Status.OOM, Status.EXPECTED_FAIL)

_PROVEN = re.compile(r"\bCAUSE ([^|\n]+)")
_SUBSTITUTIONS = tuple(
    (re.compile(pattern), text)
    for pattern, text in (
        (r"(?<![\w.])(?:/[\w.+@~-]+){2,}(?::\d+)*", "PATH"),
        (r"0x[0-9a-fA-F]+|\b(?=[a-f]*\d)[0-9a-f]{12,}\b", "HEX"),
        (r",? ?\bfirst [\[(].*", ""),  # where the first wrong element is, and what it holds
        (r"\b\d+(?:x\d+)+(?:-\w+)*", "CONFIG"),
        (r"[\[(] ?-?\d+(?:, ?-?\d+)*,? ?[\])]", "[..]"),
        (r"(?<![\w.])[-+]?\d+(?:\.\d+)?(?:[eE][-+]?\d+)?", "N"),
        (r"(?<=[a-z])(?<!sm)_\d+\b", "_N"),  # of generated names
        (r"\bseed N\b:? ?|\bN/N ", ""),
        (r"\s+", " "),
    )
)


def normalised(text: str) -> str:
    """``text`` without what is only one case's, on one line, cut to :data:`CAUSE_LIMIT` characters.

    >>> normalised("tile (3,1): 12 of 4096 wrong at 0x7f12ab00 in /tmp/x/k.py:40")
    'tile [..]: N of N wrong at HEX in PATH'
    """
    text = text[:TEXT_LIMIT]
    for pattern, replacement in _SUBSTITUTIONS:
        text = pattern.sub(replacement, text)
    text = text.strip(" :|,")
    return text if len(text) <= CAUSE_LIMIT else text[: CAUSE_LIMIT - 3].rstrip() + "..."


def failure_cause(record: CaseRecord, failing: tuple[tuple[str, str], ...] | None = None) -> str:
    """Returns the cause of the failure of ``record``: its first failing check, with the cause that the diagnosis proves
    or else the check's text. Without a failing check it is what the compiler names as the cause of its failure, or else
    the diagnosis's first line. ``failing`` replaces the record's failing checks."""
    failing = record.failing if failing is None else failing
    proven = _PROVEN.search(record.diagnosis[:TEXT_LIMIT])
    if failing:
        check, text = Check.parse(failing[0][0]), failing[0][1]
        if check.kind is CheckKind.COMPILE and (named := compiler_cause(text)):
            return _joined(check.name, named)
        words = proven.group(1) if proven and check.kind is CheckKind.NUMERICS else first_line(text)
        return _joined(check.name, normalised(words))
    named = compiler_cause(record.diagnosis) if record.status in _BY_THE_COMPILER else None
    words = named or normalised(first_line(record.diagnosis))
    return _joined(record.status.value, words) if record.status is not Status.FAIL else words or "failed without a word"


def first_line(text: str) -> str:
    """The first line of ``text`` that is not blank; "" if there is none."""
    return next((line for line in text[:TEXT_LIMIT].splitlines() if line.strip()), "")


def _joined(name: str, words: str) -> str:
    return f"{normalised(name)}: {words}" if words else normalised(name)
