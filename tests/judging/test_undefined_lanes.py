"""The lines whose undefined lanes reach a result are found by trials in which some of the lanes are 0."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from conformance.judging.undefined_lanes import _reaching
from conformance.records import Verdict

LINES = ("mm.py:1", "mm.py:2", "mm.py:3")


def tried(numbers: str, *, passed: bool = False, fill: str = "randn") -> SimpleNamespace:
    """A trial that gave ``numbers`` in one fill."""
    lanes = SimpleNamespace(undefined={line: {} for line in LINES})
    return SimpleNamespace(verdicts=[Verdict(f"numerics/{fill}", passed, numbers)], lanes=lanes)


def found(numbers_of: object) -> tuple[list[str], int]:
    """The lines that are named if ``numbers_of`` gives what a trial makes of the lines that are 0, and how many trials
    were made."""
    zeros = []

    def trial(kernel: object, plan: object, fills: tuple[str, ...], zero: frozenset[str]) -> SimpleNamespace:
        assert fills == ("randn",)
        zeros.append(zero)
        return tried(numbers_of(zero))

    harness = SimpleNamespace(trial=trial)
    return _reaching(harness, None, None, tried(numbers_of(frozenset()))), len(zeros)


def nan(lines: set[str]) -> object:
    return lambda zero: "NaN" if lines - zero else "5"


def product(zero: frozenset[str]) -> str:
    """Two integers are multiplied: the product is 0 unless both are undefined."""
    return "5" if zero & {"mm.py:1", "mm.py:2"} else "1"


@pytest.mark.parametrize(
    ("numbers", "lines", "trials"),
    [
        (nan({"mm.py:1", "mm.py:3"}), ["mm.py:1", "mm.py:3"], 4),
        (nan({"mm.py:2"}), ["mm.py:2"], 4),
        (product, [*LINES], 4),
        (lambda zero: "wrong for another reason", [], 1),
    ],
)
def test_lines_whose_lanes_change_a_result_are_named(numbers, lines, trials):
    assert found(numbers) == (lines, trials)


def test_no_trial_is_made_if_no_number_is_wrong():
    harness = SimpleNamespace(trial=None)
    wrong = SimpleNamespace(verdicts=[Verdict("memory/randn", False)], lanes=tried("").lanes)
    assert _reaching(harness, None, None, wrong) == []
