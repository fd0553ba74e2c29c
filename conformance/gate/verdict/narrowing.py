"""Says of which part of a tier a comparison is: by which options its runs were narrowed, and of how many cases."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from conformance.gate.evidence.options import check_options
from conformance.gate.mustpass.mustpass_lists import LEVELS, LISTS, Level, MustpassList, read_lists
from conformance.gate.runs.run_reader import ComparedRun
from conformance.user_files.findings import Narrowing
from conformance.user_files.stack_ranges import holds


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
