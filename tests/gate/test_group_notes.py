"""A group is linked to the features that came with it, and says whether the assembler moved with it."""

from __future__ import annotations

import made_records
import pytest
from made_records import STACK, Record, changed, run_of_all

from conformance.gate.verdict.group_notes import noted
from conformance.reporting.comparison import render_markdown, render_terminal
from conformance.reporting.html_data import comparison_data
from conformance.user_files.findings import Comparison, Finding, Group, Kind

BASE = run_of_all()


def group(kind: Kind, what: str, cases: range, *targets: str) -> Group:
    findings = [Finding(kind, f"{case}-{t}", "mm", t, f"{what} on {t}", "", "") for t in targets for case in cases]
    return Group(kind, f"{what} on {targets[0]}", tuple(findings))


def notes(*groups: Group) -> list[tuple[str, ...]]:
    return [each.notes for each in noted(groups, {}, {})]


GAINED = group(Kind.FEATURE_GAINED, "ASYNC_COPY gained", range(100), "gfx950")


@pytest.mark.parametrize(
    ("cases", "expected"),
    [
        (range(100), "ASYNC_COPY gained in the same 100 cases"),
        (range(5, 105), "ASYNC_COPY gained in 95 of these 100 cases"),
        (range(90), "ASYNC_COPY gained in 90 of these 90 cases"),
        (range(89), "ASYNC_COPY gained in 89 of these 89 cases, and in 11 more"),
        (range(112), None),
        (range(50, 150), None),
    ],
    ids=str,
)
def test_a_group_is_linked_to_a_feature_that_nine_tenths_of_its_cases_gained(cases, expected):
    more = group(Kind.MORE_SHARED_MEMORY, "more shared memory", cases, "gfx950")
    of_more, of_feature = notes(more, GAINED)
    assert of_more == ((expected,) if expected else ())
    assert bool(of_feature) == bool(expected and " more" not in expected), "the feature came without it elsewhere"


def test_what_got_better_is_linked_only_if_it_coincides():
    fewer = group(Kind.FEWER_REGISTERS, "fewer registers", range(89), "gfx950")
    assert notes(fewer, GAINED) == [(), ()]
    assert notes(group(Kind.FEWER_REGISTERS, "fewer registers", range(90), "gfx950"), GAINED)[0]


def test_a_feature_counts_on_the_targets_of_the_group_alone():
    elsewhere = group(Kind.FEATURE_GAINED, "ASYNC_COPY gained", range(100), "gfx1250")
    drift = group(Kind.NUMERICS_DRIFT, "other bits", range(100), "gfx950", "gfx1250")
    more = group(Kind.MORE_SHARED_MEMORY, "more shared memory", range(100), "gfx1250")
    assert notes(drift, more, GAINED, elsewhere)[:2] == [
        ("ASYNC_COPY gained in the same 200 cases",),
        ("ASYNC_COPY gained in the same 100 cases",),
    ]
    assert notes(more, GAINED)[0] == ()


def gain_async_copy(one: Record) -> None:
    one["observed"]["code"]["features"].append("ASYNC_COPY")
    one["observed"]["resources"]["shared_memory"] *= 2


def test_link_is_in_the_text_the_comment_and_the_page(tmp_path):
    comparison = made_records.compared(tmp_path, BASE, changed(BASE, gain_async_copy, target="sm_90"))
    less, more, gained = comparison.groups
    assert less.notes[0] == more.notes[0] == "ASYNC_COPY gained in the same 24 cases"
    assert gained.notes[:2] == ("LESS_OCCUPANCY in the same 24 cases", "MORE_SHARED_MEMORY in the same 24 cases")
    assert "ASYNC_COPY gained in the same 24 cases" in render_terminal(comparison)
    assert "ASYNC_COPY gained in the same 24 cases" in render_markdown(comparison)
    assert data_of(comparison, tmp_path)["groups"][1]["notes"] == list(more.notes)


def data_of(comparison: Comparison, folder):
    from conformance.records import Reading
    from conformance.reporting.html_data import ReportedRun

    return comparison_data(comparison, ReportedRun(folder, Reading((), ())))


def assembled(version: str):
    return lambda one: one["observed"]["code"].update(assembler=version)


def spilling(one: Record) -> None:
    one["observed"]["resources"]["spills"] = 56
    assembled("13.1.80")(one)


def test_a_finding_says_whether_the_assembler_moved_with_it(tmp_path):
    before = changed(changed(BASE, assembled("12.9.86"), target="sm_90"), assembled("13.1.80"), target="sm_100")
    after = changed(before, spilling)
    comparison = made_records.compared(tmp_path, before, after)
    assert comparison.assemblers == {"sm_100": ("ptxas 13.1.80",) * 2, "sm_90": ("ptxas 12.9.86", "ptxas 13.1.80")}
    assert {group.cause: group.notes for group in comparison.groups} == {
        "more spills on sm_90": ("the assembler is another one on all of its targets: ptxas 12.9.86 to ptxas 13.1.80",),
        "more spills on sm_100": ("the assembler is the same: ptxas 13.1.80",),
    }
    header = " ".join(render_terminal(comparison).split())
    assert "assembler of sm_90 ptxas 12.9.86 ptxas 13.1.80" in header
    assert "assembler of sm_100 ptxas 13.1.80 ptxas 13.1.80" in header
    assert ["assembler of sm_90", "ptxas 12.9.86", "ptxas 13.1.80"] in data_of(comparison, tmp_path)["assemblers"]


@pytest.mark.parametrize(
    ("stack", "expected"),
    [
        ({"ptxas": "12.8.93"}, {"sm_90": "ptxas 12.8.93", "sm_100": "ptxas 12.8.93"}),
        ({"ptxas": "12.8.93", "ptxas-blackwell": "13.1.80"}, {"sm_100": "ptxas 13.1.80"}),
        ({"ptxas": "13.0.88", "ptxas-blackwell": "13.0.88"}, {"sm_90": "ptxas 13.0.88", "sm_100": "ptxas 13.0.88"}),
        ({"ptxas": None}, {}),
    ],
    ids=str,
)
def test_assembler_of_records_that_do_not_say_it_follows_from_the_stack_where_all_releases_agree(
    tmp_path, stack, expected
):
    comparison = made_records.compared(tmp_path, BASE, BASE, stack={**STACK, **stack})
    assert {target: now for target, (_, now) in comparison.assemblers.items()} == expected
