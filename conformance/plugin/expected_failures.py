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
``seen``
    Text that the failure's diagnosis contains. Long enough to be this defect's own.
``upstream``, ``owner``, ``expires``
    Where the defect is reported (https), who looks after the entry, and the last day (UTC) on which it holds.

In a pattern ``*`` is any text and ``?`` any one character. Every other character stands for itself, square brackets
too, for case ids are full of them. The whole id must match, upper and lower case being different.

Versions compare as packaging does: the local part (``2.13.0+cpu``) is left out, and a pre-release comes before its
release, so that ``>=2.13`` has no nightly build of 2.13 and ``>=2.13.dev0`` has all of them.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import date, datetime, timezone
from importlib.resources import files
from pathlib import Path
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.version import InvalidVersion, Version

from conformance.records import CaseRecord, Reason, ReasonCode, Status

BUILT_IN = "expected_failures.toml"  # beside this module

_TABLE = "expected_failure"
_VERSIONED = ("torch", "triton", "python", "ptxas", "driver")
_STATUSES = {
    "fail": (Status.FAIL, Status.COMPILE_ERROR),
    "crash": (Status.CRASH,),
    "timeout": (Status.TIMEOUT,),
    "oom": (Status.OOM,),
}
_REQUIRED = ("id", "cases", "stack", "upstream", "seen", "owner", "expires")
_OPTIONAL = ("targets", "status")


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
        if self.targets and not any(matches(pattern, record.target or "") for pattern in self.targets):
            return False
        return all(_holds(name, wanted, record.stack.get(name)) for name, wanted in self.stack.items())

    def expired(self) -> bool:
        return datetime.now(timezone.utc).date() > self.expires

    def objection(self, status: Status, diagnosis: str) -> str | None:
        """Why the entry does not excuse a failure; None if it does."""
        if self.expired():
            return f"{self} expired on {self.expires} and excuses nothing: {self.owner} renews or removes it"
        covered = _STATUSES[self.status]
        if status not in covered:
            return f"{self} is for {' or '.join(each.value for each in covered)}, not for {status.value}"
        if self.seen not in diagnosis:
            return f"{self} does not excuse this: a message that contains {self.seen!r} was expected"
        return None


@dataclass(frozen=True)
class Finding:
    """What a case's outcome amounts to, given the expected failures."""

    status: Status
    diagnosis: str
    reason: Reason | None = None


@dataclass(frozen=True)
class ExpectedFailures:
    """The expected failures of a run."""

    entries: tuple[ExpectedFailure, ...] = ()

    def failure(self, record: CaseRecord, status: Status, diagnosis: str) -> Finding:
        """What a failure of the case of ``record`` amounts to: waived if an entry excuses it, else as it is, with a
        line for each entry that concerns the case and does not."""
        objections: list[str] = []
        for entry in self._concerning(record):
            objection = entry.objection(status, diagnosis)
            if objection is None:
                return Finding(Status.WAIVED, f"{entry}:\n{diagnosis}", entry.reason)
            objections.append(objection)
        return Finding(status, "\n".join([diagnosis, *objections]))

    def success(self, record: CaseRecord) -> Finding | None:
        """What it amounts to that the case of ``record`` passed: None unless an entry said that it fails."""
        entries = [entry for entry in self._concerning(record) if not entry.expired()]
        if not entries:
            return None
        lines = [f"{entry}: the case passed; remove the entry from {entry.file}, or narrow it" for entry in entries]
        return Finding(Status.UNEXPECTED_PASS, "\n".join(lines), entries[0].reason)

    def applied(self, record: CaseRecord) -> CaseRecord:
        """``record`` of a failed case, with what the failure amounts to."""
        found = self.failure(record, record.status, record.diagnosis)
        return replace(record, status=found.status, diagnosis=found.diagnosis, reason=found.reason)

    def _concerning(self, record: CaseRecord) -> list[ExpectedFailure]:
        return [entry for entry in self.entries if entry.concerns(record)]


def matches(pattern: str, text: str) -> bool:
    """Whether the whole of ``text`` is as ``pattern`` says; the module describes patterns."""
    parts = (".*" if char == "*" else "." if char == "?" else re.escape(char) for char in pattern)
    return re.fullmatch("".join(parts), text, re.DOTALL) is not None


def _holds(component: str, wanted: str, found: Any) -> bool:
    """Whether the version (or name) ``found`` is one of those ``wanted``; one that cannot be read as such is not."""
    if component == "device" and found is None:
        return wanted == "none"
    if not isinstance(found, str):
        return False
    if component not in _VERSIONED:
        return matches(wanted, found)
    try:
        return SpecifierSet(wanted).contains(Version(found), prereleases=True)
    except InvalidVersion:
        return False


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
    file = files("conformance.plugin").joinpath(BUILT_IN)
    try:
        return f"conformance/plugin/{BUILT_IN}", file.read_text(encoding="utf-8")
    except OSError as error:
        raise ExpectedFailureError(f"{file} cannot be read ({error}): install the package anew") from None


def _given(path: Path) -> tuple[str, str]:
    try:
        return str(path), path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ExpectedFailureError(f"{path} cannot be read ({error}): give a file of expected failures") from None


def parsed(text: str, file: str) -> list[ExpectedFailure]:
    """The entries in the TOML ``text`` of ``file``. Raises :class:`ExpectedFailureError`."""
    toml = importlib.import_module("tomllib" if sys.version_info >= (3, 11) else "tomli")
    try:
        data = toml.loads(text)
    except ValueError as error:
        raise ExpectedFailureError(f"{file} is not TOML: {error}") from None
    tables = data.pop(_TABLE, [])
    if data:
        raise ExpectedFailureError(f"{file}: unknown key {', '.join(sorted(data))}: only [[{_TABLE}]] tables are read")
    if not isinstance(tables, list) or not all(isinstance(table, dict) for table in tables):
        raise ExpectedFailureError(f"{file}: {_TABLE} must be tables: write [[{_TABLE}]] above each entry")
    return [_entry(table, file, number) for number, table in enumerate(tables, 1)]


def _entry(table: Mapping[str, Any], file: str, number: int) -> ExpectedFailure:
    """The entry in ``table``, the ``number``-th of ``file``."""

    def refuse(problem: str) -> ExpectedFailureError:
        return ExpectedFailureError(f"{file}: expected failure {table.get('id', number)!r}: {problem}")

    unknown = sorted(table.keys() - {*_REQUIRED, *_OPTIONAL})
    if unknown:
        known = ", ".join((*_REQUIRED, *_OPTIONAL))
        raise refuse(f"unknown key {', '.join(unknown)}: the keys are {known}")
    missing = [key for key in _REQUIRED if key not in table]
    if missing:
        raise refuse(f"key {', '.join(missing)} is missing")
    for key, value in table.items():
        right, required = _RULES[key]
        if not right(value):
            raise refuse(f"{key} = {value!r}: {required} is required")
    for component, wanted in table["stack"].items():
        problem = _stack_problem(component, wanted)
        if problem:
            raise refuse(problem)
    fields = {**table, "targets": tuple(table.get("targets", ()))}
    return ExpectedFailure(**fields, file=file)


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())


#: Key of an entry -> whether a value will do, and what is required.
_RULES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "id": (lambda value: _is_text(value) and not re.search(r"\s", value), "text without spaces"),
    "cases": (_is_text, "a pattern of case ids"),
    "stack": (lambda value: isinstance(value, dict) and bool(value), "a table of one version specifier or more"),
    "upstream": (lambda value: _is_text(value) and re.fullmatch(r"https://\S+", value) is not None, "an https link"),
    "seen": (_is_text, "text that the diagnosis contains"),
    "owner": (_is_text, "text"),
    "expires": (
        lambda value: isinstance(value, date) and not isinstance(value, datetime),
        "a date without quotes, such as 2027-06-30,",
    ),
    "targets": (
        lambda value: isinstance(value, list) and bool(value) and all(map(_is_text, value)),
        "a list of patterns of target ids",
    ),
    "status": (lambda value: isinstance(value, str) and value in _STATUSES, f"one of {', '.join(_STATUSES)}"),
}


def _stack_problem(component: str, wanted: Any) -> str | None:
    """What is wrong with a line of the table ``stack``; None if nothing is."""
    given = f"stack.{component} = {wanted!r}"
    if component not in (*_VERSIONED, "device"):
        return f"{given}: unknown component; the components are {', '.join((*_VERSIONED, 'device'))}"
    if not _is_text(wanted):
        return f"{given}: text is required"
    if component in _VERSIONED:
        try:
            SpecifierSet(wanted)
        except InvalidSpecifier:
            return f"{given}: a version specifier such as '>=2.13,<2.14' is required"
    return None
