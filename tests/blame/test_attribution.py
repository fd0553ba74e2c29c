"""Values alone tell the guilty: one stage, several that cannot be told apart, or none."""

from __future__ import annotations

import pytest

from conformance.blame.attribution import StageSpan, blamed, spans, turn


def test_one_stage_is_guilty_in_both_directions():
    blame = blamed([1, 1, 1, 0, 0], [0, 0, 0, 1, 1])
    assert blame.span == StageSpan(3, 3)
    assert blame.agreed is True
    assert blame.beside == ()


def test_directions_that_disagree_blame_nobody():
    blame = blamed([1, 1, 1, 0, 0], [0, 1, 1, 1, 1])
    assert (blame.span, blame.agreed) == (None, False)
    assert blame.by_direction == (StageSpan(3, 3), StageSpan(1, 1))


def test_stages_between_which_nothing_was_measured_are_not_separated():
    assert blamed([1, 1, None, 0, 0], [0, 0, None, 1, 1]).span == StageSpan(2, 3)


def test_one_direction_narrows_the_other():
    blame = blamed([1, 1, None, 0, 0], [0, 0, 1, 1, 1])
    assert (blame.span, blame.agreed) == (StageSpan(2, 2), True)


def test_a_direction_that_could_not_be_measured_is_said():
    blame = blamed([1, None, None, 0], [0, 0, 1, 1])
    assert (blame.span, blame.agreed) == (StageSpan(2, 2), None)


def test_nothing_measured_blames_nobody():
    blame = blamed([1, None, None, 0], [0, None, None, 1])
    assert (blame.span, blame.agreed) == (None, None)


def test_a_large_part_beside_the_largest_is_named():
    blame = blamed([100, 100, 40, 0], [0, 0, 60, 100])
    assert blame.span == StageSpan(2, 2, 0.6)
    assert blame.beside == (StageSpan(3, 3, 0.4),)


def test_many_small_parts_blame_nobody():
    blame = blamed([90, 60, 30, 0], [0, 30, 60, 90])
    assert blame.span is None
    assert len(blame.beside) == 3


def test_shares_may_exceed_the_whole():
    assert [span.share for span in spans([10, 0, 20])] == [-1.0, 2.0]


@pytest.mark.parametrize("at", range(9))
def test_the_turn_is_between_neighbours(at):
    asked = []

    def measured(place):
        asked.append(place)
        return 1.0 if place < at else 0.0

    assert turn(measured, 8, 1.0, 0.0) == (at - 1, at)
    assert len(asked) <= 4


def test_the_turn_passes_over_what_cannot_be_measured():
    values = [1.0, 1.0, None, None, 0.0, 0.0]
    assert turn(values.__getitem__, 6, 1.0, 0.0) == (1, 4)
    assert turn(lambda place: None, 6, 1.0, 0.0) == (-1, 6)
