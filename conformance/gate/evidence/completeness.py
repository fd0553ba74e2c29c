"""Checks a bundle's records against its mustpass lists: every owed case must be there, but it may have failed."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.gate.evidence.contents import MUSTPASS, Contents
from conformance.gate.evidence.rejection import Rejected, RejectReason
from conformance.gate.mustpass import mustpass_check, mustpass_lists
from conformance.records import Status, first_of

#: Of cases that did not fail, and may still have shown less than they owe.
_UNPROVEN = (Status.PASS, Status.NOT_APPLICABLE, Status.NOT_RUN)


def check_owed(members: Mapping[str, bytes], contents: Contents) -> None:
    """Raises :class:`Rejected` if ``members`` has mustpass lists and

    * they cannot be used, or none is for this run,
    * the records lack an owed case or have one that is not listed, or
    * a case that owes a proof was refused, or shows less than it owes: that is as good as missing.

    Evidence may show failed cases. The statement's result and the gate report them.
    """
    names = [name for name in sorted(members) if name.startswith(MUSTPASS)]
    if not names:
        return
    try:
        lists = [mustpass_lists.parsed(members[name].decode("utf-8"), name) for name in names]
        chosen = mustpass_check.applicable(lists, contents.run, contents.records)
        checked = mustpass_check.check(lists, contents.run, contents.records)
    except ValueError as error:
        raise Rejected(RejectReason.OWED_CASES, f"{error}") from None
    owed = {case: way for mustpass in chosen.values() for case, way in mustpass.outcomes.items()}
    unproven = {record.case for record in contents.records if record.status in _UNPROVEN}
    unproven &= {case for case, way in owed.items() if mustpass_lists.is_proof(way)}
    problems = [str(difference) for difference in checked.differences if difference.what != "differing"]
    differing = [difference for difference in checked.differences if difference.what == "differing"]
    outcomes = {case: text for one in differing for case, text in zip(one.cases, one.outcomes, strict=True)}
    short = [f"{case}: {outcomes[case]}" for case in sorted(unproven & outcomes.keys())]
    problems += [first_of(short, 3)] if short else []
    if problems or checked.lacking:
        raise Rejected(RejectReason.OWED_CASES, "; ".join([*problems, *checked.lacking]))
