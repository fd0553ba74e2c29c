"""A case of a run, found by what the user calls it."""

from __future__ import annotations

from pathlib import Path

from conformance.commands import CommandError
from conformance.records import CaseRecord, Reading
from conformance.reporting.text import clean


def one_case(wanted: str, reading: Reading, folder: Path) -> CaseRecord:
    """The record whose case id is ``wanted``, or has it as a part that no other has. Raises :class:`CommandError`."""
    exact = [record for record in reading.records if record.case == wanted]
    found = exact or [record for record in reading.records if wanted in record.case]
    if len(found) == 1:
        return found[0]
    if not found:
        raise CommandError(f"none of the {len(reading.records)} records in {folder} has {wanted!r} in its case id")
    listed = "\n".join(f"  {record.status.value:15} {clean(record.case)}" for record in found[:50])
    raise CommandError(f"{len(found)} cases match {wanted!r}; give more of the id:\n{listed}")
