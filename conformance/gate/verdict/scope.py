"""The reach of a comparison: how many cases, in which shapes, and by which level of proof."""

from __future__ import annotations

import re
from collections import Counter

from conformance.gate.changes.time_changes import comparable, on_other_device
from conformance.proof_level import ProofLevel, level_by
from conformance.records import CaseRecord, ReasonCode, Status
from conformance.user_files.findings import Scope

#: The level of what a device has run.
DEVICE = ProofLevel.DEVICE.words
#: Reasons in other words than their codes.
_REASONS = {ReasonCode.SHARED_MEMORY.value: "past the limit of shared memory"}
#: What follows a shape in a case's id: another parameter.
_NEXT_PARAMETER = re.compile(r"-[a-z_]+=")


class ScopeCount:
    """Counts the cases of a comparison."""

    def __init__(self) -> None:
        self.cases = 0
        self._refused: Counter[str] = Counter()
        self._levels: Counter[ProofLevel] = Counter()
        self._shapes: Counter[str] = Counter()
        self._targets: Counter[str] = Counter()
        self._timed = self._other_device = 0

    def add(self, before: CaseRecord | None, after: CaseRecord | None) -> None:
        """Takes the two records of a case, None for a side without one."""
        self.cases += 1
        if before is None or after is None:
            return
        if comparable(before, after):
            self._timed += 1
            self._other_device += on_other_device(before, after)
        if before.status is after.status is Status.NOT_APPLICABLE:
            code = after.reason.code.value if after.reason else ""
            self._refused[_REASONS.get(code, code)] += 1
        elif Status.NOT_APPLICABLE not in (before.status, after.status):
            self._levels[min(_level(before), _level(after))] += 1  # of a case the side that proves less counts
            shape = _shape(after)
            if shape:
                self._shapes[shape] += 1
            if after.target:
                self._targets[after.target] += 1

    def scope(self) -> Scope:
        """Returns the counts as a :class:`Scope`, the largest first."""
        return Scope(
            self.cases,
            dict(self._refused.most_common()),
            {level.words: self._levels[level] for level in reversed(ProofLevel) if self._levels[level]},
            dict(self._shapes.most_common()),
            dict(sorted(self._targets.items())),
            self._timed,
            self._other_device,
        )


def _level(record: CaseRecord) -> ProofLevel:
    return level_by(record.executor, record.checks)


def _shape(record: CaseRecord) -> str:
    """Returns the shape class in the case's id, such as "several-tiles"; "even" for sizes without a rest, constant or
    not; empty if it names none."""
    if "::test_even_" in record.case.partition("[")[0]:
        return "even"
    _, separator, rest = record.case.partition("shape=")
    if not separator or not rest[:1].isalpha():
        return ""
    return _NEXT_PARAMETER.split(rest.removesuffix("]").removesuffix(f"-{record.target}"))[0]
