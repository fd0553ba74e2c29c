"""Waivers: regressions of a candidate that the user of the gate accepts until a day, each with a reason.

``waivers.toml`` has one ``[[waiver]]`` table per accepted regression, with these keys:

``cases``
    Pattern of case ids, or a list of them. It may match only cases that regressed: none of them may pass.
``stack``
    Table of the candidate's versions for which it is accepted. A component (``torch``, ``triton``, ``python``,
    ``ptxas``, ``driver``) goes to a version specifier, ``device`` to a pattern of its name or "none". All must hold.
``targets`` (optional)
    Patterns of target ids.
``kind`` (optional)
    The kind of regression: a failure (``NEW_FAIL``) unless given. A crash, a failure by a known defect
    (``NEW_KNOWN_DEFECT``), a spill or lost time has to be named. An expected failure says what a defect is; only a
    waiver accepts that a candidate brings it.
``seen`` (optional)
    Text that the regression contains, so that the waiver covers no other failure of its cases. In a failing case every
    failing check must contain it, in its name or its text; without a failing check, the diagnosis. A known defect is
    also found by its entry's id and link. In another regression, the cause must contain it.
``reason``, ``issue``, ``owner``, ``expires``
    Why it is accepted, where it is followed (https), who looks after it, and the last day on which it holds.

What a waiver covers stays visible as waived and counts as proven nowhere. A waiver that is expired, covers nothing or
covers what passes fails the gate, with the edit that puts it right. An incomplete run cannot be waived.
:mod:`.case_list` says how patterns match, :mod:`.toml_entries` how versions compare.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from msgspec import Meta
from msgspec.structs import replace

from conformance.records import Status
from conformance.user_files import toml_entries
from conformance.user_files.case_list import any_matches
from conformance.user_files.findings import SEVERITY, Kind, Severity
from conformance.user_files.toml_edits import spans
from conformance.user_files.toml_entries import Day, Link, Ranges, Targets, Text, TomlEntry

WAIVABLE = tuple(kind for kind in Kind if SEVERITY[kind] is Severity.REGRESSION)

#: Status of a failing record -> the kind that a waiver must be of. An unexpected pass is put right in its own file.
FAILURES: Mapping[Status, Kind] = {
    **dict.fromkeys((Status.FAIL, Status.COMPILE_ERROR, Status.FLAKY), Kind.NEW_FAIL),
    **dict.fromkeys((Status.CRASH, Status.TIMEOUT, Status.OOM), Kind.NEW_CRASH),
}


_CASES = "a pattern of case ids, or a list of patterns, that are more than wildcards,"
_KINDS = f"one of {', '.join(kind.value for kind in WAIVABLE)}"


class Waiver(TomlEntry, frozen=True, kw_only=True):
    """One waiver; the module says what its keys mean."""

    table = "waiver"
    title = "waiver"

    cases: Annotated[str | Annotated[tuple[str, ...], Meta(min_length=1)], Meta(description=_CASES)]
    stack: Ranges
    reason: Text
    issue: Link
    owner: Text
    expires: Day
    targets: Targets = ()
    kind: Annotated[Kind, Meta(description=_KINDS)] = Kind.NEW_FAIL
    seen: Text = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        if not all(pattern.strip("*? ") for pattern in self.patterns):
            raise ValueError(f"cases = {self.cases!r}: {_CASES} is required")
        if self.kind not in WAIVABLE:
            raise ValueError(f"kind = {self.kind.value!r}: {_KINDS} is required")

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: waiver of {self.kind.value} ({self.issue}, {self.owner})"

    @property
    def patterns(self) -> tuple[str, ...]:
        """The patterns of the cases, one or several."""
        return (self.cases,) if isinstance(self.cases, str) else self.cases

    def is_for(self, target: str | None) -> bool:
        """True if it is about cases of ``target``."""
        return not self.targets or any_matches(self.targets, target or "")

    def accepts(self, target: str | None, kind: Kind, texts: Iterable[str]) -> bool:
        """True if it accepts a regression of this kind, of one of its cases, that is described by ``texts``."""
        return kind is self.kind and self.is_for(target) and all(self.seen in text for text in texts)


@dataclass(frozen=True)
class Waivers:
    """The waivers of one file, and its text, of which edits are made."""

    entries: tuple[Waiver, ...] = ()
    file: str = ""
    text: str = ""


def read_waivers(path: Path) -> Waivers:
    """Returns the waivers in the file ``path``. Raises :class:`EntryError`."""
    return parsed(toml_entries.read_text(path, "waivers"), str(path))


def parsed(text: str, file: str) -> Waivers:
    """Returns the waivers in the TOML ``text`` of ``file``. Raises :class:`EntryError`."""
    data = toml_entries.load(text, file, Waiver)
    waivers = zip(toml_entries.entries(data, file, Waiver), spans(text, file, Waiver.table), strict=True)
    return Waivers(tuple(replace(waiver, span=span) for waiver, span in waivers), file, text)
