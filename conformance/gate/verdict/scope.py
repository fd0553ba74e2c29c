"""The reach of a comparison: how many cases, by which level of proof, and of which part of a tier."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from conformance.gate.changes.time_changes import comparable, on_other_device
from conformance.gate.evidence.options import check_options
from conformance.gate.mustpass.mustpass_lists import LEVELS, LISTS, Level, MustpassList, read_lists
from conformance.gate.runs.run_reader import ComparedRun
from conformance.proof_level import ProofLevel, level_by
from conformance.records import CaseRecord, ReasonCode, Status
from conformance.user_files.findings import Narrowing, Scope
from conformance.user_files.toml_entries import holds

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


@cache
def _packaged() -> tuple[MustpassList, ...]:
    return tuple(read_lists(LISTS))


def tier_size(
    tier: str | None,
    targets: Collection[str],
    stack: Mapping[str, Any],
    lists: Sequence[MustpassList] | None = None,
) -> int | None:
    """The number of cases of a whole run of ``tier`` for ``targets`` with ``stack``; None if no list is for such a run.
    Lists of a device are for a stack with one. Of several levels the highest counts. ``lists`` are those of the package
    unless given."""
    target_ids = tuple(sorted(targets))
    sizes: dict[Level, int] = {}
    for mustpass in _packaged() if lists is None else lists:
        kind = mustpass.tier, mustpass.targets, mustpass.level is Level.DEVICE
        if kind == (tier, target_ids, bool(stack.get("device"))) and holds(mustpass.stack, stack):
            sizes[mustpass.level] = sizes.get(mustpass.level, 0) + len(mustpass.outcomes)
    return sizes[max(sizes, key=LEVELS.index)] if sizes else None


#: Whose value is a path, often one that the gate chose: it says nothing about the cases.
_OF_FILES = ("--cases",)


def narrowed(baseline: ComparedRun, candidate: ComparedRun, cases: int) -> Narrowing | None:
    """Returns the part of the tier to which the options of the two runs narrow their comparison, which has ``cases``;
    None if they leave out nothing. A run of which not every option is known is narrowed if it has fewer cases than its
    tier."""
    sides = candidate, baseline
    checks = [check_options(side.options or (), {}) for side in sides]
    options = [text for check in checks for text in check.narrowing]
    options += [f"--target {target}" for side in sides if side.run for target in side.run.targets]
    unknown = any(side.options is None or check.refused for side, check in zip(sides, checks, strict=True))
    whole = _tier_size(*sides)
    if not options and not (unknown and whole is not None and cases < whole):
        return None
    return Narrowing(tuple(dict.fromkeys(map(_short, options))), cases, whole if whole and cases <= whole else None)


def _short(option: str) -> str:
    name, _, _ = option.partition(" ")
    return name if name in _OF_FILES else option


def _tier_size(*sides: ComparedRun) -> int | None:
    """The number of cases of the whole run that all ``sides`` are a part of; None if no list of the package says it."""
    kinds = {(side.tier, tuple(sorted(side.run.targets if side.run else ()))) for side in sides}
    if len(kinds) > 1:
        return None
    tier, targets = kinds.pop()
    return next(filter(None, (tier_size(tier, targets, side.stack) for side in sides)), None)
