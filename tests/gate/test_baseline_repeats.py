"""Several runs of the baseline: a finding says in how many of them it shows, and stays what it is."""

from __future__ import annotations

import pytest
from made_records import changed, failing, record, refused, write_run

from conformance.commands.shared.policy_options import compared
from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.verdict.baseline_repeats import with_baseline_runs
from conformance.reporting.comparison import render_terminal

GOOD = [record(), record("addmm")]
FAILS = failing("numerics/transparent", "all are wrong")
WRONG = changed(GOOD, FAILS, kernel="mm")
BOTH_WRONG = changed(GOOD, FAILS)


REFUSED = changed(GOOD, refused)


@pytest.fixture
def counted(tmp_path):
    """The comparison of a candidate with several runs of the baseline."""

    def compare(*baselines, candidate):
        folders = [write_run(tmp_path / f"baseline-{number}", run) for number, run in enumerate(baselines)]
        after = write_run(tmp_path / "candidate", candidate)
        sides = [*map(read_compared_run, folders)]
        before = compared(folders[0], after, ("old", "new"))
        result = with_baseline_runs(before, sides, read_compared_run(after), {})
        assert (result.safe, len(result.groups)) == (before.safe, len(before.groups))
        assert all(was.kind is now.kind for was, now in zip(before.groups, result.groups, strict=True))
        return result

    return compare


def details(comparison) -> list[tuple[str, tuple[int, int] | None]]:
    return [(one.kernel, one.baseline_runs) for group in comparison.groups for one in group.findings]


def test_a_failure_that_the_baseline_shows_now_and_then_is_its_instability(counted):
    result = counted(GOOD, WRONG, GOOD, GOOD, GOOD, candidate=BOTH_WRONG)
    assert details(result) == [("addmm", (0, 5)), ("mm", (1, 5))]
    assert not result.safe
    assert result.history == (
        "the baseline was run 5 times: 1 of 2 cases with a regression show it in some of its runs, too: "
        "there the baseline is unstable",
    )
    (group,) = result.groups
    assert group.notes[0] == (
        "the baseline is unstable here: in 1 of its 2 cases it shows the same in some of its runs (1 of 5 at most)"
    )
    text = render_terminal(result)
    assert "seen in 1 of 5 baseline runs" in text
    assert "seen in 0 of 5 baseline runs" in text
    assert result.history[0] in text


def test_a_failure_of_the_candidate_alone_says_so(counted):
    result = counted(GOOD, GOOD, GOOD, candidate=WRONG)
    assert details(result) == [("mm", (0, 3))]
    assert result.groups[0].notes[0] == "seen in none of 3 baseline runs"
    assert result.history == ("the baseline was run 3 times: none of its runs shows a regression",)


def test_a_case_that_no_run_of_the_baseline_judged_is_not_called_stable(counted):
    result = counted(REFUSED, REFUSED, candidate=WRONG)
    (one,) = (one for group in result.groups for one in group.findings if one.kernel == "mm" and one.newly_fails)
    assert one.baseline_runs is None
    assert result.history == (
        "the baseline was run 2 times: 1 of 1 case with a regression is not judged by any of its runs",
    )


def test_only_cases_that_a_run_judged_are_called_stable(counted):
    before = changed(GOOD, refused, kernel="addmm")
    assert counted(before, before, candidate=BOTH_WRONG).history == (
        "the baseline was run 2 times: 1 of 2 cases with a regression is not judged by any of its runs; "
        "none of its runs shows a regression of the other cases",
    )


def test_without_regressions_only_the_runs_are_counted(counted):
    assert counted(GOOD, GOOD, candidate=GOOD).history == ("the baseline was run 2 times",)


def test_a_run_that_did_not_judge_the_case_does_not_count(counted):
    result = counted(GOOD, REFUSED, GOOD, candidate=WRONG)
    assert details(result) == [("mm", (0, 2))]
    assert "seen in 0 of 2 baseline runs (1 more did not judge it)" in result.groups[0].findings[0].detail


def test_a_failure_of_both_sides_says_how_often_the_baseline_has_it(counted):
    result = counted(WRONG, GOOD, candidate=WRONG)
    assert details(result) == [("mm", (1, 2))]
    assert "the baseline is unstable here" in result.groups[0].notes[0]
    always = counted(WRONG, WRONG, candidate=WRONG)
    assert details(always) == [("mm", (2, 2))]
    assert not any("unstable" in note for note in always.groups[0].notes)


def test_runs_that_broke_off_do_not_count(tmp_path):
    folders = [write_run(tmp_path / name, GOOD) for name in ("a", "b")]
    after = write_run(tmp_path / "c", WRONG)
    sides = [*map(read_compared_run, folders)]
    result = with_baseline_runs(compared(folders[0], after), sides, read_compared_run(after), {}, broken=3)
    assert result.history == (
        "the baseline was run 5 times, of which 2 are whole: none of its runs shows a regression",
    )
    assert details(result) == [("mm", (0, 2))]


def test_a_case_that_the_candidate_lost_is_counted(counted):
    assert details(counted(GOOD, GOOD, candidate=GOOD[:1])) == [("addmm", (0, 2))]
    assert details(counted(GOOD, GOOD[:1], GOOD, candidate=GOOD[:1])) == [("addmm", (0, 2))]
