"""Are two series of measured times different? Intervals of medians by order statistics; no distribution is assumed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import Enum
from functools import lru_cache
from statistics import median
from typing import NamedTuple

#: Confidence of the interval of one median. That of the ratio of two is then at least 95 % (Bonferroni).
MEDIAN_CONFIDENCE = 0.975


class TimeAnswer(str, Enum):
    """The answers of :func:`compare` about two series of times; ``AMBIGUOUS`` if they allow no other answer."""

    SAME = "same"
    FASTER = "faster"
    SLOWER = "slower"
    AMBIGUOUS = "ambiguous"


class Interval(NamedTuple):
    """``low`` to ``high``, both included."""

    low: float
    high: float


class TimeChange(NamedTuple):
    """``ratio`` is after / before of the medians, ``interval`` that of the ratio (None: too few measurements), ``why``
    the reason of an ambiguous answer."""

    answer: TimeAnswer
    before_us: float
    after_us: float
    interval: Interval | None
    why: str = ""

    @property
    def ratio(self) -> float:
        return self.after_us / self.before_us


@lru_cache(maxsize=256)
def interval_rank(count: int) -> int | None:
    """Returns the rank r, counted from 1, whose r-th smallest and r-th largest measurement enclose the median. They do
    so for ``count`` independent measurements with at least :data:`MEDIAN_CONFIDENCE`; the rank is None if even the
    extremes do not.

    The number of measurements below the median is binomial with p = 1/2. So the interval misses it with a probability
    of 2 P(B <= r - 1): H. A. David and H. N. Nagaraja, Order Statistics, 3rd edition, section 7.1. For ties, and where
    the median is not unique, the probability is no larger.

    >>> interval_rank(20)
    5
    >>> interval_rank(3) is None
    True
    """
    allowed = (1 - MEDIAN_CONFIDENCE) / 2
    below, rank = 0.0, 0
    while rank <= count // 2:
        below += math.comb(count, rank) / 2**count
        if below > allowed:
            break
        rank += 1
    return rank or None


#: Fewer measurements than this have no interval at :data:`MEDIAN_CONFIDENCE`.
FEWEST_SAMPLES = next(count for count in range(1, 100) if interval_rank(count))


def median_interval(ordered: Sequence[float]) -> Interval | None:
    """Returns the interval that holds the median with at least 97.5 %, of measurements in ascending order; None with
    fewer than :data:`FEWEST_SAMPLES`.

    >>> median_interval([float(number) for number in range(10, 30)])
    Interval(low=14.0, high=25.0)
    """
    rank = interval_rank(len(ordered))
    return Interval(ordered[rank - 1], ordered[-rank]) if rank is not None else None


def agree(before: Sequence[float], after: Sequence[float], threshold: float) -> bool:
    """True if all measurements agree within the share ``threshold``, so that :func:`compare` can only say SAME; most
    do, and this is found much faster."""
    if min(len(before), len(after)) < FEWEST_SAMPLES:
        return False
    most = 1 + threshold
    return after[-1] <= before[0] * most and before[-1] <= after[0] * most


def compare(before: Sequence[float], after: Sequence[float], threshold: float) -> TimeChange:
    """Compares the times ``after`` and ``before`` (microseconds in ascending order, one or more of each) by the share
    ``threshold``. The answer is SLOWER or FASTER only if the whole interval of the ratio of the medians is. It is SAME
    only if all of that interval is within the threshold.

    The measurements of one series are taken as independent: what shifts a whole series, such as another clock, is not
    in the interval.

    >>> before = [float(microseconds) for microseconds in range(100, 120)]
    >>> compare(before, [1.5 * time for time in before], threshold=0.05).answer.value
    'slower'
    >>> compare(before, [1.01 * time for time in before], threshold=0.05).answer.value
    'ambiguous'
    """
    medians = median(before), median(after)
    if before == after:
        return TimeChange(TimeAnswer.SAME, *medians, Interval(1.0, 1.0))
    first, second = median_interval(before), median_interval(after)
    if first is None or second is None:
        why = f"fewer than {FEWEST_SAMPLES} measurements"
        return TimeChange(TimeAnswer.AMBIGUOUS, *medians, None, why)
    ratio = Interval(second.low / first.high, second.high / first.low)
    low, high = 1 / (1 + threshold), 1 + threshold
    if ratio.low > high:
        return TimeChange(TimeAnswer.SLOWER, *medians, ratio)
    if ratio.high < low:
        return TimeChange(TimeAnswer.FASTER, *medians, ratio)
    if low <= ratio.low and ratio.high <= high:
        return TimeChange(TimeAnswer.SAME, *medians, ratio)
    return TimeChange(TimeAnswer.AMBIGUOUS, *medians, ratio, "the measurements scatter too much to decide")
