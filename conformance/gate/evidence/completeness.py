"""A bundle's mustpass lists against its records: a case that is owed and absent is refused, one that failed is not."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from conformance.gate.evidence.contents import MUSTPASS, Contents
from conformance.gate.evidence.rejection import Rejected, RejectReason
from conformance.gate.mustpass import mustpass_check as owed
from conformance.gate.mustpass import mustpass_lists as mustpass
from conformance.records import Status

#: Of cases that did not fail, and may still have shown less than they owe.
_UNPROVEN = (Status.PASS, Status.NOT_APPLICABLE, Status.NOT_RUN)


def check_owed(members: Mapping[str, bytes], contents: Contents) -> None:
    """Raises :class:`Rejected` if ``members`` has lists and they cannot be used, or the records lack an owed case, have
    one that is not listed, or have nothing to be held against. A case that owes a proof and was refused or shown by
    less is as good as missing. One that failed is no matter of whether the evidence is whole: the statement's result
    and the gate tell of it."""
    names = [name for name in sorted(members) if name.startswith(MUSTPASS)]
    if not names:
        return
    try:
        lists = [mustpass.parsed(members[name].decode("utf-8"), name) for name in names]
        applicable = owed.applicable(lists, contents.run, contents.records)
        checked = owed.check(lists, contents.run, contents.records)
    except ValueError as error:
        raise Rejected(RejectReason.OWED_CASES, f"{error}") from None
    unproven = {record.case for record in contents.records if record.status in _UNPROVEN}
    unproven &= {case for each in applicable for case, owing in each.outcomes.items() if mustpass.is_proof(owing)}
    problems = []
    for each in checked.differences:
        if each.what != "differing":
            problems.append(str(each))
        elif unproven & {*each.cases}:
            pairs = [pair for pair in zip(each.cases, each.outcomes, strict=True) if pair[0] in unproven]
            cases, outcomes = zip(*pairs, strict=True)
            problems.append(str(replace(each, cases=cases, outcomes=outcomes)))
    if problems or checked.lacking:
        raise Rejected(RejectReason.OWED_CASES, "; ".join([*problems, *checked.lacking]))
