"""Decisions about times: intervals have the confidence that they state, and noise alone is never slower."""

from __future__ import annotations

import math
import random

import pytest

from conformance.gate.changes.median_intervals import (
    FEWEST_SAMPLES,
    TimeAnswer,
    agree,
    compare,
    interval_rank,
    median_interval,
)


def series(draw: random.Random, centre: float, spread: float, count: int = 15) -> list[float]:
    """Times with the long tail that real ones have."""
    return sorted(centre * math.exp(abs(draw.gauss(0, spread))) for _ in range(count))


@pytest.mark.parametrize(
    ("count", "rank"),
    # Ranks of the table of 97.5 % intervals, from the binomial distribution function.
    [(1, None), (6, None), (7, 1), (9, 1), (10, 2), (15, 3), (20, 5), (100, 39)],
)
def test_ranks(count, rank):
    assert interval_rank(count) == rank
    if rank:
        missed = 2 * sum(math.comb(count, below) for below in range(rank)) / 2**count
        assert missed <= 0.025
        assert missed + 2 * math.comb(count, rank) / 2**count > 0.025  # the next rank would promise too much


def test_fewest_samples():
    assert FEWEST_SAMPLES == 7


def test_interval_holds_the_median_as_often_as_it_says():
    draw = random.Random(1)
    held = 0
    for _ in range(4000):
        interval = median_interval(sorted(draw.expovariate(1) for _ in range(15)))
        assert interval is not None
        held += interval.low <= math.log(2) <= interval.high
    assert held / 4000 >= 0.975


def test_equal_but_noisy_series_are_not_slower():
    draw = random.Random(2)
    answers = [compare(series(draw, 100, 0.03), series(draw, 100, 0.03), 0.05).answer for _ in range(1000)]
    assert answers.count(TimeAnswer.SLOWER) == answers.count(TimeAnswer.FASTER) == 0
    calm = [compare(series(draw, 100, 0.01), series(draw, 100, 0.01), 0.05).answer for _ in range(1000)]
    assert calm.count(TimeAnswer.SAME) > 990


def test_difference_at_the_threshold_is_seldom_slower():
    """The stated rate: at a true ratio of just the threshold, the interval is beyond it in at most 2.5 %."""
    draw = random.Random(3)
    answers = [compare(series(draw, 100, 0.2), series(draw, 105, 0.2), 0.05).answer for _ in range(1000)]
    assert answers.count(TimeAnswer.SLOWER) <= 25


def test_clear_difference_is_always_seen():
    draw = random.Random(4)
    for _ in range(200):
        assert compare(series(draw, 100, 0.02), series(draw, 120, 0.02), 0.05).answer is TimeAnswer.SLOWER
        assert compare(series(draw, 120, 0.02), series(draw, 100, 0.02), 0.05).answer is TimeAnswer.FASTER


def test_too_few_measurements_are_ambiguous_however_large_the_difference():
    change = compare([100.0] * 6, [300.0] * 15, 0.05)
    assert change.answer is TimeAnswer.AMBIGUOUS
    assert change.why == "fewer than 7 measurements"
    assert change.interval is None
    assert change.ratio == 3.0


def test_scattered_measurements_are_ambiguous():
    change = compare([100.0 + value for value in range(0, 75, 5)], [110.0 + value for value in range(0, 75, 5)], 0.05)
    assert change.answer is TimeAnswer.AMBIGUOUS
    assert "scatter" in change.why


def test_the_same_measurements_are_the_same():
    assert compare([5.0], [5.0], 0.05).answer is TimeAnswer.SAME


def test_what_agrees_is_the_same_and_little_else_is():
    """Whatever agrees without intervals would be the same with them."""
    draw = random.Random(3)
    agreed = 0
    for _ in range(3000):
        scatter, shift = draw.choice((0.001, 0.02, 0.04)), draw.choice((0.95, 0.97, 1.0, 1.03, 1.05, 1.2))
        count = draw.choice((1, FEWEST_SAMPLES - 1, FEWEST_SAMPLES, 20))
        before = sorted(draw.uniform(1 - scatter, 1 + scatter) for _ in range(count))
        after = sorted(shift * draw.uniform(1 - scatter, 1 + scatter) for _ in range(count))
        if agree(before, after, 0.05):
            agreed += 1
            assert compare(before, after, 0.05).answer is TimeAnswer.SAME
    assert 300 < agreed < 2000
    assert not agree([1.0] * 20, [1.06] * 20, 0.05)
    assert not agree([1.06] * 20, [1.0] * 20, 0.05)
    assert not agree([1.0], [1.0], 0.05)
