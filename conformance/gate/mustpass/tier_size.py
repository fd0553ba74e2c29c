"""The number of cases in a whole run, by the mustpass lists that come with the package."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import cache
from typing import Any

from conformance.gate.mustpass.mustpass_lists import LEVELS, LISTS, Level, MustpassList, read_lists
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
    wanted = tuple(sorted(targets))
    sizes: dict[Level, int] = {}
    for mustpass in _packaged() if lists is None else lists:
        kind = mustpass.tier, mustpass.targets, mustpass.level is Level.DEVICE
        if kind == (tier, wanted, bool(stack.get("device"))) and holds(mustpass.stack, stack):
            sizes[mustpass.level] = sizes.get(mustpass.level, 0) + len(mustpass.outcomes)
    return sizes[max(sizes, key=LEVELS.index)] if sizes else None
