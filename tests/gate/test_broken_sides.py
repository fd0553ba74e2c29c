"""A run that is unfinished, or that its machine broke, is no answer: neither safe nor a regression."""

from __future__ import annotations

import json

import pytest

from conformance.commands import compare as compare_command
from conformance.commands.shared.comparison_output import NO_ANSWER, no_answer_json, to_json
from conformance.faults import Fault, FaultKind
from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.stacks.stack_runs import complete
from conformance.gate.verdict.compare import compare
from conformance.plain_json import jsonable
from conformance.reporting.comparison import render_markdown, render_terminal
from conformance.reporting.first_line import answer
from conformance.reporting.github import annotation_lines
from tests.command_runs import call
from tests.gate.made_records import fail, record, write_run

SIDES = ("baseline", "candidate")
FULL = jsonable(Fault.of(FaultKind.DISK_FULL, "OSError: [Errno 28] No space left on device; make room"))
STOPPED = jsonable(Fault.of(FaultKind.STOPPED, "the run was stopped before its last case: stopping after 1 failures"))
FAILED = jsonable(Fault.of(FaultKind.FAILED, "1 case, first a: fail"))


def cases(*changed: dict) -> list[dict]:
    others = [{**record(), "case": f"test_a.py::test_x[{number}]"} for number in range(3)]
    return [*others, *changed]


def broken_case(status: str) -> dict:
    one = {**record(), "case": "test_a.py::test_x[broken]"}
    fail(one, "numerics/transparent", "FAIL exact/transparent: 3/416 wrong")
    return {**one, "status": status, "fault": FULL}


@pytest.mark.parametrize("status", ["fail", "compile-error", "crash", "oom", "timeout", "flaky"])
@pytest.mark.parametrize("side", SIDES)
def test_a_case_that_the_machine_broke_is_no_finding(tmp_path, capsys, side, status):
    passed = {**record(), "case": "test_a.py::test_x[broken]"}
    runs = {name: cases(broken_case(status) if name == side else passed) for name in SIDES}
    before, after = (write_run(tmp_path / name, records) for name, records in runs.items())
    comparison = compare(read_compared_run(before), read_compared_run(after))
    assert comparison.groups == ()
    assert not comparison.safe
    line = answer(comparison)
    assert line.startswith("NO ANSWER")
    assert f"the {side} is broken by its infrastructure (disk-full: 1 case, first test_a.py::test_x[broken]: " in line
    assert call(compare_command, before, after, "--json", tmp_path / "c.json") == 2
    assert capsys.readouterr().out.startswith(line)
    told = json.loads((tmp_path / "c.json").read_text())
    assert (told["safe"], told["status"], told["answer"]) == (False, NO_ANSWER, line)
    (one,) = told["broken"]
    assert (one["side"], one["fault_class"], one["faults"][0]["kind"]) == (side, "infrastructure", "disk-full")
    for text in (render_terminal(comparison), render_markdown(comparison), "\n".join(annotation_lines(comparison))):
        assert "NO ANSWER" in text.replace("&#95;", "_")


def test_a_regression_beside_it_is_told_and_no_answer(tmp_path):
    worse = {**record(), "case": "test_a.py::test_x[worse]"}
    fail(worse, "numerics/transparent", "FAIL exact/transparent: 3/416 wrong")
    good = {**record(), "case": "test_a.py::test_x[worse]"}
    before = write_run(tmp_path / "a", cases(good))
    after = write_run(tmp_path / "b", cases(worse), faults=[FAILED, STOPPED], exit_status=1)
    comparison = compare(read_compared_run(before), read_compared_run(after))
    assert [group.kind.value for group in comparison.groups] == ["NEW_FAIL"]
    line = answer(comparison)
    assert "the candidate is unfinished (stopped: the run was stopped before its last case" in line
    assert "1 NEW_FAIL" in line


@pytest.mark.parametrize(
    ("facts", "text"),
    [
        ({"wall_s": None}, "unfinished (cut-off: the run did not end)"),
        ({"faults": [STOPPED]}, "unfinished (stopped: "),
        ({"faults": [STOPPED, FULL]}, "broken by its infrastructure (disk-full: "),
        ({"problems": ["2 selected but not recorded: a, b"]}, "broken by its infrastructure (records: 2 selected"),
        (
            {"faults": [{"fault_class": "infrastructure", "kind": "of-a-later-version", "text": "x"}]},
            "of-a-later-version",
        ),
    ],
)
@pytest.mark.parametrize("side", SIDES)
def test_each_class_of_a_run(tmp_path, side, facts, text):
    facts = {"faults": None, **facts}
    folders = [write_run(tmp_path / name, cases(), **(facts if name == side else {})) for name in SIDES]
    comparison = compare(*map(read_compared_run, folders))
    (one,) = comparison.broken
    assert one.side == side
    assert text in answer(comparison)


def test_a_failed_case_breaks_no_run(tmp_path):
    folders = [write_run(tmp_path / name, cases(), faults=[FAILED], exit_status=1) for name in "ab"]
    assert compare(*map(read_compared_run, folders)).safe
    assert complete(folders[0])


@pytest.mark.parametrize("kind", ["unjudged-kernel", "other-test", "of-a-later-version"])
def test_a_regression_that_is_no_case_speaks_against_the_candidate_alone(tmp_path, capsys, kind):
    text = "kernel q of package v has no case"
    good = write_run(tmp_path / "good", cases())
    fault = {"fault_class": "regression", "kind": kind, "text": text}
    worse = write_run(tmp_path / "worse", cases(), faults=[FAILED, fault], problems=[text], exit_status=1)
    comparison = compare(read_compared_run(good), read_compared_run(worse))
    assert comparison.objections == (f"in the candidate's run: {text}",)
    assert comparison.broken == ()
    assert not comparison.safe
    assert call(compare_command, good, worse) == 1
    assert text in capsys.readouterr().out
    comparison = compare(read_compared_run(worse), read_compared_run(good))
    assert comparison.safe
    assert comparison.warnings == (f"in the baseline's run: {text}",)


@pytest.mark.parametrize("side", SIDES)
def test_a_problem_that_no_fault_names_speaks_against_either_side(tmp_path, side):
    text = "2 selected but not recorded: a, b"
    facts = {"problems": [text], "faults": [FAILED]}
    folders = [write_run(tmp_path / name, cases(), **(facts if name == side else {})) for name in SIDES]
    comparison = compare(*map(read_compared_run, folders))
    assert comparison.objections == (f"in the {side}'s run: {text}",)
    assert comparison.broken == ()
    assert call(compare_command, *folders) == 1


def test_what_an_unfinished_run_lacks_is_no_objection_of_its_own(tmp_path):
    good = write_run(tmp_path / "a", cases())
    facts = {"problems": ["2 selected but not recorded: a, b"], "faults": [STOPPED]}
    comparison = compare(read_compared_run(good), read_compared_run(write_run(tmp_path / "b", cases(), **facts)))
    assert [one.side for one in comparison.broken] == ["candidate"]
    assert comparison.objections == ()


@pytest.mark.parametrize("fault", [STOPPED, FULL])
def test_a_run_that_broke_is_not_kept(tmp_path, fault):
    assert not complete(write_run(tmp_path / "a", cases(), faults=[fault], exit_status=2))


def test_a_gate_whose_run_left_nothing_has_its_answer_in_json():
    fault = Fault.of(FaultKind.DEVICE, "the driver lists 1 GPU")
    told = json.loads(no_answer_json("triton==9", fault))
    assert (told["status"], told["safe"]) == (2, False)
    assert told["answer"].startswith(
        "NO ANSWER: the run with triton==9 left nothing to compare: infrastructure (device)"
    )
    assert told["broken"][0]["fault_class"] == "infrastructure"


def test_json_of_an_answer_says_its_status(tmp_path):
    folders = [write_run(tmp_path / name, cases()) for name in "ab"]
    told = json.loads(to_json(compare(*map(read_compared_run, folders))))
    assert (told["status"], told["safe"], told["broken"]) == (0, True, [])
