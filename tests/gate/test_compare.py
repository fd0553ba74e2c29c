"""Comparisons: the finding for each pair of statuses, the causes of failures, and the command."""

from __future__ import annotations

import dataclasses
import io
import json
import sys
from functools import partial
from pathlib import Path

import pytest
from made_records import CONFIGS, STACK, Record, changed, compared, fail, record, run_of_all, write_run

from conformance.commands import CommandError
from conformance.commands import compare as command
from conformance.gate.runs.failure_causes import CAUSE_LIMIT, normalised
from conformance.gate.runs.run_reader import ComparedRun, read_compared_run
from conformance.gate.verdict.compare import compare
from conformance.reporting import github
from conformance.reporting.comparison import render_markdown, render_terminal
from conformance.reporting.first_line import answer
from conformance.user_files.findings import Kind
from tests.command_runs import call

REASONS = {"not-applicable": "capability", "not-run": "no-device", "expected-fail": "known-defect"}


def of_status(status: str) -> list[Record]:
    """One case of this status, or no case for "none"."""
    if status == "none":
        return []
    one = record()
    one["status"] = status
    if status in REASONS:
        one["reason"] = {"code": REASONS[status], "subject": "it", "detail": "said so"}
    if status in ("not-run", "not-applicable", "compile-error"):
        one["executor"] = None
    if status in ("fail", "expected-fail"):
        fail(one, "numerics/randn", "FAIL 3/416 wrong", status)
    if status not in ("pass", "fail", "expected-fail", "not-run", "unexpected-pass"):
        one.update(verdicts=[], observed={}, diagnosis=f"{status}: so it is")
    return [one]


#: A kind of finding (none: an empty text) and the pairs of statuses, before and after, that make it.
OUTCOMES = {
    "NEW_CRASH": "pass>crash pass>timeout pass>oom fail>crash expected-fail>crash none>crash",
    "NEW_FAIL": (
        "pass>fail pass>compile-error not-run>fail not-run>compile-error compile-error>fail "
        "fail>compile-error crash>fail oom>fail flaky>fail expected-fail>fail unexpected-pass>fail "
        "not-applicable>fail none>fail"
    ),
    "NONDETERMINISTIC": "pass>flaky fail>flaky compile-error>flaky expected-fail>flaky",
    "LOST_COVERAGE": (
        "pass>not-applicable pass>not-run pass>none not-run>not-applicable fail>not-run fail>not-applicable "
        "fail>none expected-fail>none"
    ),
    "NEW_KNOWN_DEFECT": (
        "pass>expected-fail none>expected-fail not-run>expected-fail not-applicable>expected-fail "
        "unexpected-pass>expected-fail crash>expected-fail timeout>expected-fail oom>expected-fail "
        "compile-error>expected-fail flaky>expected-fail"
    ),
    "STILL_FAIL": (
        "fail>fail compile-error>compile-error crash>compile-error crash>timeout fail>expected-fail "
        "flaky>flaky crash>flaky"
    ),
    "FIXED": "compile-error>not-run fail>pass flaky>pass expected-fail>pass expected-fail>unexpected-pass",
    "NEW_COVERAGE": "not-run>pass not-applicable>pass not-applicable>not-run none>pass",
    "": (
        "pass>unexpected-pass not-run>not-run expected-fail>expected-fail not-applicable>not-applicable "
        "not-applicable>none none>not-applicable"
    ),
}


@pytest.mark.parametrize(("pair", "expected"), [(pair, kind) for kind in OUTCOMES for pair in OUTCOMES[kind].split()])
def test_outcome(tmp_path, pair, expected):
    before, after = pair.split(">")
    other = record("addmm")
    comparison = compared(tmp_path, [*of_status(before), other], [*of_status(after), other])
    kinds = [finding.kind.value for group in comparison.groups for finding in group.findings]
    assert kinds == ([expected] if expected else [])
    assert comparison.unchanged == comparison.compared - (bool(expected) and "none" not in (before, after))


WRONG = ("numerics/randn", "FAIL 3/416 wrong")
TMA = ("codegen/requires/TMA_LOAD", "no match")


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ([WRONG], [WRONG, ("numerics/other", "FAIL 9/416 wrong")], {"STILL_FAIL": "numerics/randn: FAIL wrong"}),
        ([WRONG], [WRONG, ("numerics/special", "FAIL 9/416 wrong")], {"NEW_FAIL": "numerics/special: FAIL wrong"}),
        ([WRONG], [("memory", "12 bytes written")], {"NEW_FAIL": "memory: N bytes written"}),
        ([WRONG], [WRONG, ("memory", "12 bytes written")], {"NEW_FAIL": "memory: N bytes written"}),
        ([WRONG], [WRONG, ("grid", "3, not 4")], {"NEW_FAIL": "grid: N, not N"}),
        ([WRONG], [WRONG, ("repeat/randn", "differ")], {"NONDETERMINISTIC": "repeat/randn: differ"}),
        ([WRONG], [WRONG, TMA], {"STILL_FAIL": "numerics/randn: FAIL wrong", "FEATURE_LOST": "TMA_LOAD lost on sm_90"}),
        ([TMA], [TMA, ("codegen/forbids/CALL", "seen")], {"NEW_FAIL": "codegen/forbids/CALL: seen"}),
        ([TMA, WRONG], [WRONG], {"STILL_FAIL": "numerics/randn: FAIL wrong"}),
    ],
)
def test_a_failure_that_got_worse_is_new(tmp_path, before, after, expected):
    sides = record(), record()
    for side, failing in zip(sides, (before, after), strict=True):
        for check, text in failing:
            fail(side, check, text)
    comparison = compared(tmp_path, [sides[0]], [sides[1]])
    assert {group.kind.value: group.cause for group in comparison.groups} == expected


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ([], {}),
        ([("diagnosis", "CAUSE known")], {}),
        ([("numerics/special", "FAIL 9/416 wrong")], {"NEW_KNOWN_DEFECT": "wrong numbers: it"}),
        ([("grid", "3, not 4")], {"NEW_KNOWN_DEFECT": "wrong numbers: it"}),
        ([("memory", "12 bytes written")], {"NEW_KNOWN_DEFECT": "wrong numbers: it"}),
        ([("repeat/randn", "differ")], {"NEW_KNOWN_DEFECT": "wrong numbers: it"}),
        ([("codegen/requires/MMA", "no match")], {"FEATURE_LOST": "MMA lost on sm_90"}),
    ],
)
def test_an_accepted_failure_hides_no_other(tmp_path, more, expected):
    """Wrong numbers and a lost TMA_STORE are accepted on both sides; any other failure is new."""
    sides = []
    for failing in ((), more):
        (one,) = of_status("expected-fail")
        for check, text in [("codegen/requires/TMA_STORE", "no match"), *failing]:
            fail(one, check, text)
        sides.append([{**one, "status": "expected-fail"}])
    comparison = compared(tmp_path, *sides)
    assert {group.kind.value: group.cause for group in comparison.groups} == expected


def test_an_accepted_feature_hides_no_other(tmp_path):
    """TMA_STORE is accepted as lost; the code lost MMA too."""
    before, after = record(), record()
    fail(after, "codegen/requires/TMA_STORE", "no match")
    (waived,) = of_status("expected-fail")
    after |= {"status": "expected-fail", "reason": waived["reason"]}
    for one, features in ((before, ["MMA", "TMA_STORE"]), (after, [])):
        one["observed"] = {**one["observed"], "code": {**one["observed"]["code"], "features": features, "sha256": None}}
    comparison = compared(tmp_path, [before], [after])
    kinds = {(group.kind.value, group.cause) for group in comparison.groups}
    assert ("FEATURE_LOST", "MMA lost on sm_90") in kinds
    assert not [cause for _, cause in kinds if "TMA_STORE" in cause]


@pytest.mark.parametrize(
    ("check", "kind", "detail"),
    [
        ("memory", Kind.NEW_FAIL, "failed before: numerics/randn"),
        ("numerics/other", Kind.STILL_FAIL, "another cause before: numerics/randn"),
    ],
)
def test_what_failed_in_the_baseline_is_named(tmp_path, check, kind, detail):
    before, after = record(), record()
    fail(before, *WRONG)
    fail(after, check, "FAIL 3/416 wrong")
    (group,) = compared(tmp_path, [before], [after]).groups
    assert group.kind is kind
    assert detail in group.findings[0].detail


@pytest.mark.parametrize(
    ("check", "expected"),
    [("spills", "NONDETERMINISTIC"), ("repeat/randn", "STILL_FAIL"), ("memory", "NONDETERMINISTIC")],
)
def test_a_failed_case_that_is_flaky_now_is_new_unless_its_runs_differed(tmp_path, check, expected):
    before = record()
    fail(before, check, "so it is")
    comparison = compared(tmp_path, [before], of_status("flaky"))
    assert [group.kind.value for group in comparison.groups] == [expected]
    assert comparison.safe == (expected == "STILL_FAIL")


FENCE = "codegen/order/fence"


@pytest.mark.parametrize(
    ("passes", "expected"),
    [(True, {"FIXED": FENCE + ": no fence"}), (False, {"LOST_COVERAGE": f"no longer checked: {FENCE}"})],
)
def test_an_order_is_mended_only_where_it_is_still_judged(tmp_path, passes, expected):
    before, after = record(), record()
    fail(before, FENCE, "no fence")
    if passes:
        after["verdicts"].append({"check": FENCE, "passed": True, "text": "", "details": {}})
    comparison = compared(tmp_path, [before], [after])
    assert {group.kind.value: group.cause for group in comparison.groups} == expected
    assert comparison.safe == passes


def test_another_fault_of_the_code_is_mended_where_its_check_is_gone(tmp_path):
    before = record()
    fail(before, "codegen/repeated-k", "some k twice")
    (group,) = compared(tmp_path, [before], [record()]).groups
    assert group.kind is Kind.FIXED


def torn(folder: Path) -> Path:
    """``folder`` with its last line cut short."""
    file = folder / "records.jsonl"
    file.write_text(file.read_text()[:-20])
    return folder


def twice(folder: Path) -> Path:
    """``folder`` with a record that is there twice."""
    file = folder / "records.jsonl"
    file.write_text(file.read_text() + file.read_text().splitlines(keepends=True)[0])
    return folder


@pytest.mark.parametrize(
    ("run", "damage", "message"),
    [
        ({}, torn, "its records cannot be relied on: 1 problem: records.jsonl:48: torn last line"),
        ({}, twice, "is recorded more than once (pass, pass)"),
        ({"schema": 9}, None, "its records cannot be relied on: 1 problem: run.json: schema 9"),
        ({"wall_s": None}, None, "the baseline is unfinished (cut-off: the run did not end)"),
        ({"selected": 50}, None, "(records: 2 of 50 selected cases were not recorded)"),
        ({"problems": ["3 selected but not recorded: x"]}, None, "(records: 3 selected but not recorded: x)"),
    ],
)
def test_a_baseline_that_is_not_whole_is_no_answer(tmp_path, capsys, run, damage, message):
    baseline = write_run(tmp_path / "a", run_of_all(), **run)
    candidate = write_run(tmp_path / "b", run_of_all())
    assert run_command((damage or (lambda folder: folder))(baseline), candidate) == 2
    text = capsys.readouterr().out
    assert text.startswith("NO ANSWER: the baseline is ")
    assert message in text
    assert run_command(candidate, candidate) == 0


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("illegal access at 0x7f00deadbeef", "illegal access at HEX"),
        ("/home/somebody/.triton/cache/4ZUN/gemm.ptx:12:4: error", "PATH: error"),
        ("128x256x64-s3-w8 and 64x64x32 fail", "CONFIG and CONFIG fail"),
        ("41664/41664 wrong, first [0, 0] got 7 want 1", "wrong"),
        ("FAIL exact/wide-A seed 3: 1/2 wrong", "FAIL exact/wide-A wrong"),
        ("tile (1, 2) of sm_90", "tile [..] of sm_90"),
        ("takes -1.5e-3 s", "takes N s"),
        ("triton_poi_fused_add_0 on sm_90", "triton_poi_fused_add_N on sm_90"),
        (r"no match of \b\w*desc\w*\.load", r"no match of \b\w*desc\w*\.load"),
        ("codegen/requires/TMA_LOAD", "codegen/requires/TMA_LOAD"),
        ("", ""),
    ],
)
def test_normalised(text, cause):
    assert normalised(text) == cause


def test_causes_are_short_whatever_is_said():
    assert len(normalised("word " * 100_000)) <= CAUSE_LIMIT
    assert len(normalised("/a" * 100_000 + "9" * 100_000)) <= CAUSE_LIMIT


def test_proven_cause_of_a_diagnosis_is_taken(tmp_path):
    one = record()
    fail(one, "numerics/transparent", "FAIL exact/transparent: 3/416 wrong")
    one["diagnosis"] = "FAIL exact/transparent | 3/416 wrong | CAUSE k-block 3 of tile (0, 1) is missing\nmore"
    (group,) = compared(tmp_path, [record()], [one]).groups
    assert group.cause == "numerics/transparent: k-block N of tile [..] is missing"


HOSTILE = "`x` | <img src=x> @octocat [a](http://b) ::error::gone\n::warning::too \x1b[2J $x$ ![](y) #1"


@pytest.fixture
def hostile(tmp_path) -> tuple[ComparedRun, ComparedRun]:
    """Two sides whose every text is out to harm."""
    before, after = record(), record()
    for one in (before, after):
        one.update(case=HOSTILE, kernel=HOSTILE, target=HOSTILE)
    fail(after, HOSTILE, HOSTILE)
    after["diagnosis"] = HOSTILE
    stack = {HOSTILE: HOSTILE, "triton": "3.9.0"}
    folders = write_run(tmp_path / "a", [before]), write_run(tmp_path / "b", [after], stack=stack, problems=[HOSTILE])
    return read_compared_run(folders[0]), read_compared_run(folders[1])


def test_markdown_escapes_untrusted_text(hostile):
    text = render_markdown(compare(*hostile))
    for sign in ("`", "<img", "@octocat", "](", "::error", "::warning", "\x1b", "$x$", " #1", "http:"):
        assert sign not in text, sign
    rows = [line for line in text.splitlines() if line.startswith("| ")]
    assert all(line.count("|") == 4 for line in rows)


def test_terminal_output_escapes_untrusted_text(hostile):
    text = render_terminal(compare(*hostile))
    assert "\x1b" not in text


def test_terminal_output_holds_no_workflow_command(tmp_path):
    before, after = record(), record()
    for one in (before, after):
        one.update(case="::error::gone ##[error]", kernel="::error::gone")
    fail(after, "::stop-commands::x", "\n::error::gone")
    stack = {"::error::gone": "::error::gone"}
    comparison = compared(tmp_path, [before], [after], stack=stack)
    objection = "mustpass: 1 missing\n    ::stop-commands::owed\n    ##[error]owed"
    text = render_terminal(dataclasses.replace(comparison, objections=(objection,)))
    assert "gone" in text
    assert text.count("owed") == 2
    assert not any(line.lstrip().startswith("::") for line in text.splitlines())
    assert "##[" not in text


def test_annotations_are_one_line_each_and_escaped(hostile):
    lines = github.annotation_lines(compare(*hostile))
    assert lines
    for line in lines:
        assert "\n" not in line
        assert "\x1b" not in line
        assert line.startswith(("::error title=", "::warning title="))
        title = line.removeprefix("::error title=").removeprefix("::warning title=").partition("::")[0]
        assert ":" not in title
        assert "," not in title


def many_groups(tmp_path, count: int) -> tuple[ComparedRun, ComparedRun]:
    words = ["".join(chr(ord("a") + int(digit)) for digit in str(number)) for number in range(count)]
    before = [record(f"kernel_{word}") for word in words]
    after = [record(f"kernel_{word}") for word in words]
    for word, one in zip(words, after, strict=True):
        fail(one, "numerics/randn", f"wrong in the way of {word} " + "and so on " * 8)
    return read_compared_run(write_run(tmp_path / "a", before)), read_compared_run(write_run(tmp_path / "b", after))


def test_markdown_fits_a_comment_and_counts_what_is_left_out(tmp_path):
    comparison = compare(*many_groups(tmp_path, 300))
    assert len(comparison.groups) == 300
    text = render_markdown(comparison)
    assert len(text) <= 65_536
    shown = text.count("<details")
    assert f"{300 - shown} more groups left out" in text
    assert text.count("</details>") == shown > 20


def test_text_says_of_which_kinds_the_groups_are_that_it_leaves_out(tmp_path):
    comparison = compare(*many_groups(tmp_path, 45))
    assert "... and 5 more groups of regressions (NEW_FAIL 5): --json has all of them" in render_terminal(comparison)
    assert "more group" not in render_terminal(compare(*many_groups(tmp_path, 40)))


def test_ten_annotations_of_a_level_and_the_last_counts_the_rest(tmp_path):
    lines = github.annotation_lines(compare(*many_groups(tmp_path, 15)))
    assert len(lines) == 10
    assert "6 more groups" in lines[-1]


run_command = partial(call, command)


@pytest.fixture
def runs(tmp_path, monkeypatch):
    """Two runs of which the second lost a kernel's TMA on another Triton; not in GitHub's Actions."""
    monkeypatch.delenv("GITHUB_ACTIONS", raising=False)

    def drop(one: Record) -> None:
        one["observed"]["code"]["features"].remove("TMA_LOAD")

    base = run_of_all()
    worse = changed(base, drop, kernel="mm", config=CONFIGS[0])
    return (
        write_run(tmp_path / "before", base),
        write_run(tmp_path / "after", worse, stack={**STACK, "triton": "3.9.0"}),
    )


def test_command_says_no(runs, capsys):
    assert run_command(*runs) == 1
    text = capsys.readouterr().out
    assert text.startswith("NOT SAFE: 4 regressions in 2 groups (4 FEATURE_LOST)\n")
    assert "triton" in text
    assert "3.8.0" in text
    assert "python" not in text  # the same on both sides


def test_command_says_yes(runs, capsys):
    assert run_command(runs[0], runs[0]) == 0
    assert capsys.readouterr().out.startswith(
        "SAFE: no regression in 48 of 48 cases (48 run on a device), 48 unchanged\n"
    )


def test_command_writes_json_with_everything(runs, tmp_path, capsys):
    assert run_command(*runs, "--json", "-", "--markdown", tmp_path / "comment.md") == 1
    data = json.loads(capsys.readouterr().out)
    assert (data["schema"], data["safe"], data["compared"]) == (2, False, 48)
    assert data["groups"][0]["severity"] == "regression"
    assert len(data["groups"][0]["findings"]) == 2
    assert data["thresholds"]["time"] == 0.05
    assert data["candidate"]["stack"]["triton"] == "3.9.0"
    assert (tmp_path / "comment.md").read_text().startswith("## NOT SAFE")


@pytest.mark.parametrize(
    "arguments", [("none",), ("before", "--json", "-", "--markdown", "-"), ("before", "--json", "no/such/folder/x")]
)
def test_command_that_cannot_be_carried_out(runs, monkeypatch, arguments):
    monkeypatch.chdir(runs[0].parent)
    with pytest.raises(CommandError):
        run_command("before", *arguments)


def test_answer_stands_when_the_output_is_closed(runs, monkeypatch):
    class Closed(io.StringIO):
        def write(self, text: str) -> int:
            raise BrokenPipeError

    monkeypatch.setattr(sys, "stdout", Closed())
    assert run_command(*runs) == 1
    monkeypatch.setattr(sys, "stdout", Closed())
    assert run_command(runs[0], runs[0]) == 0


def test_empty_run_cannot_be_compared(runs, tmp_path):
    with pytest.raises(CommandError, match="holds no case"):
        run_command(write_run(tmp_path / "empty", []), runs[1])


def test_candidate_of_damaged_lines_only_is_no_answer(runs, tmp_path, capsys):
    damaged = write_run(tmp_path / "damaged", [])
    (damaged / "records.jsonl").write_text("{}\n")
    assert run_command(runs[0], damaged) == 2
    assert capsys.readouterr().out.startswith("NO ANSWER: the candidate is broken by its infrastructure (records: ")


def test_two_runs_without_a_case_in_common_are_not_safe_but_no_question(runs, tmp_path):
    damaged = write_run(tmp_path / "damaged", [])
    (damaged / "records.jsonl").write_text("{}\n")
    assert run_command(damaged, runs[1]) == 2
    lone = {**record(), "case": "another"}
    with pytest.raises(CommandError, match="no usable case is in both runs"):
        run_command(write_run(tmp_path / "a", of_status("not-applicable")), write_run(tmp_path / "b", [lone]))


def test_in_actions_the_job_gets_annotations_and_a_summary(runs, tmp_path, capsys, monkeypatch):
    summary = tmp_path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    assert run_command(*runs) == 1
    assert "::error title=FEATURE_LOST%3A TMA_LOAD lost on sm_100::" in capsys.readouterr().out
    assert summary.read_text().startswith("before\n## NOT SAFE")


def test_full_summary_is_left_alone(runs, tmp_path, monkeypatch):
    summary = tmp_path / "summary.md"
    summary.write_text("x" * (github.SUMMARY_LIMIT - 10))
    comparison = compare(*(read_compared_run(folder) for folder in runs))
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    github.append_summary(comparison)
    assert summary.stat().st_size <= github.SUMMARY_LIMIT


def test_answer_counts_warnings(tmp_path):
    def more(one: Record) -> None:
        one["observed"]["resources"]["registers"] = 255

    base = run_of_all()
    comparison = compared(tmp_path, base, changed(base, more, kernel="mm"))
    assert (
        answer(comparison)
        == "SAFE: no regression in 48 of 48 cases (48 run on a device), 32 unchanged; 2 warnings to read"
    )
