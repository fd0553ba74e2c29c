"""An earlier answer changes no verdict, and hides nothing that is new."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.commands.shared.comparison_output import SCHEMA, to_json
from conformance.commands.shared.history_options import warn_of_unused
from conformance.faults import Fault, FaultClass
from conformance.gate.verdict.known_findings import SCHEMAS, EarlierAnswerError, read_earlier_answer, with_known
from conformance.reporting.comparison import render_markdown, render_terminal
from conformance.user_files.findings import BrokenSide, Comparison, Finding, Group, Kind, Narrowing, Side

SIDE = Side("triton==3.8.0", {}, "quick", 0, 9, {}, started="2026-11-19T08:00:00+00:00")


def group(kind: Kind, cause: str, *places: tuple[str, str], minor: bool = False) -> Group:
    findings = (
        Finding(kind, f"test_a.py::test_x[{number}-{kernel}]", kernel, target, cause, "pass", "fail", minor=minor)
        for number, (kernel, target) in enumerate(places)
    )
    return Group(kind, cause, tuple(findings))


def comparison(*groups: Group) -> Comparison:
    return Comparison(SIDE, SIDE, groups, 9, 0)


WRONG = group(Kind.NEW_FAIL, "numerics/transparent: 12 of 90 are wrong", ("mm", "sm_90"))
SPILLS = group(Kind.MORE_SPILLS, "more spills on sm_90", ("mm", "sm_90"))


@pytest.fixture
def earlier(tmp_path):
    """An earlier answer with groups, as it is read back."""

    def write(*groups: Group, **fields: object):
        file = tmp_path / "last.json"
        data = json.loads(to_json(comparison(*groups)))
        file.write_text(json.dumps({**data, **fields}))
        return replace(read_earlier_answer(file), file="last.json")

    return write


def said(now: Comparison, *answers) -> list[str | None]:
    after = with_known(now, answers)
    assert (after.safe, [each.severity for each in after.groups]) == (now.safe, [each.severity for each in now.groups])
    assert all(each.earlier in each.notes for each in after.groups if each.earlier)
    return [each.earlier for each in after.groups]


LAST = "the answer of 2026-11-19 (last.json)"


def test_a_cause_is_known_by_its_signature(earlier):
    now = replace(WRONG, cause="numerics/transparent: 7 of 11 are wrong")
    assert said(comparison(now, SPILLS), earlier(WRONG)) == [f"as in {LAST}", f"new since {LAST}"]


def test_a_cause_in_another_kernel_or_target_is_not_hidden(earlier):
    places = [("mm", "sm_90"), ("attention", "sm_90"), ("mm", "sm_100")]
    now = group(Kind.NEW_FAIL, WRONG.cause, *places)
    assert said(comparison(now), earlier(WRONG)) == [
        f"as in {LAST}, and now also in attention on sm_90, mm on sm_100",
    ]


def test_a_warning_that_became_a_regression_says_so(earlier):
    small = group(Kind.MORE_SPILLS, "more spills on sm_90", ("mm", "sm_90"), minor=True)
    assert said(comparison(SPILLS), earlier(small)) == [f"as in {LAST}, where it was only a warning"]
    assert said(comparison(SPILLS), earlier(small, SPILLS)) == [f"as in {LAST}"]


def test_what_newly_failed_then_is_known_where_both_sides_fail_now(earlier):
    now = group(Kind.STILL_FAIL, WRONG.cause, ("mm", "sm_90"))
    assert said(comparison(now), earlier(WRONG)) == [f"as in {LAST}, there NEW_FAIL"]
    assert said(comparison(WRONG), earlier(now)) == [f"as in {LAST}, there STILL_FAIL, where it was only a warning"]


def test_what_waivers_covered_is_known(earlier):
    waived = group(Kind.WAIVED, "NEW_FAIL, no concern of ours (w.toml: waiver 1)", ("mm", "sm_90"))
    assert said(comparison(WRONG, SPILLS), earlier(waived)) == [
        f"as in {LAST}, where waivers covered it",
        f"new since {LAST}",
    ]


def test_the_first_screen_counts_what_is_new(earlier):
    gone = group(Kind.FEATURE_LOST, "TMA_LOAD lost on sm_90", ("mm", "sm_90"))
    wider = group(Kind.NEW_CRASH, "SIGSEGV", ("mm", "sm_90"), ("bmm", "sm_90"))
    warning = group(Kind.SYNC_CHANGED, "fewer barriers", ("mm", "sm_90"))
    then = earlier(WRONG, gone, group(Kind.NEW_CRASH, "SIGSEGV", ("mm", "sm_90")))
    after = with_known(comparison(WRONG, wider, SPILLS, warning), [then])
    (text,) = after.history
    assert text == (
        f"since {LAST}: 1 is new of 3 causes of regressions, 1 is known and now in more kernels or targets, "
        "1 is as there, 1 is gone"
    )
    first = render_terminal(after).split("Regressions")[0]
    assert text in first
    assert "1 is new of 3 causes" in render_markdown(after)


def test_of_several_answers_the_first_that_has_it_is_named(earlier, tmp_path):
    old = replace(earlier(WRONG), date="2026-11-05", file="old.json")
    assert said(comparison(WRONG, SPILLS), earlier(WRONG), old) == [
        "as in the answer of 2026-11-05 (old.json)",
        f"new since {LAST}",
    ]


def test_an_answer_that_may_lack_causes_says_so(earlier):
    then = earlier(broken=[{"side": "baseline"}])
    assert said(comparison(WRONG), then) == [f"not in {LAST}, of a run that is not whole"]
    (text,) = with_known(comparison(WRONG), [then]).history
    assert text.endswith(": 1 is not in the earlier answer, of 1 cause of regressions")
    narrowed = earlier(narrowing={"options": ["-k mm"], "cases": 3, "whole": 9})
    assert said(comparison(WRONG), narrowed) == [f"not in {LAST}, of a part of a tier"]


def gone(now: Comparison, then) -> str:
    """Returns the rest of the first screen's sentence after the number of new causes."""
    (text,) = with_known(now, [then]).history
    return text.partition("of regressions")[2]


def test_a_cause_that_is_still_there_is_not_gone(earlier):
    assert gone(comparison(), earlier(WRONG)) == ", 1 is gone"
    both_sides = group(Kind.STILL_FAIL, WRONG.cause, ("mm", "sm_90"))
    assert gone(comparison(both_sides), earlier(WRONG)) == ""
    waived = group(Kind.WAIVED, "NEW_FAIL, no concern of ours (w.toml: waiver 1)", ("mm", "sm_90"))
    assert gone(comparison(waived), earlier(WRONG)) == ""
    assert gone(comparison(waived), earlier(SPILLS)) == ", 1 is gone"


def test_a_cause_that_was_not_looked_at_is_not_gone(earlier):
    narrowed = replace(comparison(), narrowing=Narrowing(("-k mm",), 3))
    assert gone(narrowed, earlier(WRONG)) == ", 1 is not compared now"
    cut = Fault("cut-off", FaultClass.UNFINISHED, "the run did not end")
    broken = replace(comparison(), broken=(BrokenSide("candidate", FaultClass.UNFINISHED, (cut,)),))
    assert gone(broken, earlier(WRONG)) == ", 1 is not compared now"


def test_the_schema_that_is_written_can_be_read():
    assert SCHEMA in SCHEMAS


def test_an_answer_of_a_matrix_is_about_one_pair(earlier):
    then = replace(earlier(WRONG), stacks=("today", "nightly (brings triton 3.8.0, CPU build)"))
    assert then.is_about("today", "nightly")
    assert not then.is_about("nightly", "today")
    assert then.is_about("today", "nightly (brings triton 3.9.0)")


def test_an_answer_about_no_pair_of_a_matrix_is_named(earlier, capsys):
    then = replace(earlier(WRONG), stacks=("today", "nightly (brings triton 3.8.0, CPU build)"))
    warn_of_unused([then], [("old", "today"), ("today", "nightly")])
    assert capsys.readouterr().err == ""
    warn_of_unused([then], [("old", "today")])
    assert capsys.readouterr().err == (
        "--known last.json: it is not used: it compares nightly (brings triton 3.8.0, CPU build) with today, "
        "which is no pair of the matrix\n"
    )


def test_without_an_earlier_answer_nothing_is_said():
    now = comparison(WRONG)
    assert with_known(now, []) is now


def test_an_answer_of_an_older_version_has_neither_signatures_nor_a_date(earlier, tmp_path):
    then = earlier(WRONG)
    data = json.loads((tmp_path / "last.json").read_text())
    for one in data["groups"]:
        del one["signature"], one["age"], one["earlier"]
    for side in ("baseline", "candidate"):
        del data[side]["started"]
    (tmp_path / "last.json").write_text(json.dumps(data))
    old = read_earlier_answer(tmp_path / "last.json")
    assert (old.causes, old.date) == (then.causes, "")
    assert str(old) == f"the answer in {tmp_path / 'last.json'}"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "it cannot be read as JSON"),
        ("just words", "it cannot be read as JSON"),
        ("[" * 100_000, "it cannot be read as JSON"),
        ("[1]", "it is no answer of a gate: give the comparison.json of a gate, or what compare --json wrote"),
        ('{"schema": 3, "id": "a run"}', "it is no answer of a gate"),
        (
            '{"schema": 2, "answer": "NO ANSWER: it broke"}',
            "nothing was compared there .NO ANSWER: it broke.: give the",
        ),
        ('{"schema": true, "groups": []}', "it is no answer of a gate"),
        ('{"schema": 99, "groups": []}', "it has schema 99, and this version reads 2"),
        ('{"schema": 2, "groups": [{"kind": "NEW_FAIL"}]}', "it is no whole answer"),
        ('{"schema": 2, "groups": [7]}', "it is no whole answer"),
        ('{"schema": 2, "groups": []}', "it is no whole answer"),
        ('{"schema": 2, "groups": [], "baseline": 1, "candidate": 2}', "it is no whole answer"),
    ],
)
def test_a_file_that_is_no_answer(tmp_path: Path, content, message):
    file = tmp_path / "known.json"
    if content is not None:
        file.write_text(content)
    with pytest.raises(EarlierAnswerError, match=f"--known .*known.json: {message}"):
        read_earlier_answer(file)
