"""The gate makes of two finished runs reports with ages, earlier answers and further runs, and issues."""

from __future__ import annotations

import argparse
import json

import pytest
from made_records import STACK, changed, failing, record, write_run
from packaging.version import Version

from conformance.commands import compare, gate
from conformance.commands.shared import finding_ages, gate_runs
from conformance.gate.stacks.environments import Environment
from conformance.gate.stacks.stack_file import parse
from conformance.gate.stacks.stack_runs import StackRun
from conformance.gate.verdict.known_findings import read_earlier_answer
from tests.command_runs import call

GOOD = [record(), record("addmm")]
WRONG = changed(GOOD, failing("numerics/transparent", "all are wrong"), kernel="mm")


def folder_of(path, version, records):
    return write_run(path, records, stack={**STACK, "triton": version, "harness": "h"})


@pytest.fixture
def report(tmp_path, monkeypatch):
    """The status, the JSON and the printed lines of a pair; the older releases are as good as the baseline."""
    before = folder_of(tmp_path / "a", "3.7.1", GOOD)
    after = folder_of(tmp_path / "b", "3.8.0", WRONG)
    older = folder_of(tmp_path / "older", "3.7.0", GOOD)
    monkeypatch.setattr(gate_runs, "reproduced", lambda *arguments: iter(["NEW_FAIL x in mm: no script"]))
    blamed = "NEW_FAIL numerics/transparent: all are wrong: the passes on TTIR, both directions agree"
    monkeypatch.setattr(gate_runs, "blamed_findings", lambda *arguments: iter([(blamed, True)]))
    monkeypatch.setattr(finding_ages.OlderRuns, "run", lambda *arguments: older)
    monkeypatch.setattr(gate_runs, "index_versions", lambda name: [Version("3.7.0"), Version("3.7.1")])

    def make(*words, repeats=(), earlier_answers=()):
        parser = argparse.ArgumentParser()
        gate.configure(parser)
        arguments = parser.parse_args(["--candidate", "triton==3.8.0", "--cache", str(tmp_path), *words])
        baseline = StackRun(Environment(parse("current"), before, {}), before, (), repeats)
        candidate = StackRun(Environment(parse("triton==3.8.0"), after, {}), after)
        output = tmp_path / "output"
        pair = (baseline, candidate, output, gate_runs.Stages(1))
        status, comparison = gate_runs.report_pair(arguments, *pair, earlier_answers, arguments.issues)
        data = json.loads((output / "comparison.json").read_text())
        assert (status, data["safe"], comparison.safe) == (1, False, False)
        (group,) = data["groups"]
        return data, group

    return make


def test_a_group_says_how_old_it_is(report, capsys):
    data, group = report()
    assert group["age"]["text"] == "new in 3.8.0"
    assert group["age"]["releases"] == {GOOD[0]["case"]: {"3.7.1": "does not show it", "3.7.0": "does not show it"}}
    assert "age: new in 3.8.0" in group["notes"]
    assert "NEW_FAIL numerics/transparent: all are wrong: new in 3.8.0" in capsys.readouterr().out
    assert data["candidate"]["started"] == "2026-01-01T00:00:00+00:00"


def test_without_ages_no_older_release_is_asked(report, monkeypatch):
    monkeypatch.setattr(finding_ages.OlderRuns, "run", lambda *arguments: pytest.fail("it was asked"))
    _, group = report("--no-age")
    assert (group["age"], group["earlier"]) == (None, None)


def test_an_earlier_answer_changes_the_words_and_no_verdict(report, tmp_path):
    report("--no-age")
    file = tmp_path / "last.json"
    (tmp_path / "output" / "comparison.json").rename(file)
    data, group = report("--no-age", earlier_answers=[read_earlier_answer(file)])
    assert group["earlier"] == f"as in the answer of 2026-01-01 ({file})"
    assert data["history"] == [
        f"since the answer of 2026-01-01 ({file}): 0 are new of 1 cause of regressions, 1 is as there"
    ]


def test_further_runs_of_the_baseline_are_counted(report, tmp_path):
    repeats = (folder_of(tmp_path / "c", "3.7.1", WRONG), folder_of(tmp_path / "d", "3.7.1", GOOD))
    data, group = report("--no-age", repeats=repeats)
    assert group["findings"][0]["baseline_runs"] == [1, 3]
    assert "seen in 1 of 3 baseline runs" in (tmp_path / "output" / "comparison.md").read_text()
    assert "there the baseline is unstable" in data["history"][0]


def test_a_further_run_that_is_not_whole_does_not_count(report, tmp_path):
    cut = write_run(tmp_path / "c", GOOD[:1], stack=STACK, wall_s=None)
    data, group = report("--no-age", repeats=(cut, folder_of(tmp_path / "d", "3.7.1", GOOD)))
    assert group["findings"][0]["baseline_runs"] == [0, 2]
    assert data["history"] == [
        "the baseline was run 3 times, of which 2 are whole: none of its runs shows a regression"
    ]


def test_each_cause_leaves_an_issue(report, tmp_path):
    _, group = report("--issues", str(tmp_path / "issues"))
    text = (tmp_path / "issues" / f"{group['signature']}.md").read_text()
    assert "New in 3.8.0." in text
    assert "the passes on TTIR, both directions agree" in text


def test_compare_takes_an_earlier_answer_and_leaves_issues(report, tmp_path, capsys):
    report("--no-age")
    answer, issues = tmp_path / "answer.json", tmp_path / "of-compare"
    sides = (tmp_path / "a", tmp_path / "b")
    assert call(compare, *sides, "--json", answer) == 1
    capsys.readouterr()
    assert call(compare, *sides, "--known", answer, "--issues", issues) == 1
    assert f"as in the answer of 2026-01-01 ({answer})" in capsys.readouterr().out
    assert len(list(issues.iterdir())) == 1
