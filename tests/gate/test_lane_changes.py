"""A warning about undefined lanes that is new, another one or gone is a finding."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from made_records import Record, changed, compared, failing, kinds, record

from conformance.reporting.comparison import render_terminal
from conformance.reporting.first_line import answer


def warned(line: int) -> Record:
    """A case that passes with a warning about the lanes of a load in ``line``."""
    one = record()
    text = f"k 80 to 95 of a (mm.py:{line}), which the mask leaves without a value, reach the result"
    one["verdicts"].append({"check": "undefined-lanes", "passed": True, "text": text, "details": {"severity": "warn"}})
    return one


def passed() -> Record:
    """A case in which no undefined lane reaches a result, and a check says so."""
    one = record()
    one["verdicts"].append({"check": "undefined-lanes", "passed": True, "text": "reach no result", "details": {}})
    return one


@pytest.mark.parametrize(
    ("before", "after", "expected", "cause"),
    [
        (record(), warned(24), {"UNDEFINED_LANES": 1}, "lanes without a value reach a result on sm_90"),
        (passed(), warned(24), {"UNDEFINED_LANES": 1}, "lanes without a value reach a result on sm_90"),
        (warned(24), warned(31), {"UNDEFINED_LANES": 1}, "other lanes without a value reach a result on sm_90"),
        (warned(24), record(), {"FIXED": 1}, "lanes without a value reach no result on sm_90"),
        (warned(24), passed(), {"FIXED": 1}, "lanes without a value reach no result on sm_90"),
        (warned(24), warned(24), {}, ""),
        (record(), passed(), {}, ""),
    ],
)
def test_a_warning_that_changes_is_a_finding(
    tmp_path: Path, before: Record, after: Record, expected: dict[str, int], cause: str
) -> None:
    comparison = compared(tmp_path, [before], [after])
    assert kinds(comparison) == expected
    assert [group.cause for group in comparison.groups] == [cause][: len(expected)]
    assert comparison.safe
    assert comparison.unchanged == (not expected)


def test_the_answer_names_a_new_warning(tmp_path: Path) -> None:
    comparison = compared(tmp_path, [record()], [warned(24)])
    assert "1 warning to read" in answer(comparison)
    text = render_terminal(comparison)
    assert "UNDEFINED_LANES  lanes without a value reach a result on sm_90" in text
    assert "no warning -> k 80 to 95 of a (mm.py:24), which the mask leaves without a value" in text


def not_run(one: Record) -> None:
    one.update(status="not-run", executor=None, reason={"code": "no-device", "subject": "ttgir", "detail": "no"})
    one["verdicts"] = [verdict for verdict in one["verdicts"] if verdict["check"] != "undefined-lanes"]


def interpreted(one: Record) -> None:
    one["executor"] = "interpreter"
    one["verdicts"] = [verdict for verdict in one["verdicts"] if verdict["check"] != "undefined-lanes"]


@pytest.mark.parametrize("change", [not_run, interpreted, failing("undefined-lanes", "the code gives no known value")])
def test_a_case_that_is_no_longer_judged_so_has_lost_no_warning(
    tmp_path: Path, change: Callable[[Record], None]
) -> None:
    comparison = compared(tmp_path, [warned(24)], changed([warned(24)], change))
    assert "FIXED" not in kinds(comparison)
    assert not comparison.safe
