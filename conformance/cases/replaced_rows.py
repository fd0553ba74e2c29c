"""Replaces rows of a tier that a third-party kernel refuses by rows that it takes.

A kernel of this package has the rows of its tier as they are: others must not move if it refuses one more.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from conformance.cases.case_table import identify

Row = tuple[Any, ...]
Place = tuple[int, str]

#: A value with which a kernel refused so many rows, and took none, is tried no more in place of others. It must have
#: taken rows with another value of the column.
GIVEN_UP = 6
#: Questions about one row, at most, and rows among which they are chosen.
TRIED, LOOKED_AT = 24, 300


class Replacement:
    """Replaces rows of one test and kernel. It remembers which values a kernel refuses from one target to the next."""

    def __init__(self) -> None:
        self._columns: list[Sequence[Any]] = []
        self._taken: Counter[Place] = Counter()
        self._refused: Counter[Place] = Counter()

    def __call__(
        self,
        rows: Sequence[Row],
        columns: Mapping[str, Sequence[Any]],
        takes: Callable[[Row], bool],
        possible: Callable[[Row], bool],
    ) -> list[Row]:
        """Returns ``rows``, and in place of each that the kernel refuses one that it takes, that is ``possible`` and
        that no other row equals. Those come first whose values were not refused before, and that show values, and pairs
        of them, which no other row shows. A row without such another stays.

        ``columns`` has the values of each column by name, in the order of a row's. ``takes`` says of a row whether the
        kernel takes it.
        """
        self._columns = list(columns.values())
        chosen = {row: self._asked(row, takes) for row in dict.fromkeys(rows)}
        shown = {part for row, accepted in chosen.items() if accepted for part in self._parts(row)}
        replaced: list[Row] = []
        for row in rows:
            other = row if chosen[row] else self._other(row, chosen, shown, takes, possible)
            replaced.append(row if other is None else other)
            shown |= self._parts(replaced[-1]) if other is not None else set()
        return list(dict.fromkeys(replaced))

    def _other(
        self,
        row: Row,
        chosen: dict[Row, bool],
        shown: set[Any],
        takes: Callable[[Row], bool],
        possible: Callable[[Row], bool],
    ) -> Row | None:
        """Returns the row in place of ``row``; None if none was found in :data:`TRIED` questions."""
        asked = 0
        others = (other for other in self._near(row) if other not in chosen and possible(other))
        near = list(itertools.islice(others, LOOKED_AT))
        while near and asked < TRIED:
            hopeful = [other for other in near if not any(map(self._given_up, self._places(other)))]
            if not hopeful:
                return None
            other = max(hopeful, key=lambda row: (-self._doubts(row), len(self._parts(row) - shown)))
            near.remove(other)
            asked += 1
            chosen[other] = self._asked(other, takes)
            if chosen[other]:
                return other
        return None

    def _asked(self, row: Row, takes: Callable[[Row], bool]) -> bool:
        accepted = takes(row)
        (self._taken if accepted else self._refused).update(self._places(row))
        return accepted

    def _doubts(self, row: Row) -> int:
        """Counts the refusals of rows with a value of ``row`` that no row which is taken has."""
        return sum(self._refused[place] for place in self._places(row) if not self._taken[place])

    def _given_up(self, place: Place) -> bool:
        if self._refused[place] < GIVEN_UP or self._taken[place]:
            return False
        return any(column == place[0] for column, _ in +self._taken)

    def _places(self, row: Row) -> list[Place]:
        """The number of each column, with the text of the row's value in it."""
        return [(column, identify(value)) for column, value in enumerate(row)]

    def _parts(self, row: Row) -> set[Any]:
        """The values of a row, and its pairs of them."""
        places = self._places(row)
        return {*places, *itertools.combinations(places, 2)}

    def _near(self, row: Row) -> Iterator[Row]:
        """Yields the rows that differ from ``row`` in one column, and then those that differ in two."""
        for count in (1, 2):
            for columns in itertools.combinations(range(len(row)), count):
                others = ([value for value in self._columns[column] if value != row[column]] for column in columns)
                for values in itertools.product(*others):
                    changed = dict(zip(columns, values, strict=True))
                    yield tuple(changed.get(column, value) for column, value in enumerate(row))
