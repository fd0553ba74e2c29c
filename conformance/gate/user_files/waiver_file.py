"""Waivers: what the user of the gate accepts of a candidate, until a day, with a reason that anyone can read.

``waivers.toml`` has one ``[[waiver]]`` table per accepted regression, with these keys:

``cases``
    Pattern of case ids, or a list of them. It covers only what regressed: of the cases that it matches none may pass.
``stack``
    Table of the candidate's versions for which it is accepted: a component (``torch``, ``triton``, ``python``,
    ``ptxas``, ``driver``) to a version specifier, ``device`` to a pattern of its name or "none". All must hold.
``targets`` (optional)
    Patterns of target ids.
``kind`` (optional)
    The kind of regression: a failure (``NEW_FAIL``) unless given. A crash, a spill or lost time has to be named.
``seen`` (optional)
    Text that the regression contains: of a failing case every failing check, its name and what it says (without one
    the diagnosis), of another regression the cause. It keeps the waiver from covering another failure of its cases.
``reason``, ``issue``, ``owner``, ``expires``
    Why it is accepted, where it is followed (https), who looks after it, and the last day on which it holds.

What a waiver covers stays visible as waived and counts as proven nowhere. A waiver that is expired, covers nothing or
covers what passes fails the gate, with the edit that puts it right. That a run is incomplete cannot be waived. How
patterns match and versions compare is in :mod:`conformance.gate.user_files.toml_entries`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from conformance.gate.findings import RUN_ITSELF, SEVERITY, Kind, Severity
from conformance.gate.user_files.toml_edits import Span, spans
from conformance.gate.user_files.toml_entries import (
    DAY,
    LINK,
    STACK,
    TARGETS,
    TEXT,
    EntryError,
    Form,
    any_matches,
    is_text,
    is_texts,
    load,
    matches,
    read_text,
    tables,
)
from conformance.records import Status

TABLE = "waiver"
WAIVABLE = tuple(kind for kind in Kind if SEVERITY[kind] is Severity.REGRESSION)

#: Status of a failing record -> the kind that a waiver must be of. An unexpected pass is put right in its own file.
FAILURES: Mapping[Status, Kind] = {
    **dict.fromkeys((Status.FAIL, Status.COMPILE_ERROR, Status.FLAKY), Kind.NEW_FAIL),
    **dict.fromkeys((Status.CRASH, Status.TIMEOUT, Status.OOM), Kind.NEW_CRASH),
}


def _is_patterns(value: Any) -> bool:
    given = [value] if is_text(value) else value
    return is_texts(given) and all(pattern.strip("*? ") for pattern in given)


_FORM = Form(
    TABLE,
    "waiver",
    {
        "cases": (_is_patterns, "a pattern of case ids, or a list of patterns, that are more than wildcards,"),
        "stack": STACK,
        "reason": TEXT,
        "issue": LINK,
        "owner": TEXT,
        "expires": DAY,
        "targets": TARGETS,
        "kind": (
            lambda value: isinstance(value, str) and value in [kind.value for kind in WAIVABLE],
            f"one of {', '.join(kind.value for kind in WAIVABLE)}",
        ),
        "seen": TEXT,
    },
    optional=("targets", "kind", "seen"),
)


class WaiverError(ValueError):
    """A file of waivers cannot be used; the message says which waiver and what is required."""


@dataclass(frozen=True)
class Waiver:
    """One waiver; the module says what its fields mean. ``line`` is that of its header, from 1."""

    cases: tuple[str, ...]
    stack: Mapping[str, str]
    reason: str
    issue: str
    owner: str
    expires: date
    targets: tuple[str, ...]
    kind: Kind
    seen: str
    file: str
    line: int
    span: Span

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: waiver of {self.kind.value} ({self.issue}, {self.owner})"

    def is_for(self, target: str | None) -> bool:
        return not self.targets or any_matches(self.targets, target or "")

    def accepts(self, target: str | None, kind: Kind, said: Iterable[str]) -> bool:
        """Whether a regression of this kind that has ``said`` so, of one of its cases, is what it accepts."""
        return kind is self.kind and self.is_for(target) and all(self.seen in text for text in said)


@dataclass(frozen=True)
class Waivers:
    """The waivers of one file, and its text, of which edits are made."""

    entries: tuple[Waiver, ...] = ()
    file: str = ""
    text: str = ""


def read_waivers(path: Path) -> Waivers:
    """The waivers in the file ``path``. Raises :class:`WaiverError`."""
    try:
        return parsed(read_text(path, "waivers"), str(path))
    except EntryError as error:
        raise WaiverError(str(error)) from None


def parsed(text: str, file: str) -> Waivers:
    """The waivers in the TOML ``text`` of ``file``. Raises :class:`WaiverError`."""
    try:
        (found,) = tables(load(text, file), file, _FORM)
        places = spans(text, file, TABLE)
    except EntryError as error:
        raise WaiverError(str(error)) from None
    return Waivers(tuple(_waiver(*pair, file) for pair in zip(found, places, strict=True)), file, text)


def _waiver(table: Mapping[str, Any], span: Span, file: str) -> Waiver:
    fields = {
        **table,
        "cases": (table["cases"],) if isinstance(table["cases"], str) else tuple(table["cases"]),
        "targets": tuple(table.get("targets", ())),
        "kind": Kind(table.get("kind", Kind.NEW_FAIL.value)),
        "seen": table.get("seen", ""),
    }
    waiver = Waiver(**fields, file=file, line=span.start + 1, span=span)
    wide = next((pattern for pattern in waiver.cases if matches(pattern, RUN_ITSELF)), None)
    if wide is not None:
        raise WaiverError(
            f"{file}:{waiver.line}: cases = {wide!r} matches {RUN_ITSELF!r}: that a run is incomplete cannot be "
            "waived: run it again, or narrow the pattern to the ids of cases"
        )
    return waiver
