"""A bundle's mustpass lists against its records: a case that is owed and absent is refused, one that failed is not."""

from __future__ import annotations

from collections.abc import Mapping

from conformance.gate import mustpass, owed
from conformance.gate.evidence.contents import MUSTPASS, Contents
from conformance.gate.evidence.refusal import Reason, Refusal


def check_owed(members: Mapping[str, bytes], contents: Contents) -> None:
    """Raises :class:`Refusal` if ``members`` has lists and they cannot be used, or the records lack an owed case, have
    one that is not listed, or have nothing to be held against. A result that is worse than owed is no matter of
    whether the evidence is whole: the statement's result and the gate tell of it."""
    names = [name for name in sorted(members) if name.startswith(MUSTPASS)]
    if not names:
        return
    try:
        lists = [mustpass.parsed(members[name].decode("utf-8"), name) for name in names]
    except ValueError as error:
        raise Refusal(Reason.MUSTPASS, f"{error}") from None
    checked = owed.check(lists, contents.run, contents.records)
    problems = [str(difference) for difference in checked.differences if difference.what != "differing"]
    if problems or checked.lacking:
        raise Refusal(Reason.MUSTPASS, "; ".join([*problems, *checked.lacking]))
