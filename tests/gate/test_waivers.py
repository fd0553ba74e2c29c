"""A waiver covers what it names. One that is expired, too wide or needless fails the gate, with an edit that helps."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from dataclasses import replace
from datetime import date

import pytest

from conformance.gate.verdict.apply_waivers import apply, suggested
from conformance.records import CaseRecord, Reason, ReasonCode, Status, Verdict
from conformance.user_files import toml_entries
from conformance.user_files.case_list import Ids, matches
from conformance.user_files.findings import Comparison, Finding, Group, Kind, Side
from conformance.user_files.toml_edits import narrowest, spans
from conformance.user_files.toml_entries import EntryError
from conformance.user_files.waiver_file import Waivers, parsed, read_waivers
from tests.gate.sample_entries import WAIVER, waiver

TODAY = date(2026, 9, 1)
STACK = {"torch": "2.13.0+cpu", "triton": "3.9.0", "device": None}
CASE = "test_scaling.py::test_scales[mm-fp16-{}-sm_90]"


def record(number: int | str, status: Status = Status.PASS, target: str = "sm_90", **fields) -> CaseRecord:
    return CaseRecord(CASE.format(number), "scaling", status, target=target, stack={**STACK, **fields})


def comparison(*findings: tuple[Kind, int]) -> Comparison:
    groups = {}
    for kind, number in findings:
        groups.setdefault(kind, []).append(Finding(kind, CASE.format(number), "mm", "sm_90", "a cause", "x", "y"))
    before = Side("old", {**STACK, "triton": "3.8.0"}, "quick", 0, 3, {})
    after = Side("new", STACK, "quick", 0, 3, {})
    return Comparison(
        before, after, tuple(Group(kind, "a cause", tuple(members)) for kind, members in groups.items()), 3, 0
    )


FAILING = [record(1, Status.FAIL), record(2)]


def patched(edit: str, text: str) -> str:
    """``text`` with the one hunk of ``edit`` applied; every line that stays or goes must be there as it says."""
    header, *body = edit.split("\n")[2:]
    start, count = (int(number) for number in re.fullmatch(r"@@ -(\d+),(\d+) \+\d+,\d+ @@", header).groups())
    lines = text.split("\n")
    assert lines[start - 1 : start - 1 + count] == [line[1:] for line in body if line[0] != "+"]
    return "\n".join([*lines[: start - 1], *(line[1:] for line in body if line[0] != "-"), *lines[start - 1 + count :]])


def test_a_regression_that_is_waived_stays_visible_and_fails_nothing():
    applied = apply(parsed(waiver(), "w.toml"), FAILING, TODAY, comparison((Kind.NEW_FAIL, 1)))
    assert applied.uncovered == applied.problems == applied.notes == ()
    (waived,) = applied.waived
    assert (waived.case, waived.kind, waived.waiver.reason) == (
        CASE.format(1),
        Kind.NEW_FAIL,
        "slow path until the fix",
    )
    assert "https://example.org/7" in str(waived.waiver)
    assert applied.excused == {CASE.format(1)}


def test_a_waiver_of_what_is_a_warning_in_this_run_is_noted_and_fails_nothing():
    compared = comparison((Kind.MORE_SPILLS, 1))
    (group,) = compared.groups
    small = replace(group, findings=(replace(group.findings[0], minor=True),))
    waivers = parsed(waiver(kind='"MORE_SPILLS"'), "w.toml")
    applied = apply(waivers, [record(1)], TODAY, replace(compared, groups=(small,)))
    assert applied.problems == applied.uncovered == applied.waived == ()
    assert applied.notes[0].endswith("what it accepts is a warning in this run")
    (problem,) = apply(waivers, [record(1)], TODAY, replace(compared, groups=())).problems
    assert "none of its 1 cases in this run has this regression" in problem.text


def test_only_the_findings_that_are_covered_are_taken_out():
    records = [record(1, Status.FAIL), record(2, Status.FAIL)]
    applied = apply(parsed(waiver(), "w.toml"), records, TODAY, comparison((Kind.NEW_FAIL, 1), (Kind.NEW_FAIL, 2)))
    assert [finding.case for group in applied.uncovered for finding in group.findings] == [CASE.format(2)]
    assert applied.excused == {CASE.format(1)}


UNCOVERED = {
    "stack": (waiver(stack='{ triton = "<3.9" }'), "is not about this stack"),
    "target": (waiver(targets='["gfx*"]'), "has no case here"),
    "other-cases": (waiver(cases='"test_other.py::*"'), "has no case here"),
}


@pytest.mark.parametrize("how", UNCOVERED)
def test_what_is_not_about_this_run_covers_nothing_and_is_noted(how):
    text, note = UNCOVERED[how]
    applied = apply(parsed(text, "w.toml"), FAILING, TODAY, comparison((Kind.NEW_FAIL, 1)))
    assert (len(applied.uncovered), applied.waived, applied.excused, applied.problems) == (1, (), frozenset(), ())
    assert note in applied.notes[0]


def test_an_expired_waiver_excuses_nothing_and_says_which_line_to_change():
    text = "# ours\n\n" + waiver(expires="2026-08-31")
    applied = apply(parsed(text, "w.toml"), FAILING, TODAY, comparison((Kind.NEW_FAIL, 1)))
    assert (len(applied.uncovered), applied.waived, applied.excused) == (1, (), frozenset())
    (problem,) = applied.problems
    assert str(problem).startswith("w.toml:3: waiver of NEW_FAIL (https://example.org/7, me): expired on 2026-08-31")
    assert "me renews line 9 or removes it" in problem.text
    after = patched(problem.edit, text)
    assert after == text.replace("2026-08-31", "<a later day that me stands for>")
    with pytest.raises(EntryError, match="not TOML"):
        parsed(after, "w.toml")


def test_a_waiver_holds_on_its_last_day():
    assert apply(parsed(waiver(expires="2026-09-01"), "w.toml"), FAILING, TODAY).problems == ()


def test_an_expired_waiver_that_covers_nothing_is_to_be_removed():
    text = waiver(cases='"test_other.py::x"', expires="2026-08-31") + "\n# the second\n" + waiver()
    (problem,) = apply(parsed(text, "w.toml"), FAILING, TODAY).problems
    assert "covers nothing in this run: remove these 7 lines" in problem.text
    assert patched(problem.edit, text) == "\n# the second\n" + waiver()


@pytest.mark.skipif(shutil.which("patch") is None, reason="patch is not installed")
def test_an_edit_is_a_diff_that_patch_takes(tmp_path):
    text = waiver() + "\n" + waiver(cases='"*-2-*"')
    (problem,) = apply(parsed(text, "w.toml"), FAILING, TODAY).problems
    (tmp_path / "w.toml").write_text(text)
    subprocess.run(["patch"], input=problem.edit + "\n", text=True, check=True, cwd=tmp_path)
    assert (tmp_path / "w.toml").read_text() == waiver() + "\n"


def test_a_waiver_of_what_passes_is_to_be_removed():
    text = waiver(issue='"https://example.org/1"', cases='"*-2-*"') + "\n" + waiver()
    (problem,) = apply(parsed(text, "w.toml"), FAILING, TODAY).problems
    assert "w.toml:1:" in str(problem)
    assert f"pass unexpectedly, such as {CASE.format(2)}: remove these 7 lines" in problem.text
    assert patched(problem.edit, text) == "\n" + waiver()


def test_a_pattern_that_is_too_wide_is_to_be_narrowed():
    text = waiver(cases='[\n  "test_scaling.py::*", # all\n]')
    records = [*FAILING, record("12", Status.FAIL)]
    (problem,) = apply(parsed(text, "w.toml"), records, TODAY).problems
    assert f"1 of its cases pass unexpectedly, such as {CASE.format(2)}: narrow cases" in problem.text
    after = patched(problem.edit, text)
    assert after == waiver(cases=f'"{CASE.format("1*")}"')
    assert apply(parsed(after, "w.toml"), records, TODAY).problems == ()


def test_ids_are_listed_where_no_pattern_keeps_the_passing_ones_out():
    text = waiver(cases='"test_scaling.py::*"')
    records = [record("a", Status.FAIL), record("b"), record("c", Status.FAIL)]
    (problem,) = apply(parsed(text, "w.toml"), records, TODAY).problems
    after = parsed(patched(problem.edit, text), "w.toml")
    assert after.entries[0].cases == (CASE.format("a"), CASE.format("c"))


def test_a_waiver_whose_cases_fail_otherwise_is_unmatched_and_the_crash_stays():
    records = [record(1, Status.CRASH)]
    applied = apply(parsed(waiver(), "w.toml"), records, TODAY, comparison((Kind.NEW_CRASH, 1)))
    assert (len(applied.uncovered), applied.waived) == (1, ())
    assert "none of its 1 cases in this run fails in this way: remove" in applied.problems[0].text
    named = parsed(waiver(kind='"NEW_CRASH"'), "w.toml")
    applied = apply(named, records, TODAY, comparison((Kind.NEW_CRASH, 1)))
    assert (applied.uncovered, applied.problems, applied.excused) == ((), (), {CASE.format(1)})


def failing(*checks: str) -> CaseRecord:
    verdicts = [Verdict(check, False, "12 bytes") for check in checks]
    return replace(record(1, Status.FAIL), verdicts=(Verdict("grid", True), *verdicts), diagnosis="it failed")


@pytest.mark.parametrize(
    ("checks", "covered"),
    [
        (("numerics/randn",), True),
        (("numerics/randn", "numerics/wide-A"), True),
        (("memory",), False),
        (("numerics/randn", "memory"), False),
        ((), False),
    ],
)
def test_a_waiver_of_one_failure_covers_no_other_of_the_same_case(checks, covered):
    waivers = parsed(waiver(seen='"numerics/"'), "w.toml")
    for compared in (None, comparison((Kind.NEW_FAIL, 1))):
        applied = apply(waivers, [failing(*checks)], TODAY, compared)
        assert applied.excused == ({CASE.format(1)} if covered else set())
        assert (len(applied.waived), len(applied.problems)) == ((1, 0) if covered else (0, 1))
        assert len(applied.uncovered) == (compared is not None and not covered)
    if not covered:
        assert "none of its 1 cases in this run fails in this way" in applied.problems[0].text


def test_a_lost_feature_beside_a_failure_has_a_waiver_of_its_own():
    new = comparison((Kind.NEW_FAIL, 1), (Kind.FEATURE_LOST, 1))
    records = [failing("numerics/randn", "codegen/requires/TMA_LOAD")]
    (left,) = apply(parsed(waiver(seen='"numerics/"'), "w.toml"), records, TODAY, new).uncovered
    assert left.kind is Kind.FEATURE_LOST


def test_what_a_waiver_is_to_have_seen_of_a_crash_or_a_spill():
    crashed = replace(record(1, Status.CRASH), diagnosis="illegal memory access")
    new = comparison((Kind.NEW_CRASH, 1))
    for seen, left in (("illegal memory", 0), ("segmentation", 1)):
        waivers = parsed(waiver(kind='"NEW_CRASH"', seen=f'"{seen}"'), "w.toml")
        assert len(apply(waivers, [crashed], TODAY, new).uncovered) == left
    for seen, left in (("a cause", 0), ("TMA", 1)):
        waivers = parsed(waiver(kind='"MORE_SPILLS"', seen=f'"{seen}"'), "w.toml")
        assert len(apply(waivers, [record(1)], TODAY, comparison((Kind.MORE_SPILLS, 1))).uncovered) == left


def test_a_case_that_was_not_run_says_nothing():
    records = [record(1, Status.NOT_RUN)]
    applied = apply(parsed(waiver(), "w.toml"), records, TODAY, complete=True)
    assert applied.problems == ()
    assert "was not judged in this run" in applied.notes[0]


def test_a_waiver_without_cases_is_a_problem_only_of_a_complete_run():
    waivers = parsed(waiver(cases='"test_scaling.py::test_scalse*"'), "w.toml")
    assert apply(waivers, FAILING, TODAY).problems == ()
    (problem,) = apply(waivers, FAILING, TODAY, complete=True).problems
    assert "it matches no case of the run or of the mustpass lists: remove these 7 lines" in problem.text


def test_lost_time_needs_its_name_and_excuses_no_failure():
    slower = comparison((Kind.SLOWER, 1))
    unnamed = apply(parsed(waiver(), "w.toml"), [record(1)], TODAY, slower)
    assert (len(unnamed.uncovered), len(unnamed.problems)) == (1, 1)
    named = parsed(waiver(kind='"SLOWER"'), "w.toml")
    assert apply(named, [record(1)], TODAY, slower).uncovered == ()
    assert apply(named, [record(1), record(2)], TODAY, slower).problems == ()
    both = apply(named, [record(1, Status.FAIL)], TODAY, slower)
    assert both.excused == frozenset()


def test_a_kind_that_only_a_comparison_shows_is_unmatched_only_by_a_comparison():
    waivers = parsed(waiver(kind='"SLOWER"'), "w.toml")
    assert "was not judged" in apply(waivers, [record(1)], TODAY).notes[0]
    (problem,) = apply(waivers, [record(1)], TODAY, comparison()).problems
    assert "none of its 1 cases in this run has this regression: remove" in problem.text


def test_a_lost_feature_excuses_the_failure_that_it_is():
    waivers = parsed(waiver(kind='"FEATURE_LOST"'), "w.toml")
    records = [record(1, Status.FAIL)]
    assert apply(waivers, records, TODAY, comparison((Kind.FEATURE_LOST, 1))).excused == {CASE.format(1)}
    both = comparison((Kind.FEATURE_LOST, 1), (Kind.NEW_FAIL, 1))
    assert apply(waivers, records, TODAY, both).excused == frozenset()


def test_a_lost_case_goes_by_the_stack_of_the_candidate():
    waivers = parsed(waiver(kind='"LOST_COVERAGE"'), "w.toml")
    applied = apply(waivers, [record(2)], TODAY, comparison((Kind.LOST_COVERAGE, 1)))
    assert (applied.uncovered, applied.problems) == ((), ())


def test_of_two_waivers_the_first_applies_and_both_count_as_matched():
    text = waiver(owner='"first"') + waiver(owner='"second"', cases='"*mm-fp16-1-*"')
    applied = apply(parsed(text, "w.toml"), FAILING, TODAY, comparison((Kind.NEW_FAIL, 1)), complete=True)
    assert [waived.waiver.owner for waived in applied.waived] == ["first"]
    assert applied.problems == applied.notes == ()


def test_a_suggested_waiver_covers_the_group_and_does_not_parse_unread():
    new = comparison((Kind.MORE_SPILLS, 1), (Kind.MORE_SPILLS, 12))
    (group,) = new.groups
    text = suggested(group, new, [CASE.format(2)])
    with pytest.raises(EntryError, match="not TOML"):
        parsed(text, "w.toml")
    for placeholder, value in (
        ("<why this is acceptable>", '"x"'),
        ("<https link>", '"https://example.org"'),
        ("<who looks after it>", '"me"'),
        ("<YYYY-MM-DD>", "2027-01-01"),
    ):
        with pytest.raises(EntryError):
            parsed(text, "w.toml")
        text = text.replace(placeholder, value)
    filled = parsed(text, "w.toml")
    assert filled.entries[0].stack == {"triton": "==3.9.0"}
    records = [record(1), record(2), record(12)]
    assert apply(filled, records, TODAY, new).uncovered == ()


def test_hostile_ids_are_quoted_so_that_a_suggestion_stays_one_table():
    case = 'test_a.py::test["]\n[[waiver]]\x7f\\'
    finding = Finding(Kind.NEW_FAIL, case, None, None, "c", "", "")
    side = Side("new", {}, None, None, 1, {})
    group = Group(Kind.NEW_FAIL, "c", (finding,))
    line = suggested(group, Comparison(side, side, (group,), 1, 0)).split("\n")[1]
    assert toml_entries.load(line, "f") == {"cases": case}


TRICKY = '''# ours [[waiver]]
[["waiver"]] # quoted
cases = "test_a.py::x"
stack.triton = ">=3"
reason = """
[[waiver]]
expires = 2020-01-01
"""
issue = "https://example.org/1"
owner = "me"
expires = 2020-01-02

# the next
  [[ waiver ]]
cases = ["test_b.py::x",
  # [[waiver]]
  "test_b.py::y"]
reason = \'\'\'
[[waiver]]\'\'\'
issue = "https://example.org/2"
owner = "me"
expires = 2020-01-01
[waiver.stack]
triton = ">=3"
# the end
'''


def test_tables_are_found_whatever_the_text_around_them():
    waivers = parsed(TRICKY, "w.toml")
    assert [waiver.line for waiver in waivers.entries] == [2, 14]
    records = [CaseRecord("test_a.py::x", "a", Status.FAIL, stack=STACK)]
    first, second = apply(waivers, records, TODAY).problems
    assert "renews line 11 or" in first.text
    assert patched(first.edit, TRICKY) == TRICKY.replace("2020-01-02", "<a later day that me stands for>")
    lines = TRICKY.split("\n")
    assert patched(second.edit, TRICKY) == "\n".join([*lines[:13], *lines[24:]])


def test_a_waiver_in_one_line_has_no_lines_to_edit():
    text = "waiver = [{ " + ", ".join(f"{key} = {value}" for key, value in WAIVER.items()) + " }]\n"
    with pytest.raises(EntryError, match=r"w\.toml: write each waiver as \[\[waiver\]\] on a line of its own"):
        parsed(text, "w.toml")


def test_many_waivers_are_found_in_linear_time():
    text = waiver() * 2000
    assert [span.start for span in spans(text, "f", "waiver")] == [7 * number for number in range(2000)]


BROKEN = {
    "not-toml": ("cases = ", "is not TOML"),
    "nested": ("waiver = " + "[" * 100_000, "is not TOML"),
    "unknown-top-key": ("[defaults]\n" + waiver(), "unknown key defaults"),
    "no-table": ("waiver = 3\n", "must be tables"),
    "table": ("[waiver]\ncases = 'x'\n", "must be tables"),
    "unknown-key": (
        waiver(until='"x"'),
        "1: unknown key `until`: the keys are cases, stack, reason, issue, owner, expires; targets, kind, seen may",
    ),
    "reserved-key": (waiver(file='"x"'), "unknown key file"),
    "missing-key": (waiver(reason=None, owner=None), "missing key `reason`: the keys are cases"),
    "only-wildcards": (waiver(cases='"*?"'), "more than wildcards"),
    "a-wildcard-among-others": (waiver(cases='["test_a.py::x", "*"]'), "more than wildcards"),
    "number": (waiver(cases="3"), "a pattern of case ids"),
    "empty-list": (waiver(cases="[]"), "a pattern of case ids"),
    "link": (waiver(issue='"http://example.org"'), "an https link is required"),
    "empty-reason": (waiver(reason='" "'), "text is required"),
    "date-as-text": (waiver(expires='"2027-06-30"'), "a date without quotes"),
    "kind": (waiver(kind='"SLOW"'), "one of NEW_CRASH, NEW_FAIL"),
    "kind-that-fails-nothing": (waiver(kind='"FASTER"'), "one of NEW_CRASH, NEW_FAIL"),
    "kind-of-another-type": (waiver(kind="[1]"), "one of NEW_CRASH"),
    "targets": (waiver(targets='"sm_90"'), "a list of patterns of target ids"),
    "empty-seen": (waiver(seen='""'), "text is required"),
    "stack": (waiver(stack='{ triton = "3.9" }'), "a version specifier"),
    "no-stack": (waiver(stack="{}"), "one version specifier or more"),
}


@pytest.mark.parametrize("fault", BROKEN)
def test_a_broken_file_is_an_error_that_says_what_is_wrong(tmp_path, fault):
    text, message = BROKEN[fault]
    file = tmp_path / "waivers.toml"
    file.write_text(text)
    with pytest.raises(EntryError) as error:
        read_waivers(file)
    assert str(file) in str(error.value)
    assert message in str(error.value)


def test_a_huge_file_is_refused_before_it_is_read(tmp_path):
    file = tmp_path / "waivers.toml"
    file.write_text(waiver() + "#" * toml_entries.FILE_LIMIT)
    with pytest.raises(EntryError, match="a file of waivers has at most 1000000"):
        read_waivers(file)


@pytest.mark.parametrize("content", [None, b"\xff"])
def test_a_file_that_cannot_be_read_is_named(tmp_path, content):
    if content:
        (tmp_path / "w.toml").write_bytes(content)
    with pytest.raises(EntryError, match=r"w\.toml cannot be read .*: give a file of waivers"):
        read_waivers(tmp_path / "w.toml")


def test_a_pattern_of_many_stars_takes_no_time():
    code = "from conformance.user_files.case_list import matches; assert not matches('*a' * 60 + 'b', 'a' * 5000)"
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20)


@pytest.mark.parametrize(
    ("pattern", "text", "held"),
    [
        ("*a*b*", "xaxbx", True),
        ("*a*b*", "xbxax", False),
        ("a*a", "a", False),
        ("a*a", "aa", True),
        ("*b", "abcb", True),
        ("**", "", True),
        ("a*?b", "ab", False),
        ("*ab*b", "aab", False),
        ("*ab*b", "xabxb", True),
        ("test_a.py::test_x[*store=True*]", "test_a.py::test_x[mm-store=True-4x4]", True),
        ("*[a-b]", "test_a.py::test_x[a-b]", True),
        ("*[ab]", "test_a.py::test_xa", False),
        ("*[?]", "x[1]", True),
        ("*[?]", "x[12]", False),
        ("test_x", "test_x[1]", False),
        ("TEST_X", "test_x", False),
        ("a.b*", "a.b\nc", True),
        ("a.b", "axb", False),
    ],
)
def test_stars_match_any_text_and_brackets_themselves(pattern, text, held):
    assert matches(pattern, text) is held
    among = Ids(["", "a", "ab", "b", "xaxb", text])
    assert (text in among.matching(pattern)) is held


def test_narrow_patterns_keep_to_one_test_function():
    ids = ["test_a.py::test_x[1-b]", "test_a.py::test_x[2-b]", "test_b.py::test_y"]
    assert narrowest(ids, ["test_c.py::z"]) == ["test_a.py::test_x[*-b]", "test_b.py::test_y"]
    assert narrowest(["test_a.py::x[a]", "test_a.py::x[aa]"], []) == ["test_a.py::x[a*]"]


def test_no_waivers_change_nothing():
    new = comparison((Kind.NEW_FAIL, 1))
    assert apply(Waivers(), FAILING, TODAY, new).uncovered == new.regressions
    refused = CaseRecord("x", "s", Status.NOT_APPLICABLE, Reason(ReasonCode.DTYPE, "a", "b"))
    assert apply(Waivers(), [refused], TODAY).excused == frozenset()
