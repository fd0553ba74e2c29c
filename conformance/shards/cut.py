"""Cuts cases into shards of about the same duration. Cases that share kernels stay together.

Everything here counts in whole milliseconds and goes through sorted ids. So the cut is the same on every machine, in
whatever order the cases come.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence


def cut(weights: Mapping[str, int], kernels: Mapping[str, Collection[str]], shards: int) -> dict[str, int]:
    """Returns the number of the shard of each case, from 1 to ``shards``.

    ``weights`` are the milliseconds of each case. ``kernels`` are the keys of the kernels that a case compiles. Cases
    with a kernel in common, directly or through others, are one unit. A unit that exceeds an equal share is split into
    parts (:func:`split`). The units go to the shards longest first, each to the shard with the least time.

    >>> cut({"a": 3, "b": 2, "c": 1}, {"b": ["k"], "c": ["k"]}, 2)
    {'a': 1, 'b': 2, 'c': 2}
    """
    share = -(-sum(weights.values()) // shards)
    parts = [part for unit in units(sorted(weights), kernels) for part in split(unit, weights, kernels, share)]
    parts.sort(key=lambda part: (-_weight(part, weights), part[0]))
    loads = [(0, number) for number in range(1, shards + 1)]
    numbers: dict[str, int] = {}
    for part in parts:
        load, number = heapq.heappop(loads)
        numbers.update(dict.fromkeys(part, number))
        heapq.heappush(loads, (load + _weight(part, weights), number))
    return {case: numbers[case] for case in sorted(numbers)}


def units(cases: Sequence[str], kernels: Mapping[str, Collection[str]]) -> list[list[str]]:
    """Returns ``cases``, sorted ids, in groups without a kernel in common. Each group is sorted."""
    leader: dict[str, str] = {}

    def first_of(case: str) -> str:
        while (above := leader.get(case, case)) != case:
            leader[case] = case = leader.get(above, above)
        return case

    user: dict[str, str] = {}
    for case in cases:
        for kernel in kernels.get(case, ()):
            one, other = sorted((first_of(case), first_of(user.setdefault(kernel, case))))
            leader[other] = one
    groups: dict[str, list[str]] = defaultdict(list)
    for case in cases:
        groups[first_of(case)].append(case)
    return list(groups.values())


def split(
    unit: Sequence[str], weights: Mapping[str, int], kernels: Mapping[str, Collection[str]], share: int
) -> Iterator[list[str]]:
    """Yields the parts of ``unit``, sorted ids, none heavier than ``share`` unless it is one case.

    Cases with the same kernels stay together unless they alone exceed the share. A part grows by those that have most
    kernels in common with it, so that few kernels are in two parts.
    """
    if len(unit) == 1 or _weight(unit, weights) <= share:
        yield list(unit)
        return
    groups: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for case in unit:
        groups[tuple(sorted(set(kernels.get(case, ()))))].append(case)
    blocks = [(keys, block) for keys, cases in groups.items() for block in _blocks(cases, weights, share)]
    users: dict[str, list[int]] = defaultdict(list)
    for number, (keys, _) in enumerate(blocks):
        for key in keys:
            users[key].append(number)
    left = sorted(range(len(blocks)), key=lambda number: (-_weight(blocks[number][1], weights), blocks[number][1][0]))
    placed: set[int] = set()
    for start in left:
        if start not in placed:
            part = _grown(start, blocks, users, placed, weights, share)
            yield sorted(case for number in part for case in blocks[number][1])


def _grown(
    start: int,
    blocks: Sequence[tuple[tuple[str, ...], list[str]]],
    users: Mapping[str, list[int]],
    placed: set[int],
    weights: Mapping[str, int],
    share: int,
) -> list[int]:
    """Returns the blocks of a part that begins with the block ``start``, and adds them to ``placed``."""
    part: list[int] = []
    load = 0
    common: dict[int, int] = defaultdict(int)  # of each block that is left: the kernels that it shares with the part
    seen: set[str] = set()
    waiting = [(0, 0, start)]
    while waiting:
        fewer, _, number = heapq.heappop(waiting)
        if number in placed or -fewer != common[number]:
            continue  # there is a later entry of it
        weight = _weight(blocks[number][1], weights)
        if part and load + weight > share:
            continue
        part.append(number)
        placed.add(number)
        load += weight
        for key in blocks[number][0]:
            if key not in seen:
                seen.add(key)
                for user in users[key]:
                    if user not in placed:
                        common[user] += 1
                        heapq.heappush(waiting, (-common[user], -_weight(blocks[user][1], weights), user))
    return part


def _blocks(cases: Sequence[str], weights: Mapping[str, int], share: int) -> Iterator[list[str]]:
    """Yields ``cases`` in their order in as few lists as needed, none heavier than ``share`` unless it is one case."""
    block: list[str] = []
    load = 0
    for case in cases:
        if block and load + weights[case] > share:
            yield block
            block, load = [], 0
        block.append(case)
        load += weights[case]
    yield block


def _weight(cases: Collection[str], weights: Mapping[str, int]) -> int:
    return sum(weights[case] for case in cases)
