"""Every answer says of how many cases it is, in which shapes, by which proof, and what neither side takes."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.reporting.comparison import (
    NO_DEVICE,
    WHERE_ALL_IS,
    answer,
    refused,
    render_markdown,
    render_terminal,
)
from tests.gate.made_records import Record, compared, record


def cases(count: int, level: str = "device", shape: str = "", **changes: object) -> list[Record]:
    copies = []
    for number in range(count):
        one = record(f"mm{number}")
        if shape:
            one["case"] = one["case"].replace("-sm_90]", f"-shape={shape}-sm_90]")
        if level != "device":
            one["executor"] = level if level in ("interpreter", "ttgir") else None
        if level == "ttgir":
            one["verdicts"].append({"check": "executed/ttgir", "passed": True, "text": "right", "details": {}})
        if level == "compiled":
            one["status"] = "not-run"
            one["reason"] = {"code": "no-device", "subject": "compile-only", "detail": "nothing was to be run"}
        copies.append({**one, **changes})
    return copies


def not_applicable(count: int, code: str) -> list[Record]:
    reason = {"code": code, "subject": "config", "detail": "why"}
    refused = cases(count, status="not-applicable", reason=reason, executor=None, verdicts=[], observed={})
    for one in refused:
        one["case"] = one["case"].replace("mm", code)
    return refused


def test_a_safe_answer_says_how_many_of_how_many_by_which_proof_in_which_shapes(tmp_path: Path) -> None:
    run = cases(9, "interpreter", "ragged") + [
        {**one, "case": one["case"].replace("test_row", "test_other")} for one in cases(5, "compiled", "several-tiles")
    ]
    run += not_applicable(4, "shared-memory") + not_applicable(2, "layout")
    comparison = compared(tmp_path, run, run)
    assert answer(comparison) == (
        "SAFE: no regression in 14 of 20 cases (9 interpreted, 5 compiled only; shapes ragged, several-tiles), "
        "14 unchanged"
    )
    both = "6 of 20 cases not applicable on both sides: 4 past the limit of shared memory, 2 layout"
    assert refused(comparison.scope) == both
    assert both in render_terminal(comparison)
    assert both in render_markdown(comparison).replace("\\", "")


def test_sizes_without_a_rest_are_one_shape_constant_or_not(tmp_path: Path) -> None:
    run = [
        {**one, "case": f"test_config_space.py::{test}[mm-aligned=True-sm_90]"}
        for one, test in zip(cases(2), ("test_even_sizes", "test_even_constant_sizes"), strict=True)
    ]
    assert dict(compared(tmp_path, run, run).scope.shapes) == {"even": 2}


def test_what_the_candidate_only_compiled_does_not_count_as_run(tmp_path: Path) -> None:
    comparison = compared(tmp_path, cases(13), cases(13, "compiled"))
    assert dict(comparison.scope.levels) == {"compiled only": 13}


@pytest.mark.parametrize(("count", "begins"), [(1, "SAFE for the 1 case that was compared: no"), (13, "SAFE: no")])
def test_a_handful_of_cases_is_said_first(tmp_path: Path, count: int, begins: str) -> None:
    assert answer(compared(tmp_path, cases(count), cases(count))).startswith(begins)


def test_a_handful_that_is_not_safe_is_said_first_too(tmp_path: Path) -> None:
    now = cases(3, status="fail", diagnosis="wrong")
    assert answer(compared(tmp_path, cases(3), now)).startswith(
        "NOT SAFE for the 3 cases that were compared: 3 cases newly fail; 3 regr"
    )


def test_a_case_that_one_side_refuses_is_no_case_that_both_refuse(tmp_path: Path) -> None:
    comparison = compared(tmp_path, cases(2) + not_applicable(1, "layout"), cases(2))
    assert (comparison.scope.cases, dict(comparison.scope.refused), comparison.scope.judged) == (3, {}, 2)


def test_an_answer_that_is_not_safe_says_which_targets_regressed(tmp_path: Path) -> None:
    def on(target: str, count: int, **changes: object) -> list[Record]:
        return [
            {**one, "case": one["case"].replace("sm_90]", f"{target}]"), "target": target}
            for one in cases(count, **changes)
        ]

    before = on("sm_80", 3) + on("sm_90", 2) + on("gfx942", 2)
    after = on("sm_80", 3, status="fail", diagnosis="wrong") + on("sm_90", 2) + on("gfx942", 2)
    said = "cases with a regression: sm_80 3 of 3; none on gfx942 (of 2), sm_90 (of 2)"
    comparison = compared(tmp_path, before, after)
    assert said in render_terminal(comparison)
    assert said in render_markdown(comparison).replace("\\", "")
    assert "with a regression" not in render_terminal(compared(tmp_path, before, before))
    assert "with a regression" not in render_terminal(compared(tmp_path, before[:3], after[:3])), "one target"


def test_executed_code_is_a_level_of_its_own(tmp_path: Path) -> None:
    levels = [dict(compared(tmp_path, cases(3, one), cases(3, other)).scope.levels)
              for one, other in (("ttgir", "ttgir"), ("ttgir", "interpreter"), ("device", "ttgir"))]  # fmt: skip
    assert levels == [{"TTGIR executed": 3}, {"interpreted": 3}, {"TTGIR executed": 3}]


def test_an_answer_says_that_no_device_took_part(tmp_path: Path) -> None:
    both = cases(1) + cases(2, "interpreter", "ragged")
    for render in (render_terminal, render_markdown):
        assert NO_DEVICE not in render(compared(tmp_path, both, both))
        assert NO_DEVICE in render(compared(tmp_path, both[1:], both[1:]))


def test_an_answer_says_from_what_on_spills_are_a_regression(tmp_path: Path) -> None:
    def spilling(count: int) -> list[Record]:
        after = copy.deepcopy(cases(1))
        after[0]["observed"]["resources"]["spills"] = count
        after[0]["observed"]["code"]["sha256"] = f"{count:064x}"
        return after

    comparison = compared(tmp_path, spilling(0), spilling(8))
    rule = "a regression is MORE_SPILLS of at least 64 bytes per thread (AMD: 16 registers) and 25%; what is less warns"
    for render in (render_terminal, render_markdown):
        assert rule in render(comparison)
        assert "a regression is" not in render(compared(tmp_path, cases(1), cases(1)))
    usual = dict(comparison.thresholds)
    moved = replace(comparison, thresholds={**usual, "spills as a regression, at least bytes": 128.0})
    assert "of at least 128 bytes" in render_terminal(moved)


def test_an_answer_with_findings_says_where_all_cases_are(tmp_path: Path) -> None:
    other = compared(tmp_path, cases(2), cases(2, status="fail", diagnosis="wrong"))
    same = compared(tmp_path, cases(2), cases(2))
    assert [WHERE_ALL_IS in render_terminal(one) for one in (other, same)] == [True, False]
    assert render_markdown(other, 3000).count("lists every case") == 1
