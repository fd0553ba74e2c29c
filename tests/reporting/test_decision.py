"""A comparison's page alone is enough to decide."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from conformance.faults import Fault, FaultKind
from conformance.records import RunInfo
from conformance.reporting.comparison import render_markdown
from conformance.reporting.decision import meaning, next_steps, not_looked_at, reach
from conformance.user_files.findings import (
    MEANING,
    SEVERITY,
    BrokenSide,
    Comparison,
    Finding,
    Group,
    Harm,
    Kind,
    KnownDefect,
    Narrowing,
    Scope,
    Side,
)

SIDE = Side("run", {"triton": "3.8.0", "device": "NVIDIA H200"}, "full", 0, 9, {"pass": 9})
ON_DEVICE, INTERPRETED = Scope(levels={"run on a device": 9}), Scope(levels={"interpreted": 9})
INFO = RunInfo("run", "2026-01-02T03:04:05+00:00", "full", 0, gpus=("0",))


def group(kind: Kind, after: str = "fail") -> Group:
    return Group(kind, "cause", (Finding(kind, "case", "mm", "sm_90", "cause", "pass", after),))


def comparison(*kinds: Kind, side: Side = SIDE, **fields: object) -> Comparison:
    return Comparison(SIDE, side, tuple(map(group, kinds)), 9, 0, **{"scope": ON_DEVICE, **fields})  # type: ignore[arg-type]


def ran_with(folder: Path, *options: str) -> Path:
    (folder / "environment.json").write_text(json.dumps({"options": ["-n", "auto", *options]}))
    return folder


def test_a_whole_run_on_a_device_leaves_nothing_to_say(tmp_path: Path) -> None:
    assert not_looked_at(comparison(), INFO, ran_with(tmp_path, "--tier", "full")) == []


@pytest.mark.parametrize(
    ("options", "side", "info", "says"),
    [
        (
            ("--kernel", "mm", "-k", "fp16"),
            {},
            {},
            "Options left cases out, and only what they name was run: -k fp16, --k",
        ),
        ((), {"tier": "quick"}, {}, "The quick tier is a sample of the cases; --tier full has all of them."),
        (("--compile-only",), {}, {}, "Nothing was run (--compile-only): code was compiled and inspected"),
        ((), {}, {"targets": ("sm_90",)}, "Only these targets were compiled for: sm_90."),
        (
            (),
            {"statuses": {"not-run": 4}},
            {},
            "4 of the candidate's 9 cases could not be run here (not-run): see the reasons below.",
        ),
        ((), {"statuses": {"not-applicable": 2}}, {}, "2 of the candidate's 9 cases were refused"),
    ],
)
def test_each_limit_of_a_run_is_said(
    tmp_path: Path, options: tuple[str, ...], side: dict[str, object], info: dict[str, object], says: str
) -> None:
    compared = comparison(side=replace(SIDE, **side))  # type: ignore[arg-type]
    (sentence,) = not_looked_at(compared, replace(INFO, **info), ran_with(tmp_path, *options))  # type: ignore[arg-type]
    assert sentence.startswith(says)


@pytest.mark.parametrize(
    ("levels", "says"),
    [
        (
            {"interpreted": 9},
            "No case was judged on a GPU: Triton's interpreter ran the source of kernels, and no time",
        ),
        ({"TTGIR executed": 9}, "No case was judged on a GPU: the TTGIR of compiled kernels was run"),
        ({"compiled only": 9}, "No case was judged on a GPU: code was compiled and inspected, and no time"),
        ({}, "No case was judged on a GPU: no kernel was run, and no time"),
        ({"run on a device": 4, "interpreted": 5}, "5 judged cases did not run on a device on both sides."),
    ],
)
def test_what_judged_the_cases_is_said_of_the_cases_and_not_of_the_machine(
    tmp_path: Path, levels: dict[str, int], says: str
) -> None:
    """The run has GPUs, and its stack names a device."""
    (sentence,) = not_looked_at(comparison(scope=Scope(levels=levels)), INFO, ran_with(tmp_path))
    assert sentence.startswith(says)


def test_how_far_an_answer_reaches() -> None:
    assert reach(comparison(), INFO) == ""
    small = comparison(side=replace(SIDE, tier="quick"), narrowing=Narrowing(("-k x",), 9, 1373), scope=INTERPRETED)
    assert reach(small, INFO) == "only 9 of 1,373 cases (-k x), quick tier, no GPU"


@pytest.mark.parametrize(
    ("cases", "said"),
    [
        (3, "no GPU; 2 of 3 cases: 2 interpreted; shapes ragged"),
        (30, "no GPU; 2 of 30 cases: 2 interpreted; shapes ragged"),
    ],
)
def test_of_how_many_cases_an_answer_is_and_what_they_prove(tmp_path: Path, cases: int, said: str) -> None:
    scope = Scope(cases, {"layout": cases - 2}, {"interpreted": 2}, {"ragged": 2})
    of_few = comparison(scope=scope)
    assert reach(of_few, INFO) == said
    refused = f"{cases - 2} of {cases} cases not applicable on both sides: {cases - 2} layout."
    assert refused in not_looked_at(of_few, INFO, ran_with(tmp_path, "--cases", "ids.txt"))


def test_who_computed_a_wrong_result_is_said() -> None:
    failed, wrong = group(Kind.NEW_FAIL), replace(group(Kind.NEW_FAIL), cause="numerics/tie: the last k is dropped")
    without = comparison(scope=INTERPRETED)
    assert meaning(without, wrong).endswith("Triton's interpreter computed it, no GPU.")
    assert meaning(without, failed) == failed.meaning
    assert meaning(comparison(), wrong) == wrong.meaning


def test_why_two_runs_are_only_partly_comparable_is_said(tmp_path: Path) -> None:
    assert not_looked_at(comparison(warnings=("other seeds",)), INFO, tmp_path) == ["Other seeds."]


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"options": 3}', "[" * 100_000])
def test_an_environment_that_cannot_be_read_ends_nothing(tmp_path: Path, text: str) -> None:
    (tmp_path / "environment.json").write_text(text)
    assert not_looked_at(comparison(), INFO, tmp_path) == []


def test_what_to_do_next() -> None:
    assert next_steps(comparison(), INFO) == ["Replace the baseline, as far as the limits next to this list allow."]
    lost, failed = next_steps(comparison(Kind.LOST_COVERAGE), INFO), next_steps(comparison(Kind.NEW_FAIL), INFO)
    assert lost[0].startswith("Remove what keeps the cases of LOST_COVERAGE from being judged")
    assert failed[0].startswith("Keep the baseline where you use the kernels and targets")
    assert not any("Keep the baseline" in step for step in lost)
    both = next_steps(comparison(Kind.LOST_COVERAGE, Kind.NEW_FAIL, Kind.SLOWER), INFO)
    assert both[:2] == [failed[0], lost[0]]
    assert next_steps(comparison(Kind.SLOWER), INFO)[0].startswith("No new failure was seen: what got worse may cost")
    (objected,) = next_steps(comparison(objections=("a waiver has expired",)), INFO)
    assert objected.startswith("Read what else speaks against the candidate")
    small = comparison(Kind.LARGER_CODE, side=replace(SIDE, tier="quick"), scope=INTERPRETED)
    steps = next_steps(small, INFO)
    assert [step.split()[0:2] for step in steps[1:]] == [["Read", "the"], ["Run", "the"], ["Run", "the"]]


@pytest.mark.parametrize("side", ["baseline", "candidate"])
def test_of_a_run_that_is_no_answer_only_another_run_is_advised(side: str) -> None:
    fault = Fault.of(FaultKind.INTERRUPTED, "Ctrl-C ended the run")
    broken = BrokenSide(side, fault.fault_class, (fault,))
    for kinds in ((Kind.LESS_OCCUPANCY,), (Kind.NEW_FAIL, Kind.LOST_COVERAGE), ()):
        steps = next_steps(comparison(*kinds, broken=(broken,), objections=("a waiver has expired",)), INFO)
        assert steps == [f"Run the {side} again: it is no answer (unfinished)."]


def test_a_case_that_newly_fails_is_no_mere_cost() -> None:
    lost = comparison(Kind.FEATURE_LOST)
    failing = replace(lost.groups[0], findings=(replace(lost.groups[0].findings[0], newly_fails=True),))
    assert next_steps(lost, INFO)[0].startswith("No new failure was seen")
    assert next_steps(replace(lost, groups=(failing,)), INFO)[0].startswith("Keep the baseline where you use")


def test_a_safe_answer_names_the_cases_that_newly_fail_first() -> None:
    warned = comparison(Kind.MORE_REGISTERS)
    failing = replace(warned.groups[0], findings=(replace(warned.groups[0].findings[0], newly_fails=True),))
    assert "newly fail" not in " ".join(next_steps(warned, INFO))
    first = next_steps(replace(warned, groups=(failing,)), INFO)[0]
    assert first.startswith("Read which cases newly fail before you rely on the candidate (1 case newly fails)")


def test_what_to_do_about_known_defects_comes_before_what_is_slow() -> None:
    before = comparison(Kind.NEW_KNOWN_DEFECT, Kind.LOST_COVERAGE, Kind.SLOWER)
    defect = KnownDefect("entry", Harm.WRONG, "https://a.b/1", "triton 3.9.0")
    wrong = replace(before.groups[0], findings=(replace(before.groups[0].findings[0], defect=defect),))
    steps = next_steps(replace(before, groups=(wrong, *before.groups[1:]), objections=("a waiver has expired",)), INFO)
    begins = ("Keep the baseline", "Follow the links of the known defects", "Read what else", "Remove what keeps")
    assert all(step.startswith(words) for step, words in zip(steps, begins, strict=False))
    assert "is triton 3.9.0." in steps[1]
    assert "release that mends it" not in next_steps(before, INFO)[1]


@pytest.mark.parametrize(
    ("outcome", "sent"),
    [
        ("confirmed, the fault shows in the candidate and not in the baseline", True),
        ("confirmed, the fault shows in the candidate (it died by SIGSEGV) and not in the baseline", True),
        ("not reproduced, the fault does not show in the candidate", False),
        ("cannot run, the script cannot run: x: confirmed, y", False),
    ],
)
def test_only_a_confirmed_script_is_worth_sending(outcome: str, sent: bool) -> None:
    script = f"NEW_FAIL cause: reproducers/a.py: {outcome}"
    compared = comparison(Kind.NEW_FAIL, scripts=(script,))
    assert any(step.startswith("Send a confirmed script") for step in next_steps(compared, INFO)) == sent
    assert "### What was tried with both stacks" in render_markdown(compared)
    assert "reproducers/a.py" in render_markdown(compared)
    assert "Scripts" not in render_markdown(comparison(Kind.NEW_FAIL))


def test_each_kind_has_a_meaning() -> None:
    assert MEANING.keys() == SEVERITY.keys() == set(Kind)
    assert group(Kind.NEW_FAIL).meaning == "A case gives a wrong result, or breaks another promise; it did not before."
    assert group(Kind.NEW_FAIL, "compile-error").meaning == "A case no longer compiles."
