"""Known defects of what is tested, as data: the failures that a run expects, and how they change a case's status.

A file of expected failures is TOML, one ``[[expected_failure]]`` table per defect, with these keys:

``id``
    Names the entry. No other entry of the run has it.
``cases``
    Pattern of the ids of the cases that it concerns.
``stack``
    Table of the versions that have the defect: ``torch``, ``triton``, ``python``, ``ptxas`` or ``driver`` to a version
    specifier. ``device`` goes to a pattern of its name, or to "none" for a run without one. All of them must hold, and
    what a machine lacks does not hold.
``targets`` (optional)
    Patterns of target ids; the case's target must match one of them.
``status`` (optional)
    How the case fails: "fail" (the default, a compile error included), "crash", "timeout" or "oom".
``intermittent`` (optional)
    true for a defect that comes and goes, such as one that depends on what is measured. A case that passes is then no
    reason to remove the entry.
``seen``
    Text that the failure's diagnosis contains. Long enough to be this defect's own.
``checks`` (optional)
    Patterns of names of checks, without a config, that this defect fails although their texts lack ``seen``. Any other
    failing check without ``seen`` is another failure, which the entry does not excuse.
``fixed_in`` (optional)
    The release that mends the defect, such as "triton 3.9.0": a component of ``stack`` and a version that ``stack``
    does not cover.
``upstream``, ``owner``, ``expires``
    Where the defect is reported (https), who looks after the entry, and the last day (UTC) on which it holds.

:mod:`.case_list` says how patterns match, :mod:`.toml_entries` how versions compare, and why
this is not a waiver.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from conformance.records import CaseRecord, Check, CheckKind, Reason, ReasonCode, Status, Verdict
from conformance.user_files import toml_entries
from conformance.user_files.case_list import any_matches, longest_text, matches
from conformance.user_files.toml_entries import (
    Day,
    EntryError,
    Link,
    NamedEntry,
    Ranges,
    Targets,
    Text,
    TomlEntry,
    holds,
)

BUILT_IN = "expected_failures.toml"  # in conformance/data

_STATUSES = {
    "fail": (Status.FAIL, Status.COMPILE_ERROR),
    "crash": (Status.CRASH,),
    "timeout": (Status.TIMEOUT,),
    "oom": (Status.OOM,),
}


_RELEASE = 'a component and its release, such as "triton 3.9.0",'


class ExpectedFailure(NamedEntry, frozen=True, kw_only=True):
    """One entry; the module says what its keys mean."""

    table = "expected_failure"
    title = "expected failure"

    cases: Annotated[str, Meta(pattern=r"\S", description="a pattern of case ids")]
    stack: Ranges
    upstream: Link
    seen: Annotated[str, Meta(pattern=r"\S", description="text that the diagnosis contains")]
    owner: Text
    expires: Day
    targets: Targets = ()
    status: Annotated[
        Literal["fail", "crash", "timeout", "oom"], Meta(description=f"one of {', '.join(_STATUSES)}")
    ] = "fail"
    intermittent: Annotated[bool, Meta(description="true or false")] = False
    checks: Annotated[tuple[Text, ...], Meta(min_length=1, description="a list of patterns of checks")] = ()
    fixed_in: Annotated[str, Meta(pattern=r"\A\w+ \d[\w.+]*\Z", description=_RELEASE)] = ""

    def __post_init__(self) -> None:
        super().__post_init__()
        component, _, version = self.fixed_in.partition(" ")
        if version and (component not in self.stack or holds({component: self.stack[component]}, {component: version})):
            raise ValueError(
                f"fixed_in = {self.fixed_in!r}: {_RELEASE} is required, which stack = {dict(self.stack)!r} names and "
                "does not cover"
            )

    def __str__(self) -> str:
        return f"expected failure {self.id} ({self.upstream})"

    @property
    def reason(self) -> Reason:
        detail = f"{self.upstream}, owner {self.owner}, expires {self.expires}"
        return Reason(ReasonCode.KNOWN_DEFECT, self.id, detail)

    def concerns(self, record: CaseRecord) -> bool:
        """True if the case of ``record``, its target and its stack are those of the entry."""
        if not matches(self.cases, record.case):
            return False
        if self.targets and not any_matches(self.targets, record.target or ""):
            return False
        return holds(self.stack, record.stack)

    def expired(self) -> bool:
        """True if its last day (UTC) is over."""
        return datetime.now(timezone.utc).date() > self.expires

    def objection(self, status: Status, diagnosis: str, verdicts: Iterable[Verdict] = ()) -> str | None:
        """Returns the reason why the entry does not excuse a failure of a case with ``verdicts``; None if it does."""
        if self.expired():
            return f"{self} expired on {self.expires} and excuses nothing: {self.owner} renews or removes it"
        covered = _STATUSES[self.status]
        if status not in covered:
            return f"{self} is for {' or '.join(other.value for other in covered)}, not for {status.value}"
        if self.seen not in diagnosis:
            return f"{self} does not excuse this: a message that contains {self.seen!r} was expected"
        failed = [verdict for verdict in verdicts if not verdict.passed]
        unseen = [verdict.check for verdict in failed if self.seen not in f"{verdict.check}: {verdict.text}"]
        others = [name for name in (Check.parse(text).name for text in unseen) if not any_matches(self.checks, name)]
        if others:
            names = ", ".join(dict.fromkeys(others))
            return (
                f"{self} does not excuse that {names} failed: none of their texts contains {self.seen!r}, and the "
                "entry's checks do not name them"
            )
        return None


@dataclass(frozen=True)
class CaseOutcome:
    """The status, diagnosis and reason of a case, after the expected failures were applied. ``observed`` is what its
    record keeps of the entry that excused it."""

    status: Status
    diagnosis: str
    reason: Reason | None = None
    observed: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class ExpectedFailures:
    """The expected failures of a run."""

    entries: tuple[ExpectedFailure, ...] = ()

    def failure(self, record: CaseRecord, status: Status, diagnosis: str) -> CaseOutcome:
        """Returns the outcome of a case that failed: an expected failure if an entry excuses it. Otherwise the failure
        stays as it is, with a line for each entry that concerns the case and does not excuse it."""
        objections: list[str] = []
        for entry in self._concerning(record):
            objection = entry.objection(status, diagnosis, record.verdicts)
            if objection is None:
                observed = {"status": status.value, "upstream": entry.upstream, "fixed_in": entry.fixed_in}
                text = f"{entry}:\n{diagnosis}"
                return CaseOutcome(Status.EXPECTED_FAIL, text, entry.reason, {"expected_failure": observed})
            objections.append(objection)
        return CaseOutcome(status, "\n".join([diagnosis, *objections]))

    def success(self, record: CaseRecord) -> CaseOutcome | None:
        """An unexpected pass, if an entry that is not intermittent expects the case of ``record`` to fail; None
        otherwise."""
        entries = [entry for entry in self._concerning(record) if not (entry.expired() or entry.intermittent)]
        if not entries:
            return None
        lines = [f"{entry}: the case passed; remove the entry from {entry.file}, or narrow it" for entry in entries]
        return CaseOutcome(Status.UNEXPECTED_PASS, "\n".join(lines), entries[0].reason)

    def applied(self, record: CaseRecord) -> CaseRecord:
        """``record`` of a failed case, with its outcome after the expected failures."""
        outcome = self.failure(record, record.status, record.diagnosis)
        return replace(
            record,
            status=outcome.status,
            diagnosis=outcome.diagnosis,
            reason=outcome.reason,
            observed={**record.observed, **outcome.observed},
        )

    def applied_to_code(self, record: CaseRecord) -> CaseRecord:
        """``record`` of a failed case, as :meth:`applied` gives it if only checks of the code failed. What the code of
        someone else's kernel computes is not excused by a fault of the compiler that it may have, too."""
        failed = [Check.parse(verdict.check).kind for verdict in record.verdicts if not verdict.passed]
        return self.applied(record) if failed and set(failed) == {CheckKind.CODEGEN} else record

    def _concerning(self, record: CaseRecord) -> list[ExpectedFailure]:
        likely = [entry for text, entry in self._by_text if text in record.case]
        return [entry for entry in likely if entry.concerns(record)]

    @functools.cached_property
    def _by_text(self) -> list[tuple[str, ExpectedFailure]]:
        """The entries, each with text that all ids have which it names: to look for that takes no time."""
        return [(longest_text(entry.cases), entry) for entry in self.entries]


def status_without_entry(record: CaseRecord) -> Status:
    """The status that the case of ``record`` had before an expected failure excused it; its own where none did, or
    where an older record does not say it."""
    entry = record.observed.get("expected_failure")
    if record.status is not Status.EXPECTED_FAIL or not isinstance(entry, Mapping):
        return record.status
    try:
        return Status(entry.get("status"))
    except ValueError:
        return record.status


def read_expected_failures(paths: Iterable[Path] = ()) -> ExpectedFailures:
    """Returns the expected failures that come with the package, and those in the files ``paths``. Raises
    :class:`EntryError` if one of them cannot be used."""
    texts = toml_entries.read_texts(BUILT_IN, paths, "expected failures")
    entries = (entry for file, text in texts.items() for entry in parsed(text, file))
    return ExpectedFailures(tuple(toml_entries.by_id(entries).values()))


def with_kernels(expected: ExpectedFailures, files: Mapping[str, Path]) -> ExpectedFailures:
    """``expected``, and the entries of the ``files`` of third-party kernels, by the kernels' names. Raises
    :class:`EntryError` for a file that cannot be used, and for an entry about another kernel. An entry's pattern of
    cases must have the kernel's name where ids begin with it, as in ``*[name-*``."""
    entries = {entry.id: entry for entry in expected.entries}
    for kernel, file in files.items():
        for entry in of_kernel(kernel, file):
            if entry.id in entries:
                raise EntryError(f"{file}: {entry.title} {entry.id!r}: another entry has that id")
            entries[entry.id] = entry
    return ExpectedFailures(tuple(entries.values()))


def of_kernel(kernel: str, file: Path) -> Sequence[ExpectedFailure]:
    """Returns the entries of the ``file`` of a third-party kernel. Raises :class:`EntryError`."""
    entries = parsed(toml_entries.read_text(file, "expected failures"), str(file))
    for entry in entries:
        _refuse_another_kernels(entry, kernel, str(file))
    return entries


def _refuse_another_kernels(entry: ExpectedFailure, kernel: str, place: str) -> None:
    if f"[{kernel}-" not in entry.cases:
        raise EntryError(
            f"{place}: {entry.title} {entry.id!r}: cases = {entry.cases!r}: a pattern with '[{kernel}-' is "
            "required; the kernel expects its own failures alone"
        )


def table_to_record(entry: ExpectedFailure) -> dict[str, Any]:
    """Returns an entry as ``run.json`` keeps it: the keys that its file has, as JSON data."""
    keys = [field for field in msgspec.structs.fields(ExpectedFailure) if field.name not in TomlEntry.__struct_fields__]
    values = {key.name: getattr(entry, key.name) for key in keys if getattr(entry, key.name) != key.default}
    return {name: msgspec.to_builtins(value) for name, value in values.items()}


def recorded_entry(table: Mapping[str, Any], kernel: str, place: str) -> ExpectedFailure:
    """Returns the entry of ``kernel`` that :func:`table_to_record` made ``table`` of. Raises :class:`EntryError`, which
    begins with ``place``."""
    try:
        entry = msgspec.convert(dict(table), ExpectedFailure)
    except msgspec.ValidationError as error:
        raise EntryError(f"{place}: no {ExpectedFailure.title}: {error}") from None
    _refuse_another_kernels(entry, kernel, place)
    return entry


@functools.lru_cache(maxsize=4)
def parsed(text: str, file: str) -> tuple[ExpectedFailure, ...]:
    """Returns the entries in the TOML ``text`` of ``file``. Raises :class:`EntryError`."""
    return tuple(toml_entries.entries(toml_entries.load(text, file, ExpectedFailure), file, ExpectedFailure))
