"""Compares the warnings about lanes that the mask of a load leaves without a value, and that reach a result.

A case passes with such a warning if its code gives 0 to these lanes. Nothing promises that the next release's does, so
a warning that is new, or that says something else, is a finding.
"""

from __future__ import annotations

from collections.abc import Iterator

from conformance.gate.changes.status_changes import Standing, about, finding, standing
from conformance.gate.shortened_text import first_words
from conformance.records import CaseRecord, Check, CheckKind
from conformance.user_files.findings import Finding, Kind

#: Characters of a warning that a finding shows.
SHOWN = 300
_CHECK = str(Check(CheckKind.UNDEFINED_LANES))


def lane_findings(before: CaseRecord, after: CaseRecord) -> Iterator[Finding]:
    """Yields a finding if one case has a warning now that it did not have, has another one, or has none any more. A
    warning is gone only if the same executor judged the case, which passed."""
    was, now = _warning(before), _warning(after)
    if was == now:
        return
    shown = first_words(was, SHOWN) or "no warning", first_words(now, SHOWN) or "no warning"
    if now:
        text = "other lanes without a value reach a result" if was else "lanes without a value reach a result"
        yield finding(Kind.UNDEFINED_LANES, after, about(text, after), *shown)
    elif standing(after) is Standing.PASSED and before.executor == after.executor:
        yield finding(Kind.FIXED, after, about("lanes without a value reach no result", after), *shown)


def _warning(record: CaseRecord) -> str:
    """Returns the warnings about undefined lanes with which the case passed the check; "" if there is none."""
    verdicts = (one for one in record.verdicts if one.check == _CHECK and one.passed)
    return "; ".join(one.text for one in verdicts if one.details.get("severity") == "warn")
