"""The declarations of third-party kernels for a run, and the cases that their expected failures excused.

The run recorded the entries. So a verifier sees who excused which case and why, and checks each case against its entry
without the kernel's package.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from conformance.gate.evidence.contents import Contents
from conformance.gate.evidence.rejection import Rejected, RejectReason
from conformance.plain_json import TEXT_LIMIT
from conformance.records import RUN_FILE, CaseRecord, ReasonCode, Status
from conformance.user_files.expected_failures import ExpectedFailure, recorded_entry
from conformance.user_files.toml_entries import EntryError


@dataclass(frozen=True)
class Excused:
    """An expected failure that ``kernel`` declared, with the ids of the ``cases`` of the run that it excused."""

    kernel: str
    entry: ExpectedFailure
    cases: tuple[str, ...]


def excused(contents: Contents) -> list[Excused]:
    """Returns every expected failure that a kernel declared for the run, in the order of the kernels' names. Raises
    :class:`Rejected` for an entry that cannot be used, and for a case that its entry does not excuse."""
    entries: dict[str, tuple[str, ExpectedFailure]] = {}
    for kernel, declared in sorted(contents.run.declared.items()):
        for table in declared.expected_failures:
            try:
                entry = recorded_entry(table, kernel, f"{RUN_FILE}: {kernel}")
            except EntryError as error:
                raise Rejected(RejectReason.UNREADABLE, str(error)) from None
            if entries.setdefault(entry.id, (kernel, entry))[1] is not entry:
                raise Rejected(
                    RejectReason.UNREADABLE, f"{RUN_FILE}: two expected failures are called {entry.id!r:.80}"
                )
    cases: Mapping[str, list[str]] = {name: [] for name in entries}
    for record in contents.records:
        reason = record.reason
        if record.status is not Status.EXPECTED_FAIL or reason is None or reason.code is not ReasonCode.KNOWN_DEFECT:
            continue
        if reason.subject in entries:
            _check(record, *entries[reason.subject], contents.run.started)
            cases[reason.subject].append(record.case)
    return [Excused(kernel, entry, tuple(sorted(cases[name]))) for name, (kernel, entry) in entries.items()]


def _check(record: CaseRecord, kernel: str, entry: ExpectedFailure, started: str) -> None:
    """Raises :class:`Rejected` unless ``entry`` of ``kernel`` excuses the case of ``record``."""
    if record.kernel not in (None, kernel):
        problem = f"is of the kernel {record.kernel!r:.80}"
    elif not entry.concerns(record):
        problem = "is not one of its cases, targets and stacks"
    elif entry.seen not in record.diagnosis and len(record.diagnosis) < TEXT_LIMIT:  # a longer one was cut
        problem = f"lacks {entry.seen!r:.80} in its diagnosis"
    elif started[:10] > date.isoformat(entry.expires):
        problem = f"was run at {started!r:.40}, and it expired on {entry.expires}"
    else:
        return
    text = f"the expected failure {entry.id!r:.80} of {kernel} excuses {record.case!r:.200}, which {problem}"
    raise Rejected(RejectReason.NOT_EXCUSED, text)
