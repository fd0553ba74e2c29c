"""The gate's scripts: for each cause and kernel, the first script that shows the difference, if there is one."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from conformance.commands.shared import confirmed_scripts, gate_runs
from conformance.user_files.findings import SEVERITY, Comparison, Finding, Group, Kind, Severity, Side


def group(kind: Kind, cause: str, *cases: str) -> Group:
    return Group(kind, cause, tuple(Finding(kind, case, "mm", "sm_90", cause, "", "") for case in cases))


@pytest.fixture
def reproduced(monkeypatch, tmp_path):
    """The lines about groups. It is told of each case what its script says, and whether that shows the difference."""

    def say(groups: list[Group], becomes: dict[str, tuple[bool, str] | OSError], most: int = 5) -> list[str]:
        def one(finding: Finding, *_: object) -> tuple[bool, str]:
            outcome = becomes.pop(finding.case)  # each case is tried once
            if isinstance(outcome, OSError):
                raise outcome
            return outcome

        monkeypatch.setattr(confirmed_scripts, "_one", one)
        side = Side(**dict.fromkeys(Side.__dataclass_fields__))
        run = SimpleNamespace(folder=Path("run"))
        comparison = Comparison(side, side, tuple(groups), 9, 0)
        return list(confirmed_scripts.reproduced(comparison, run, run, tmp_path, most, told.append))

    told: list[str] = []
    say.told = told
    return say


def test_the_first_case_is_enough_if_it_shows_the_difference(reproduced):
    becomes = {"a": (True, "a.py: confirmed"), "b": (True, "b.py: confirmed")}
    assert reproduced([group(Kind.NEW_FAIL, "x", "a", "b")], becomes) == ["NEW_FAIL x in mm: a.py: confirmed"]
    assert "b" in becomes


def test_other_cases_are_tried_until_one_shows_it(reproduced):
    becomes = {"a": (False, "no script for a"), "b": OSError("disk full"), "c": (True, "c.py: confirmed")}
    assert reproduced([group(Kind.NEW_CRASH, "x", "a", "b", "c")], becomes) == ["NEW_CRASH x in mm: c.py: confirmed"]
    assert reproduced.told == [f"cause 1 of 1, script {n} of at most 3: {case}" for n, case in enumerate("abc", 1)]


def test_if_none_shows_it_each_says_why(reproduced):
    becomes = {"a": (False, "no script for a"), "b": OSError("disk full"), "c": (False, "c.py: both fail")}
    lines = reproduced([group(Kind.NEW_FAIL, "x", "a", "b", "c", "d")], becomes)
    assert lines == [
        f"NEW_FAIL x in mm: {text}" for text in ("no script for a", "no script: disk full", "c.py: both fail")
    ]


def test_kinds_that_no_script_shows_say_why_and_the_rest_is_named(reproduced):
    groups = [group(Kind.LOST_COVERAGE, "gone", "a"), group(Kind.NEW_FAIL, "x", "b"), group(Kind.MORE_SPILLS, "y", "c")]
    lines = reproduced(groups, {"b": (True, "b.py: confirmed")}, most=1)
    assert lines == [
        "NEW_FAIL x in mm: b.py: confirmed",
        "LOST_COVERAGE: no script, nothing was judged there: the record of a case says why",
        "1 more cause and kernel: conformance reproduce CASE --run run --baseline run",
    ]


def test_every_kind_of_regression_has_scripts_or_a_reason():
    regressions = {kind for kind, severity in SEVERITY.items() if severity is Severity.REGRESSION}
    assert regressions == {*confirmed_scripts.SHOWN, *confirmed_scripts.NOT_SHOWN}


def test_each_kernel_of_a_cause_has_its_script_and_each_cause_comes_first_with_one(reproduced):
    crash, lost = group(Kind.NEW_CRASH, "x", "a", "b", "c"), group(Kind.FEATURE_LOST, "y", "d")
    findings = tuple(
        replace(finding, kernel=name) for finding, name in zip(crash.findings, ("mm", "bmm", "mm"), strict=True)
    )
    becomes = {case: (True, f"{case}.py: confirmed") for case in "abcd"}
    lines = reproduced([replace(crash, findings=findings), lost], becomes)
    assert lines == [
        "NEW_CRASH x in mm: a.py: confirmed",
        "FEATURE_LOST y in mm: d.py: confirmed",
        "NEW_CRASH x in bmm: b.py: confirmed",
    ]


def test_the_reports_say_what_the_scripts_showed(monkeypatch, tmp_path, capsys):
    """Once they were tried; the page is read on another machine, so it names them from its own folder."""
    side = Side(**{**dict.fromkeys(Side.__dataclass_fields__), "name": "run", "stack": {}, "statuses": {}})
    found = Comparison(side, side, (group(Kind.NEW_FAIL, "x", "a"),), 9, 0)
    line = f"NEW_FAIL x: {tmp_path.resolve()}/reproducers/a.py: confirmed, it shows"
    written = []
    monkeypatch.setattr(gate_runs, "compared", lambda *arguments: found)
    monkeypatch.setattr(gate_runs.policy_options, "after_waivers", lambda arguments, comparison, folder: comparison)
    monkeypatch.setattr(gate_runs, "deliver", lambda *arguments: 1)
    monkeypatch.setattr(gate_runs, "reproduced", lambda *arguments: iter([line]))
    blamed = [("NEW_FAIL x: ptxas", True), ("NEW_FAIL y: conformance blame y", False)]
    monkeypatch.setattr(gate_runs, "blamed_findings", lambda *arguments: iter(blamed))
    monkeypatch.setattr(gate_runs, "write_files", lambda comparison, *arguments: written.append(comparison.scripts))
    run = SimpleNamespace(folder=Path("run"), name="run", repeats=())
    arguments = SimpleNamespace(reproducers=3, blame=1, thresholds=None, no_age=True)
    status, comparison = gate_runs.report_pair(arguments, run, run, tmp_path, gate_runs.Stages(1))
    assert (status, replace(comparison, scripts=())) == (1, found)
    assert written == [("NEW_FAIL x: reproducers/a.py: confirmed, it shows", "NEW_FAIL x: ptxas")]
    output = capsys.readouterr().out
    assert line in output
    assert "conformance blame y" in output
