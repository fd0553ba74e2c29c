"""Names the guilty stage from what a symptom measures where two compilers change over."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

#: The share of the whole change from which a stage is the guilty one, and from which another one is named, too.
GUILTY, BESIDE = 0.5, 0.25


@dataclass(frozen=True)
class StageSpan:
    """Stages number ``first`` to ``last``, counted from 1, between two places where the symptom was measured. ``share``
    is the part of the whole change that lies between them."""

    first: int
    last: int
    share: float = 1.0


@dataclass(frozen=True)
class Blame:
    """The stages that cause a difference, measured in both directions.

    ``span``: the guilty stages, several where no text could be swapped between them; None if no stage is guilty.
    ``beside``: other stages with a large part of the change. ``agreed``: True if both directions name the same stages,
    None if one direction could not be measured.
    """

    span: StageSpan | None
    beside: tuple[StageSpan, ...]
    agreed: bool | None
    by_direction: tuple[StageSpan | None, StageSpan | None]


def spans(values: Sequence[float | None]) -> list[StageSpan]:
    """Returns the parts of the change from the first of ``values`` to the last, which are known and differ. Value
    number n was measured behind stage n; None is not known.

    >>> [span.share for span in spans([4, 4, 9, 9])]  # all of the change lies after stage 2
    [0.0, 1.0, 0.0]
    """
    measured = [(place, value) for place, value in enumerate(values) if value is not None]
    whole = measured[-1][1] - measured[0][1]
    return [StageSpan(a + 1, b, (after - before) / whole) for (a, before), (b, after) in itertools.pairwise(measured)]


def blamed(into_bad: Sequence[float | None], into_good: Sequence[float | None]) -> Blame:
    """Returns the guilty stages. ``into_bad`` are the values where the bad compiler goes on from the good one's text,
    from none of its stages to all; ``into_good`` those where the good one goes on from the bad one's."""
    both = [spans(values) for values in (into_bad, into_good)]
    worst = [max(parts, key=lambda span: span.share) for parts in both]
    guilty = [span if span.share >= GUILTY else None for span in worst]
    measured = [len(parts) > 1 for parts in both]
    named = [span for span, is_measured in zip(guilty, measured, strict=True) if span is not None and is_measured]
    span = None
    agreed: bool | None = None
    if all(measured):
        agreed = len(named) == 2 and _shared(*named) is not None
        span = _shared(*named) if agreed else None
    elif named:
        span = named[0]
    parts = {(one.first, one.last): one for one in itertools.chain(*both) if one.share >= BESIDE}
    beside = tuple(one for one in parts.values() if span is None or _shared(one, span) is None)
    return Blame(span, beside, agreed, (guilty[0], guilty[1]))


def _shared(one: StageSpan, other: StageSpan) -> StageSpan | None:
    first, last = max(one.first, other.first), min(one.last, other.last)
    return StageSpan(first, last, min(one.share, other.share)) if first <= last else None


def turn(measured: Callable[[int], float | None], count: int, first: float, last: float) -> tuple[int, int]:
    """Two places, of -1 to ``count``, between which what is ``measured`` passes the middle from ``first``, its value at
    -1, to ``last``, that at ``count``. They are neighbours, unless places between them could not be measured."""
    values: dict[int, float | None] = {}
    low, high, middle = -1, count, (first + last) / 2
    while high - low > 1:
        centre = (low + high) // 2
        for place in (centre, (low + centre) // 2, (centre + high) // 2, low + 1, high - 1):
            if low < place < high:
                if place not in values:
                    values[place] = measured(place)
                value = values[place]
                if value is not None:
                    low, high = (place, high) if (value > middle) == (first > middle) else (low, place)
                    break
        else:
            break
    return low, high
