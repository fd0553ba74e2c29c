"""A config table that differs between two runs is a finding; equal ones are none, and one that is not there is told."""

from __future__ import annotations

import copy

import pytest

from conformance.gate.changes.config_changes import RowChanges, row_changes
from conformance.user_files.findings import Comparison, Kind, Severity
from tests.gate.made_records import BASE, Record, compared, kinds, record

MM = ["32x32x16-s1-w2", "64x64x32-s2-w4", "128x128x64-s3-w4", "128x128x64-s5-w8"]
TABLES = {"mm_configs": MM, "h100_default_flex_config": ["float16/64=128x128-s3-w4"], "settings": ["should_scale=1"]}


def tables_of(group: str = "cuda", **tables: list[str] | None) -> Record:
    """The record of a case of ``live_tables``; ``tables`` replace some, None leaves one out."""
    one = record()
    one |= {"case": f"test_live_tables.py::test_tables[{group}]", "suite": "live_tables", "kernel": None}
    one |= {"problem": None, "config": None, "options": {}, "target": None, "executor": None}
    one["verdicts"] = [{"check": "readable/cuda", "passed": True, "text": "", "details": {}}]
    rows = {name: table for name, table in (TABLES | tables).items() if table is not None}
    one["observed"] = {"config_tables": rows}
    return one


def of_configs(comparison: Comparison) -> list[tuple[str, str, str, str]]:
    """Cause, rows lost, rows gained and rows changed of each finding about tables."""
    return [
        (one.cause, one.before, one.after, one.detail)
        for group in comparison.groups
        for one in group.findings
        if one.kind is Kind.CONFIGS_CHANGED
    ]


def test_equal_tables_are_no_finding(tmp_path):
    comparison = compared(tmp_path, [*BASE, tables_of()], [*BASE, tables_of()])
    assert kinds(comparison) == {}
    assert comparison.warnings == ()
    assert comparison.unchanged == len(BASE) + 1


@pytest.mark.parametrize(
    ("tables", "finding"),
    [
        (
            {"mm_configs": [*MM, "128x256x64-s4-w8"]},
            ("mm_configs: 1 row gained", "no row lost", "gained 128x256x64-s4-w8", ""),
        ),
        ({"mm_configs": MM[1:]}, ("mm_configs: 1 row lost", "lost 32x32x16-s1-w2", "no row gained", "")),
        (
            {"mm_configs": [*MM[:2], "128x128x64-s4-w4", MM[3], "16x16x16-s1-w1", "16x32x16-s1-w1"]},
            (
                "mm_configs: 2 rows gained, 1 changed",
                "no row lost",
                "gained 16x16x16-s1-w1, 16x32x16-s1-w1",
                "changed 128x128x64-s3-w4 -> 128x128x64-s4-w4",
            ),
        ),
        (
            {"h100_default_flex_config": ["float16/64=128x64-s3-w4"]},
            (
                "h100_default_flex_config: 1 row changed",
                "no row lost",
                "no row gained",
                "changed float16/64=128x128-s3-w4 -> float16/64=128x64-s3-w4",
            ),
        ),
        ({"mm_configs": MM[::-1]}, ("mm_configs: rows in another order", "no row lost", "no row gained", "")),
        (
            {"settings": None},
            ("settings: the table is gone", "lost should_scale=1", "no row gained", ""),
        ),
        (
            {"new_configs": ["16x16x16-s1-w1"]},
            ("new_configs: the table is new", "no row lost", "gained 16x16x16-s1-w1", ""),
        ),
    ],
)
def test_a_changed_table_is_a_warning(tmp_path, tables, finding):
    comparison = compared(tmp_path, [*BASE, tables_of()], [*BASE, tables_of(**tables)])
    assert of_configs(comparison) == [finding]
    assert kinds(comparison) == {"CONFIGS_CHANGED": 1}
    assert comparison.groups[0].severity is Severity.WARNING
    assert comparison.safe


def test_the_same_change_for_two_devices_is_one_group(tmp_path):
    before, after = ([tables_of(group, **rows) for group in ("cuda", "cpu")] for rows in ({}, {"mm_configs": MM[1:]}))
    comparison = compared(tmp_path, [*BASE, *before], [*BASE, *after])
    (group,) = comparison.groups
    assert len(group.findings) == 2


def test_a_second_device_has_the_rows_of_the_first_unless_told(tmp_path):
    """Only what differs from the first device is recorded of another."""
    own = {"rocm:gfx950 mm_configs": MM[1:]}
    comparison = compared(tmp_path, [*BASE, tables_of("rocm")], [*BASE, tables_of("rocm", **own)])
    assert [cause for cause, *_ in of_configs(comparison)] == ["rocm:gfx950 mm_configs: 1 row lost"]
    comparison = compared(tmp_path / "other", [*BASE, tables_of("rocm", **own)], [*BASE, tables_of("rocm")])
    assert [cause for cause, *_ in of_configs(comparison)] == ["rocm:gfx950 mm_configs: 1 row gained"]


def test_tables_of_one_side_only_are_told(tmp_path):
    without = copy.deepcopy(tables_of())
    without["observed"] = {}
    comparison = compared(tmp_path, [*BASE, tables_of()], [*BASE, without])
    assert of_configs(comparison) == []
    (warning,) = comparison.warnings
    assert "could not be compared for cuda: the candidate recorded none" in warning
    comparison = compared(tmp_path / "other", BASE, [*BASE, tables_of(), tables_of("xpu")])
    assert "for cuda, xpu: the baseline recorded none" in comparison.warnings[0]


def test_another_torch_without_tables_is_told(tmp_path):
    stack = BASE[0]["stack"]
    comparison = compared(tmp_path, BASE, BASE, stack={**stack, "torch": "2.15.0"})
    assert any("torch differs and neither run recorded its config tables" in text for text in comparison.warnings)


def of_torch(row: str) -> Record:
    """A case of a sweep that only the installed torch's tables have."""
    one = record("mm", "128x256x64-s4-w8")
    one["observed"]["torch_row"] = row
    return one


GAINED = {"mm_configs": [*MM, "128x256x64-s4-w8"]}
ROW = "cuda mm_configs: 128x256x64-s4-w8"


def test_a_case_whose_row_torch_lost_is_a_warning(tmp_path):
    comparison = compared(tmp_path, [*BASE, of_torch(ROW), tables_of(**GAINED)], [*BASE, tables_of()])
    assert kinds(comparison) == {"LOST_COVERAGE": 1, "CONFIGS_CHANGED": 1}
    assert comparison.regressions == ()
    (lost,) = (group for group in comparison.groups if group.kind is Kind.LOST_COVERAGE)
    assert lost.cause == "the row is no longer in torch's table cuda mm_configs"


@pytest.mark.parametrize(
    ("row", "before", "after"),
    [
        ("", GAINED, {}),  # a row of the tables here
        (ROW, GAINED, GAINED),  # torch still has it
        (ROW, {}, {}),  # it never had it
        (ROW, GAINED, None),  # unknown
        ("cuda other_configs: 128x256x64-s4-w8", GAINED, {}),
    ],
)
def test_other_lost_cases_stay_regressions(tmp_path, row, before, after):
    now = [*BASE] if after is None else [*BASE, tables_of(**after)]
    comparison = compared(tmp_path, [*BASE, of_torch(row), tables_of(**before)], now)
    assert any(group.kind is Kind.LOST_COVERAGE for group in comparison.regressions)


def test_the_row_of_another_architecture_excuses_nothing(tmp_path):
    """Here the first one lost the row, and the one of the case still has it."""
    lost = of_torch("rocm:gfx950 mm_configs: 128x256x64-s4-w8")
    now = tables_of("rocm", **{"rocm:gfx950 mm_configs": GAINED["mm_configs"]})
    comparison = compared(tmp_path, [*BASE, lost, tables_of("rocm", **GAINED)], [*BASE, now])
    assert any(group.kind is Kind.LOST_COVERAGE for group in comparison.regressions)


def test_rows_that_stand_twice_count_twice():
    assert row_changes(["a-s1", "a-s1"], ["a-s1"]) == RowChanges(lost=("a-s1",))
    assert row_changes(["a-s1"], ["a-s2"]) == RowChanges(changed=(("a-s1", "a-s2"),))
    assert not row_changes(["a-s1"], ["a-s1"])
