"""The last lines of a run say whether all is well, and what to open if it is not."""

from __future__ import annotations

import dataclasses
import shlex
from pathlib import Path

import pytest

from conformance import cli
from conformance.records import CaseRecord, Fault, FaultKind, Reason, ReasonCode, RunInfo, Status, Verdict
from conformance.reporting import run_verdict
from conformance.reporting.failure_groups import Meaning
from conformance.reporting.run_verdict import all_is_well, headline
from conformance.reporting.summary import Summary, Tally
from conformance.reporting.summary_text import (
    CASES_LISTED,
    WIDEST,
    expected_lines,
    failure_lines,
    problem_lines,
    render_markdown,
    verdict_lines,
)
from tests.command_runs import write_run

RUN = RunInfo(id="r", started="2026-01-02T03:04:05+00:00", tier="quick", seed=0, wall_s=4.0)
STACK = {"triton": "3.9.0", "torch": "2.13.0", "device": None}
FOLDER = Path("reports/r")
#: Lines of the end of a log that a hurried reader sees. pytest's own last line is one of them.
SEEN = 20
LINK = "https://github.com/pytorch/pytorch/blob/v2.13.0/torch/_inductor/template_heuristics/triton.py"


def case(number: int, status: Status = Status.PASS, kernel: str = "mm", **fields: object) -> CaseRecord:
    name = f"test_a.py::test_x[{kernel}-{number:04}-sm_90]"
    if status is Status.PASS:
        fields = {"executor": "ttgir", "verdicts": (Verdict("memory", True), Verdict("executed/ttgir", True)), **fields}
    return CaseRecord(name, "a", status, kernel=kernel, target="sm_90", **fields)


def failing(number: int, check: str, text: str = "", kernel: str = "mm", **fields: object) -> CaseRecord:
    return case(number, Status.FAIL, kernel, verdicts=(Verdict(check, False, text),), **fields)


def known(number: int, entry: str, link: str = LINK) -> CaseRecord:
    reason = Reason(ReasonCode.KNOWN_DEFECT, entry, f"{link}, owner me, expires 2999-12-31")
    return case(number, Status.EXPECTED_FAIL, reason=reason)


def summarise(*records: CaseRecord, **run: object) -> Summary:
    tally = Tally()
    for record in records:
        tally.add(record)
    return tally.summary(dataclasses.replace(RUN, **run))


def ending(summary: Summary, lost: str = "", width: int = WIDEST) -> list[str]:
    lines = verdict_lines(summary, FOLDER, FOLDER / "summary.md", lost, width)
    assert len(lines) < SEEN
    return lines


SEVENTY = [
    *(failing(n, "numerics/randn", f"{n} of 99 elements wrong, first [{n}, 0]: got 1.5, want 2") for n in range(40)),
    *(failing(n, "numerics/randn", f"{n} of 99 elements wrong", kernel="addmm") for n in range(10)),
    *(failing(100 + n, "spills", f"{n} bytes") for n in range(20)),
]


def test_all_is_well_is_a_sentence():
    summary = summarise(*(case(n) for n in range(1274)), *(known(2000 + n, f"entry-{n % 4}") for n in range(9)))
    assert all_is_well(summary)
    lines = ending(summary)
    assert lines[0] == "PASSED: all 1,283 judged cases passed or failed as expected"
    assert lines[1] == "cases: 1,274 pass, 9 expected-fail (4 known defects)"
    assert "0 cases ran on a device" in " ".join(lines)
    assert not any(line.startswith("tested: ") for line in lines), "the versions are not known"
    assert lines[-1].endswith("reports/r/summary.md")
    assert failure_lines(summary, {}) == []


def test_the_end_names_what_was_tested():
    assert ending(summarise(case(1), stack=STACK))[-3] == "tested: triton 3.9.0, torch 2.13.0"


def test_a_run_on_a_device_does_not_say_that_none_ran_there():
    judged = (Verdict("numerics/randn", True),)
    text = " ".join(ending(summarise(case(1, executor="device", verdicts=judged))))
    assert "device 1" in text
    assert "0 cases ran" not in text


def test_each_expected_failure_is_one_line_that_fits():
    entries = [
        *(known(n, "short", "https://example.org/1") for n in range(12)),
        known(50, "a-name-of-an-entry-that-is-far-longer-than-any-name-of-an-entry-that-somebody-would-type"),
        known(60, "inductor-tma-padded-column-major-on-device"),
    ]
    lines = expected_lines(summarise(*entries).expected, 100)
    assert len(lines) == 3
    assert all(len(line) <= 100 for line in lines)
    assert any("12 cases  https://example.org/1" in line for line in lines)
    assert any("inductor-tma-padded-column-major-on-device" in line and "triton.py" in line for line in lines)
    assert "(100 known defects)" in ending(summarise(*(known(n, f"entry-{n}") for n in range(100))))[1]


def test_seventy_failures_are_a_line_each_by_cause_and_kernel():
    summary = summarise(*SEVENTY)
    lines = failure_lines(summary, {}, with_examples=False)
    assert sum("test_a.py::test_x" in line for line in lines) == 70
    assert len(lines) < 85
    heads = [line for line in lines if line[:1].isdigit()]
    assert heads == [
        "1. wrong result in 50 cases (mm 40, addmm 10 on sm_90): numerics/randn: N of N elements wrong",
        "2. register spills in 20 cases (mm on sm_90): spills: N bytes",
    ]
    end = ending(summary)
    assert end[0] == "FAILED: 70 of 70 judged cases failed, by 2 causes"
    assert [line.strip() for line in end[1:3]] == heads
    first = "test_a.py::test_x[mm-0000-sm_90]"
    assert any(f"show '{first}' --run reports/r" in line for line in end)
    assert any(f"reproduce '{first}' --run reports/r" in line for line in end)
    assert any("report reports/r" in line for line in end)


def test_long_lists_say_what_is_left_out_and_where_it_is():
    many = [failing(n, f"numerics/{'abcdef'[n % 6]}", "wrong") for n in range(600)]
    summary = summarise(*many)
    lines = failure_lines(summary, {})
    assert len(lines) < 150
    assert sum("and 84 more: summary.md has all" in line for line in lines) == 6
    text = render_markdown(summary)
    assert all(record.case in text for record in many)
    assert any("3 more causes" in line for line in ending(summary))


def test_past_the_room_of_a_page_the_records_are_named():
    summary = summarise(*(failing(n, "numerics/randn", "wrong") for n in range(CASES_LISTED + 7)))
    text = render_markdown(summary)
    assert text.count("- `test_a.py::") == CASES_LISTED
    assert "7 more cases of this cause are in the records" in text
    assert "summary.md has all" not in "\n".join(failure_lines(summary, {}))


ORDER = [
    failing(1, "executed/ttgir/race", "not waited for"),
    failing(2, "numerics/randn", "wrong"),
    failing(3, "repeat/randn", "two runs differ"),
    failing(4, "codegen/order/product", "no fence"),
    failing(5, "memory/randn", "guard overwritten"),
    failing(6, "grid", "4 programs"),
    case(7, Status.CRASH, diagnosis="SIGSEGV"),
    case(8, Status.TIMEOUT, diagnosis="deadline"),
    case(9, Status.COMPILE_ERROR, diagnosis="error: no"),
    case(10, Status.OOM, diagnosis="out of memory"),
    case(11, Status.FAIL, diagnosis="KeyError: 'x'"),
    failing(12, "suite's own", "no"),
    failing(13, "resources", "too much"),
    failing(14, "codegen/requires/WGMMA", "absent"),
    failing(15, "spills", "8 bytes"),
    case(16, Status.UNEXPECTED_PASS, reason=Reason(ReasonCode.KNOWN_DEFECT, "old", "")),
    case(17, Status.FAIL, diagnosis="OSError", fault=Fault.of(FaultKind.DISK_FULL, "no space left on /tmp")),
]


def test_wrong_comes_before_slow_however_many_are_slow():
    spills = [failing(100 + n, "spills", "8 bytes") for n in range(9)]
    groups = summarise(*spills, *reversed(ORDER)).failures
    assert [group.example.case for group in groups] == [record.case for record in ORDER]
    assert groups[0].meaning is groups[1].meaning is Meaning.WRONG
    assert [groups[3].meaning, groups[-3].meaning] == [Meaning.UNORDERED, Meaning.SPILLS]
    assert groups[-2].cause == "remove the expected failure old, or narrow it"


def test_a_case_that_is_wrong_and_spills_is_wrong():
    verdicts = (Verdict("spills", False, "8 bytes"), Verdict("numerics/randn", False, "wrong"))
    (group,) = summarise(case(1, Status.FAIL, verdicts=verdicts)).failures
    assert (group.meaning, group.cause) == (Meaning.WRONG, "numerics/randn: wrong")


def test_few_causes_come_with_the_diagnosis_of_one_case():
    record = failing(1, "numerics/randn", "wrong", diagnosis="FAIL randn\nCAUSE k-block 3 of 4 is skipped")
    lines = "\n".join(failure_lines(summarise(record, failing(2, "numerics/randn", "wrong")), {}))
    assert "    CAUSE k-block 3 of 4 is skipped" in lines
    assert "CAUSE" not in "\n".join(failure_lines(summarise(record), {}, with_examples=False))
    others = [failing(9 + n, f"memory/{name}", "read") for n, name in enumerate("abc")]
    assert "CAUSE" not in "\n".join(failure_lines(summarise(record, *others), {}))


def test_a_long_diagnosis_is_cut_and_says_where_it_is():
    record = case(1, Status.COMPILE_ERROR, diagnosis="\n".join(f"line {n}" for n in range(500)))
    lines = failure_lines(summarise(record), {})
    assert "... and 484 more lines: 'conformance show' has them" in "\n".join(lines)
    assert len("\n".join(lines).splitlines()) < 25


def test_an_error_outside_the_checks_keeps_one_traceback():
    errors = [case(n, Status.FAIL, diagnosis="KeyError: 'x'") for n in range(3)]
    tracebacks = {record.case: f"frame of {record.case}\nE   KeyError" for record in errors}
    text = "\n".join(failure_lines(summarise(*errors), tracebacks))
    assert text.count("E   KeyError") == 1
    assert f"frame of {errors[0].case}" in text


NOT_JUDGED = case(1, Status.NOT_RUN, reason=Reason(ReasonCode.NO_DEVICE, "device", "none"))
REFUSED = case(2, Status.NOT_APPLICABLE, reason=Reason(ReasonCode.DTYPE, "a", "fp8"))


@pytest.mark.parametrize(
    ("records", "problems", "lost", "words"),
    [
        ([case(3)], (), "", "PASSED: the only judged case passed"),
        ([case(3), case(4)], (), "", "PASSED: all 2 judged cases passed"),
        ([case(3, executor="interpreter"), case(4)], (), "", "PASSED: all 2 judged cases passed"),
        ([case(3, executor="interpreter")], (), "", "PASSED (source only): the only judged case passed"),
        ([case(3, executor=None)], (), "", "PASSED (no kernel was run): the only judged case passed"),
        ([NOT_JUDGED, REFUSED], (), "", "NOTHING WAS JUDGED: no case passed or failed"),
        ([], (), "", "NOTHING WAS JUDGED: no case passed or failed"),
        ([case(3)], ("1 lost",), "", "NOT COMPLETE: the run has 1 problem; none of its 1 judged case failed"),
        ([case(3)], (), "no space", "NOT COMPLETE: the run has 1 problem"),
        ([failing(3, "x"), case(4)], (), "", "FAILED: 1 of 2 judged cases failed, by 1 cause; every other one passed"),
        ([failing(3, "x")], ("1 lost",), "", "FAILED: 1 of 1 judged case failed, by 1 cause; the run itself has 1"),
    ],
)
def test_the_verdict(records, problems, lost, words):
    summary = summarise(*records, problems=problems)
    assert headline(summary, lost).startswith(words)
    assert all_is_well(summary, lost) is words.startswith("PASSED")


FULL = Fault.of(FaultKind.DISK_FULL, "no space left on /tmp")


def test_what_the_machine_broke_is_no_failure_of_the_kernels():
    broken = [case(n, Status.FAIL, diagnosis="OSError: 28", fault=FULL) for n in range(3)]
    summary = summarise(*broken, case(9), faults=(FULL,), exit_status=75)
    lines = ending(summary)
    assert lines[0] == "NOT COMPLETE: the machine broke 3 of 4 cases; none of the other 1 failed"
    assert lines[1].startswith("  1. fault of the machine in 3 cases (mm on sm_90): disk-full: ")
    assert "infrastructure (disk-full): no space left on /tmp" in lines
    assert lines[-1].startswith("exit status 75: infrastructure (the machine or its environment failed")
    assert "exit status 75" in render_markdown(summary)
    both = summarise(*broken, failing(7, "numerics/randn", "wrong"), faults=(FULL,), exit_status=1)
    assert ending(both)[0] == "FAILED: 1 of 4 judged cases failed, by 1 cause; the machine broke 3 more"
    assert [group.meaning for group in both.failures] == [Meaning.WRONG, Meaning.MACHINE]


def test_the_last_line_says_what_the_exit_status_means():
    failed = summarise(failing(1, "x"), faults=(Fault.of(FaultKind.FAILED, "1 case"),), exit_status=1)
    assert (
        ending(failed)[-1] == "exit status 1: regression (what is tested failed: find out why before you run it again)"
    )
    assert ending(summarise(NOT_JUDGED, exit_status=5))[-1] == "exit status 5: no case was judged"
    assert "exit status" not in " ".join(ending(summarise(case(1), faults=(), exit_status=0)))
    faults = tuple(Fault.of(FaultKind.RECORDS, f"record {n} is damaged") for n in range(40))
    lines = ending(summarise(case(1), faults=faults, exit_status=75))
    assert lines[0] == "NOT COMPLETE: record 0 is damaged"
    assert "  and 38 more faults: summary.md has all" in lines
    assert "record 39" in render_markdown(summarise(case(1), faults=faults, exit_status=75))


def test_problems_and_reasons_are_said():
    problems = tuple(f"problem {n}" for n in range(5))
    lines = ending(summarise(NOT_JUDGED, REFUSED, case(3), problems=problems), lost="no space left")
    assert [line for line in lines if line.startswith("PROBLEM")] == [
        "PROBLEM no space left",
        "PROBLEM problem 0",
    ]
    assert "  and 4 more problems: summary.md has all" in lines
    assert "not judged: 1 not-applicable (dtype 1), 1 not-run (no-device 1)" in lines
    assert "**Problem:** problem 4" in render_markdown(summarise(case(3), problems=problems))


def test_problems_that_the_verdict_cuts_are_whole_above_it():
    long = "a kernel without a case: " + "why " * 100
    assert problem_lines(summarise(case(1), problems=("short",))) == []
    assert problem_lines(summarise(case(1), problems=(long, "second"))) == [f"  {long}", "  second"]
    summary = summarise(case(1), problems=tuple("abcde"), faults=(Fault.of(FaultKind.RECORDS, "no space"),))
    assert [line.strip() for line in problem_lines(summary, lost="no space")] == ["no space", *"abcde"]


def test_the_commands_that_are_printed_work(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    records = [failing(1, "numerics/randn", "as planted"), failing(2, "numerics/randn", "as planted")]
    folder = write_run(tmp_path / "a run", records)
    steps = list(run_verdict.what_to_open(summarise(*records), folder, folder / "summary.md").values())
    for step, words in ((steps[0], "as planted"), (steps[2], "report.html")):
        assert cli.main(shlex.split(step)[1:]) == 0
        assert words in capsys.readouterr().out
    assert shlex.split(steps[1])[1:] == ["reproduce", records[0].case, "--run", "a run"]
    assert steps[3] == "a run/summary.md"


@pytest.mark.parametrize("width", [1, 80, 500])
def test_no_width_makes_the_end_longer_than_a_screen_or_cuts_a_command(width):
    records = [*SEVENTY, *ORDER, case(500), NOT_JUDGED, REFUSED]
    run = {
        "problems": tuple("abcd"),
        "faults": (FULL, *(Fault.of(FaultKind.FILES, n) for n in "xyz")),
        "exit_status": 1,
    }
    lines = ending(summarise(*records, **run), width=width)
    assert any(line.endswith("show 'test_a.py::test_x[mm-0000-sm_90]' --run reports/r") for line in lines)
    assert len(lines[0]) <= 120


def test_no_text_of_a_record_is_a_command_or_moves_the_cursor():
    record = failing(1, "x", "\x1b[2J::error::planted\n::error::planted", diagnosis="::error::planted\n##[error]x")
    summary = summarise(record, problems=("::error::planted\n::error::planted",))
    for line in "\n".join([*failure_lines(summary, {}), *ending(summary)]).splitlines():
        assert "\x1b" not in line
        assert not line.startswith("::")


def test_the_command_is_one_that_can_be_typed_here(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    python = tmp_path / "venv" / "bin" / "python"
    monkeypatch.setattr("sys.executable", str(python))
    assert run_verdict.command_word() == "venv/bin/python -m conformance"
    python.parent.mkdir(parents=True)
    beside = python.with_name("conformance")
    beside.touch(0o755)
    assert run_verdict.command_word() == "venv/bin/conformance"
    (tmp_path / "conformance").touch(0o755)
    assert run_verdict.command_word() == "conformance"


def test_a_warning_is_shown_once_for_each_kernel():
    def noted(number: int, kernel: str, severity: str = "warn") -> CaseRecord:
        lanes = Verdict("undefined-lanes", True, f"k 8 to {number} of a (mm.py:24)", {"severity": severity})
        return case(number, kernel=kernel, verdicts=(Verdict("memory", True), lanes))

    summary = summarise(noted(31, "mm"), noted(15, "mm"), noted(31, "bmm"), noted(31, "addmm", "error"))
    assert [str(each) for each in summary.noted] == [
        "bmm, undefined-lanes in 1 case: k 8 to 31 of a (mm.py:24)",
        "mm, undefined-lanes in 2 cases: k 8 to 15 of a (mm.py:24)",
    ]
    assert "warnings: undefined-lanes of bmm (1 case), undefined-lanes of mm (2 cases)" in ending(summary)
    assert render_markdown(summary).count("undefined-lanes in") == 2
    assert not any("warnings" in line for line in ending(summarise(case(1))))
