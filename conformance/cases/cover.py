"""Chooses a few rows of a product so that every value appears, and every pair that must: the tiers below the full one.

:func:`cover` makes rows until nothing is missing: at least as many as its longest parameter has values. Each row starts
with the value that shows most of what is missing.
The other parameters follow, those first that have most to show, each with the value that

1. shows most of what is missing;
2. of these, has met the fewest values of this row in other rows;
3. of these, was used least;
4. of these, comes first.

So one can predict the rows. Where nothing but the values must appear, all parameters are walked through together. One
that has fewer values starts again, at a value that meets new partners:

>>> cover({"order": "abcd", "static": [False, True], "dtype": ["bf16", "fp16"]})
[('a', False, 'bf16'), ('b', True, 'fp16'), ('c', False, 'fp16'), ('d', True, 'bf16')]

Two parameters whose pairs must appear are crossed, and the others go along:

>>> cover({"order": "ab", "dtype": ["bf16", "fp16"], "config": [1, 2, 3]}, pairs=[("order", "dtype")])
[('a', 'bf16', 1), ('b', 'fp16', 2), ('a', 'fp16', 3), ('b', 'bf16', 3)]
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

T = TypeVar("T")


def cover(
    parameters: Mapping[str, Sequence[Any]],
    *,
    pairs: Iterable[tuple[str, str]] = (),
    free: Collection[str] = (),
    possible: Callable[[Mapping[str, Any]], bool] = lambda part: True,
    shown: Mapping[str, Callable[[Any], Iterable[Hashable]]] | None = None,
    budget: int | None = None,
) -> list[tuple[Any, ...]]:
    """Rows of the product of ``parameters``, each row once, in which every value of every parameter appears.

    ``pairs``: two parameters of which every pair of values must appear, too. If they are named n times, a pair appears
    in n rows, or in as many as there are.
    ``free``: parameters of which not every value need appear. They are used equally often nevertheless.
    ``possible``: whether a part of a row (some parameters, with a value each) can be completed to a row. What is not
    possible need not appear.
    ``shown``: by parameter, what a value shows, if not itself. A value that shows nothing new may be left out.
    ``budget``: rows at most. The first rows show most.
    """
    names = list(parameters)
    if not names:
        return [()]
    slots = [(name, value) for name in names for value in parameters[name]]  # from here on, a value is its number
    values = {name: [number for number, slot in enumerate(slots) if slot[0] == name] for name in names}
    shown = shown or {}
    shows = [set(shown[name](value)) if name in shown else {number} for number, (name, value) in enumerate(slots)]

    def fits(*numbers: int) -> bool:
        return possible(dict(slots[number] for number in numbers))

    fitting = [number for number in range(len(slots)) if fits(number)]
    if {slots[number][0] for number in fitting} != set(names):
        return []
    missing = set[Hashable]().union(*(shows[number] for number in fitting if slots[number][0] not in free))
    unpaired = [Counter[int]() for _ in slots]  # of each value, the values that it must still meet
    for first, second in pairs:
        for one, other in itertools.product(values[first], values[second]):
            if fits(one, other):
                unpaired[one][other] += 1
                unpaired[other][one] += 1
    met = [set[int]() for _ in slots]
    used = Counter[int]()
    rows: dict[tuple[int, ...], None] = {}
    while (not rows or missing or any(unpaired)) and (budget is None or len(rows) < budget):
        start = max(fitting, key=lambda n: (len(shows[n] & missing) + len(unpaired[n]), -used[n]))
        row = {start}
        to_pair = {name: len(unpaired[start].keys() & values[name]) for name in names}
        to_show = {name: sum(len(shows[n] & missing) for n in values[name]) for name in names}
        others = [name for name in names if name != slots[start][0]]
        for name in sorted(others, key=lambda name: (-to_pair[name], -to_show[name])):
            possible_now = [number for number in values[name] if fits(*row, number)]
            to_show_now = {n: len(shows[n] & missing) + len(unpaired[n].keys() & row) for n in possible_now}
            row.add(max(possible_now, key=lambda n: (to_show_now[n], -len(met[n] & row), -used[n])))
        for number in row:
            missing -= shows[number]
            met[number] |= row - {number}
            unpaired[number] -= Counter(row)  # a pair is done when it appeared as often as it must
        used.update(row)
        rows[tuple(sorted(row))] = None
    return [tuple(slots[number][1] for number in row) for row in rows]


def in_turn(values: Sequence[T], place: int) -> list[T]:
    """``values`` from number ``place`` on, which is counted cyclically, and then those before it.

    >>> in_turn("abc", 4)
    ['b', 'c', 'a']
    """
    start = place % len(values) if values else 0
    return [*values[start:], *values[:start]]
