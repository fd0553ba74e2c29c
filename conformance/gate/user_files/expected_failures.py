"""Known defects of what is tested, kept as data: the failures that a run expects, and what becomes of them.

A file of expected failures is TOML, one ``[[expected_failure]]`` table per defect, with these keys:

``id``
    Names the entry. No other entry of the run has it.
``cases``
    Pattern of the ids of the cases that it concerns.
``stack``
    Table of the versions that have the defect: ``torch``, ``triton``, ``python``, ``ptxas`` or ``driver`` to a version
    specifier, ``device`` to a pattern of its name, or to "none" for a run without one. All of them must hold, and what
    a machine lacks does not hold.
``targets`` (optional)
    Patterns of target ids; the case's target must match one of them.
``status`` (optional)
    How the case fails: "fail" (the default, a compile error included), "crash", "timeout" or "oom".
``intermittent`` (optional)
    true for a defect that comes and goes, such as one that depends on what is measured: a case that passes is then no
    reason to remove the entry.
``seen``
    Text that the failure's diagnosis contains. Long enough to be this defect's own.
``checks`` (optional)
    Patterns of the names of checks, without a config, that fail by this defect without saying ``seen``. A failing check
    that is none of these and does not say it is another failure, which the entry does not excuse.
``upstream``, ``owner``, ``expires``
    Where the defect is reported (https), who looks after the entry, and the last day (UTC) on which it holds.

:mod:`conformance.gate.user_files.toml_entries` says how patterns match, how versions compare, and why this is not a
waiver.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timezone
from importlib.resources import files
from pathlib import Path

from conformance.gate.user_files.toml_entries import (
    DAY,
    LINK,
    STACK,
    TARGETS,
    TEXT,
    EntryError,
    Form,
    any_matches,
    holds,
    is_text,
    is_texts,
    load,
    matches,
    read_text,
    tables,
)
from conformance.records import CaseRecord, Check, Reason, ReasonCode, Status, Verdict

BUILT_IN = "expected_failures.toml"  # beside this module

_STATUSES = {
    "fail": (Status.FAIL, Status.COMPILE_ERROR),
    "crash": (Status.CRASH,),
    "timeout": (Status.TIMEOUT,),
    "oom": (Status.OOM,),
}
_FORM = Form(
    "expected_failure",
    "expected failure",
    {
        "id": (lambda value: is_text(value) and not re.search(r"\s", value), "text without spaces"),
        "cases": (is_text, "a pattern of case ids"),
        "stack": STACK,
        "upstream": LINK,
        "seen": (is_text, "text that the diagnosis contains"),
        "owner": TEXT,
        "expires": DAY,
        "targets": TARGETS,
        "status": (lambda value: isinstance(value, str) and value in _STATUSES, f"one of {', '.join(_STATUSES)}"),
        "intermittent": (lambda value: isinstance(value, bool), "true or false"),
        "checks": (is_texts, "a list of patterns of checks"),
    },
    optional=("targets", "status", "intermittent", "checks"),
)


class ExpectedFailureError(ValueError):
    """A file of expected failures cannot be used; the message says which entry and what is required."""


@dataclass(frozen=True)
class ExpectedFailure:
    """One entry; the module says what its fields mean. ``file`` is where it was read."""

    id: str
    cases: str
    stack: Mapping[str, str]
    upstream: str
    seen: str
    owner: str
    expires: date
    targets: tuple[str, ...] = ()
    status: str = "fail"
    intermittent: bool = False
    checks: tuple[str, ...] = ()
    file: str = BUILT_IN

    def __str__(self) -> str:
        return f"expected failure {self.id} ({self.upstream})"

    @property
    def reason(self) -> Reason:
        detail = f"{self.upstream}, owner {self.owner}, expires {self.expires}"
        return Reason(ReasonCode.KNOWN_DEFECT, self.id, detail)

    def concerns(self, record: CaseRecord) -> bool:
        """Whether the case of ``record``, its target and its stack are those of the entry."""
        if not matches(self.cases, record.case):
            return False
        if self.targets and not any_matches(self.targets, record.target or ""):
            return False
        return holds(self.stack, record.stack)

    def expired(self) -> bool:
        return datetime.now(timezone.utc).date() > self.expires

    def objection(self, status: Status, diagnosis: str, verdicts: Iterable[Verdict] = ()) -> str | None:
        """Why the entry does not excuse a failure of a case with ``verdicts``; None if it does."""
        if self.expired():
            return f"{self} expired on {self.expires} and excuses nothing: {self.owner} renews or removes it"
        covered = _STATUSES[self.status]
        if status not in covered:
            return f"{self} is for {' or '.join(each.value for each in covered)}, not for {status.value}"
        if self.seen not in diagnosis:
            return f"{self} does not excuse this: a message that contains {self.seen!r} was expected"
        failed = [verdict for verdict in verdicts if not verdict.passed]
        unseen = [verdict.check for verdict in failed if self.seen not in f"{verdict.check}: {verdict.text}"]
        others = [name for name in (Check.parse(text).name for text in unseen) if not any_matches(self.checks, name)]
        if others:
            named = ", ".join(dict.fromkeys(others))
            return f"{self} does not excuse that {named} failed: no text has {self.seen!r}, and its checks are others"
        return None


@dataclass(frozen=True)
class CaseOutcome:
    """What a case's outcome amounts to, given the expected failures."""

    status: Status
    diagnosis: str
    reason: Reason | None = None


@dataclass(frozen=True)
class ExpectedFailures:
    """The expected failures of a run."""

    entries: tuple[ExpectedFailure, ...] = ()

    def failure(self, record: CaseRecord, status: Status, diagnosis: str) -> CaseOutcome:
        """The outcome of a case that failed: an expected failure if an entry excuses it. Otherwise the failure stays
        as it is, with a line for each entry that concerns the case and does not excuse it."""
        objections: list[str] = []
        for entry in self._concerning(record):
            objection = entry.objection(status, diagnosis, record.verdicts)
            if objection is None:
                return CaseOutcome(Status.EXPECTED_FAIL, f"{entry}:\n{diagnosis}", entry.reason)
            objections.append(objection)
        return CaseOutcome(status, "\n".join([diagnosis, *objections]))

    def success(self, record: CaseRecord) -> CaseOutcome | None:
        """What it amounts to that the case of ``record`` passed: None unless an entry said that it always fails."""
        entries = [entry for entry in self._concerning(record) if not (entry.expired() or entry.intermittent)]
        if not entries:
            return None
        lines = [f"{entry}: the case passed; remove the entry from {entry.file}, or narrow it" for entry in entries]
        return CaseOutcome(Status.UNEXPECTED_PASS, "\n".join(lines), entries[0].reason)

    def applied(self, record: CaseRecord) -> CaseRecord:
        """``record`` of a failed case, with what the failure amounts to."""
        found = self.failure(record, record.status, record.diagnosis)
        return replace(record, status=found.status, diagnosis=found.diagnosis, reason=found.reason)

    def _concerning(self, record: CaseRecord) -> list[ExpectedFailure]:
        return [entry for entry in self.entries if entry.concerns(record)]


def read_expected_failures(paths: Iterable[Path] = ()) -> ExpectedFailures:
    """The expected failures that come with the package, and those in the files ``paths``. Raises
    :class:`ExpectedFailureError` if one of them cannot be used."""
    entries: dict[str, ExpectedFailure] = {}
    for file, text in (_built_in(), *map(_given, paths)):
        for entry in parsed(text, file):
            if entry.id in entries:
                other = entries[entry.id].file
                where = "twice" if other == file else f"in {other} too"
                raise ExpectedFailureError(f"{file}: expected failure {entry.id!r} is {where}: an id must be unique")
            entries[entry.id] = entry
    return ExpectedFailures(tuple(entries.values()))


def _built_in() -> tuple[str, str]:
    file = files("conformance.data").joinpath(BUILT_IN)
    try:
        return f"conformance/data/{BUILT_IN}", file.read_text(encoding="utf-8")
    except OSError as error:
        raise ExpectedFailureError(f"{file} cannot be read ({error}): install the package anew") from None


def _given(path: Path) -> tuple[str, str]:
    try:
        return str(path), read_text(path, "expected failures")
    except EntryError as error:
        raise ExpectedFailureError(str(error)) from None


def parsed(text: str, file: str) -> list[ExpectedFailure]:
    """The entries in the TOML ``text`` of ``file``. Raises :class:`ExpectedFailureError`."""
    try:
        (found,) = tables(load(text, file), file, _FORM)
    except EntryError as error:
        raise ExpectedFailureError(str(error)) from None
    lists = ("targets", "checks")
    return [
        ExpectedFailure(**{**table, **{name: tuple(table.get(name, ())) for name in lists}}, file=file)
        for table in found
    ]
