"""A run that ended early goes on: what has a record is kept, and what was under way is judged alone first."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import replace
from types import SimpleNamespace

import pytest

from conformance.gate.runs.run_environment import ENVIRONMENT_FILE
from conformance.plugin.fresh_pytest import RUN, Judged
from conformance.plugin.resuming import (
    EARLIER_FILE,
    MOST_DEATHS,
    NOT_COLLECTED,
    PLAN_FILE,
    SELECTED_FILE,
    Resume,
    begins_again,
    lock_folder,
)
from conformance.records import RUN_FILE, CaseRecord, Fault, FaultKind, RunPart, Status, Verdict, jsonable, read_records

pytest_plugins = ["pytester"]
#: Each case counts its runs in a file. Case 3 kills the process that leads the run as often as the file "kills" says.
CASES = """
from pathlib import Path
import signal
@pytest.mark.parametrize("n", range(8))
def test_it(recorder, n):
    with open("ran.txt", "a") as file:
        file.write(f"{n}\\n")
    recorder.verdict("x", n != 5)
    kills = Path("kills")
    if n == 3 and kills.exists() and (left := kills.read_text()):
        kills.write_text(left[1:])
        os.kill(int(os.environ["CONFORMANCE_RUN_PROCESS"]), signal.SIGKILL)
        time.sleep(1)
        os._exit(1)  # a worker that sleeps on ends after 15 seconds
"""
KILLER = "test_some.py::test_it[3]"
JUDGED = {f"test_it[{n}]": "fail" if n == 5 else "pass" for n in range(8)}


def killed_run(project, *workers, kills=1):
    """Leaves a run of the project that was killed with case 3 under way."""
    project.suite("some", CASES)
    (project.path / "kills").write_text("x" * kills)
    assert project.run(*workers).ret == -signal.SIGKILL


def resumed(project, *words):
    return project.run(*words, f"--resume={project.folder}")


def ran(project):
    return (project.path / "ran.txt").read_text().split()


def test_a_run_that_was_killed_goes_on(project, workers):
    killed_run(project, *workers)
    recorded = {record.case for record in read_records(project.folder).records}
    result = resumed(project, *workers)
    assert result.ret == pytest.ExitCode.TESTS_FAILED
    assert project.statuses == JUDGED
    assert project.info.problems == ()
    (part,) = project.info.parts
    assert KILLER in part.unfinished
    assert part.records == len(recorded) >= 1
    assert {ran(project).count(case[-2]) for case in recorded} == {1}
    result.stderr.fnmatch_lines([f"conformance: the run goes on: {part.records} of 8 cases recorded; *under way*"])
    files = {file.name for file in project.folder.iterdir()}
    assert not files & {EARLIER_FILE, "alone", "earlier.tmp"}
    assert not [name for name in files if name.startswith("inflight")]
    before = {file: file.stat().st_mtime_ns for file in project.folder.rglob("*")}
    again = resumed(project, *workers)  # as a pod that is started again after its run
    assert again.ret == result.ret
    sentence = "*each of 8 cases has a record, and none is left to judge; the run ended with exit status 1, and so*"
    again.stdout.fnmatch_lines([sentence])
    assert {file: file.stat().st_mtime_ns for file in project.folder.rglob("*")} == before
    project.refused("*reruns is 1, and was 0; *", "--conformance-reruns=1", f"--resume={project.folder}")
    assert {file: file.stat().st_mtime_ns for file in project.folder.rglob("*")} == before


def test_a_case_that_ends_its_process_again_has_crashed(project):
    killed_run(project, kills=2)
    resumed(project)
    record = project.records["test_it[3]"]
    assert record.status is Status.CRASH
    assert "the run ended while this case ran; then signal 9 ended the pytest that ran it alone" in record.diagnosis
    assert project.statuses == JUDGED | {"test_it[3]": "crash"}


def test_a_run_whose_last_cases_are_judged_alone_ends_as_they_did(project):
    """Nothing is left for the run itself."""
    project.suite("some", CASES.replace("range(8)", "range(2, 4)"))
    (project.path / "kills").write_text("x")
    project.run()
    assert resumed(project).ret == pytest.ExitCode.OK
    assert project.statuses == {"test_it[2]": "pass", "test_it[3]": "pass"}


def test_cases_under_way_are_judged_one_by_one_if_their_common_process_ends(tmp_path):
    answers = {("a", "b"): Judged({}, signal.SIGSEGV), ("a",): Judged({"a": CaseRecord("a", "it", Status.FAIL)})}
    answers["b",] = Judged({}, signal.SIGSEGV)
    resume = object.__new__(Resume)
    resume._folder, resume._gpu, resume.parts, resume.recorded = tmp_path, None, (), {}
    resume._foreseen = {case: CaseRecord(case, "it", Status.CRASH) for case in "ab"}
    resume._fresh = SimpleNamespace(judge=lambda cases, scratch, gpu: answers[tuple(cases)])
    resume._on_cluster = False
    written = []
    resume.judge_alone(written.append, lambda text: None)
    assert [(record.case, record.status) for record in written] == [("a", Status.FAIL), ("b", Status.CRASH)]
    assert "then signal 11 ended the pytest" in written[1].diagnosis
    assert resume.recorded == {"a": Status.FAIL, "b": Status.CRASH}


def test_cases_under_way_are_left_to_workers_that_hold_the_gpus_of_a_cluster():
    resume = object.__new__(Resume)
    resume.parts, resume.recorded = [RunPart("", "", 0, ("a",))] * MOST_DEATHS, {}
    resume._foreseen, resume._on_cluster = {case: CaseRecord(case, "it", Status.CRASH) for case in "ab"}, True
    resume.judge_alone(lambda record: None, lambda text: None)
    assert resume.recorded == {"a": Status.CRASH}


def test_a_case_at_whose_ends_the_run_ended_has_crashed(project):
    """As where a case takes its machine along. Here the parts of the run are written by hand."""
    killed_run(project)
    info = project.info
    parts = [RunPart("2026-01-01", "2026-01-02", 3, (KILLER,))] * (MOST_DEATHS - 1)
    (project.folder / RUN_FILE).write_text(json.dumps(jsonable(replace(info, parts=tuple(parts)))))
    resumed(project)
    assert project.records["test_it[3]"].status is Status.CRASH
    assert f"the run ended {MOST_DEATHS} times while this case ran" in project.records["test_it[3]"].diagnosis
    assert ran(project).count("3") == 1


def test_a_run_that_a_signal_ended_goes_on(project):
    project.suite("some", CASES.replace("SIGKILL", "SIGTERM"))
    (project.path / "kills").write_text("x")
    first = project.run()
    assert "8 cases: 5 pass" not in first.stdout.str()
    assert 0 < len(read_records(project.folder).records) < 8
    resumed(project)
    assert project.statuses == JUDGED
    assert project.info.problems == ()


def test_what_the_machine_broke_and_what_cannot_be_read_is_judged_again(project):
    killed_run(project)
    (file,) = project.folder.glob("records-*.jsonl")
    lines = file.read_text().splitlines(keepends=True)
    first, *_ = read_records(project.folder).records
    fault = Fault.of(FaultKind.DISK_FULL, "no space")
    lines[0] = replace(first, status=Status.FAIL, verdicts=(), fault=fault).to_line()
    lines[1] = lines[1][:40] + "\n"
    file.write_text("".join(lines) + '{"schema":4,"case":"tes')
    resumed(project)
    assert project.statuses == JUDGED
    (part,) = project.info.parts
    assert (part.records, part.unusable) == (1, 2)
    assert project.info.problems == ()


def test_a_run_that_had_not_selected_its_cases_begins_again(project):
    killed_run(project)
    for name in (PLAN_FILE, SELECTED_FILE):
        (project.folder / name).unlink()
    for file in project.folder.glob("*.jsonl"):
        file.unlink()
    result = resumed(project)
    result.stderr.fnmatch_lines(["*the run goes on from its beginning: it had not selected its cases"])
    assert project.statuses == JUDGED


@pytest.mark.parametrize("text", ["", None], ids=["empty", "written"])
def test_a_run_that_had_not_written_its_environment_begins_again(project, text):
    """As one that was killed in its first second."""
    killed_run(project)
    for file in project.folder.iterdir():
        if file.name != RUN_FILE:
            file.unlink()
    if text is not None:
        (project.folder / RUN_FILE).write_text(text)
    (project.folder / f"{ENVIRONMENT_FILE}.tmp").write_text("{")
    result = resumed(project)
    result.stderr.fnmatch_lines(["conformance: the run begins again: it had not written its environment"])
    assert project.statuses == JUDGED
    assert project.info.parts == ()
    assert (project.folder / ENVIRONMENT_FILE).exists()


def test_a_folder_with_more_than_a_beginning_does_not_begin_again(tmp_path):
    assert not begins_again(tmp_path)
    for name in (RUN_FILE, "records-gw0.jsonl"):
        (tmp_path / name).write_text("")
    assert not begins_again(tmp_path)
    (tmp_path / "records-gw0.jsonl").unlink()
    unlock = lock_folder(tmp_path)
    with pytest.raises(pytest.UsageError, match="a run that uses this folder goes on"):
        begins_again(tmp_path)
    unlock()
    assert begins_again(tmp_path)
    assert not list(tmp_path.iterdir())


def left_run(folder, **fields):
    """A resumed run of the cases a to f, whose records are in ``folder``."""
    resume = object.__new__(Resume)
    info = SimpleNamespace(tier="quick", seed=0, parts=(), started="2026")
    resume._folder, resume.parts, resume.recorded, resume._foreseen = folder, (), {}, {}
    resume.left = SimpleNamespace(**{"info": info, "selected": tuple("abcdef"), "began": "the run began so"} | fields)
    return resume


def test_only_records_of_the_run_are_kept(tmp_path):
    own = CaseRecord("a", "it", Status.PASS, tier="quick", seed=0, verdicts=(Verdict("x", True),))
    broken = replace(own, case="d", status=Status.FAIL, fault=Fault.of(FaultKind.DISK_FULL, "no space"))
    no_file = replace(own, case="e", status=Status.FAIL, outcome=NOT_COLLECTED)
    others = [replace(own, case="b", seed=5), replace(own, case="c", tier="full"), replace(own, case="g")]
    file = tmp_path / "records-gw0.jsonl"
    file.write_text("".join(one.to_line() for one in [own, *others, broken, no_file, replace(own, case="f")]))
    resume = left_run(tmp_path)
    resume._foreseen = {case: replace(own, case=case) for case in "abg"}
    resume.begin()
    assert resume.recorded == {"a": Status.PASS, "f": Status.PASS}
    assert [record.case for record in read_records(tmp_path).records] == ["a", "f"]
    (part,) = resume.parts
    assert (part.unfinished, part.records, part.unusable) == (("b",), 2, 3)


def test_records_are_not_kept_without_the_plan_that_they_were_judged_by(tmp_path):
    record = CaseRecord("a", "it", Status.PASS, tier="quick", seed=0, verdicts=(Verdict("x", True),))
    (tmp_path / "records-gw0.jsonl").write_text(record.to_line())
    resume = left_run(tmp_path, selected=None)
    assert "it had not selected its cases" in resume.begin()
    assert resume.recorded == {}


def test_a_case_that_is_judged_alone_keeps_what_its_process_recorded(tmp_path):
    """Its record and artefacts, also if a signal ends the process later. What the machine broke is judged once more."""
    passed = CaseRecord("a", "it", Status.PASS, verdicts=(Verdict("x", True),))
    broken = CaseRecord("b", "it", Status.FAIL, fault=Fault.of(FaultKind.DISK_FULL, "no space"))

    def judge(cases, scratch, gpu):
        artefacts = scratch / RUN / "artefacts"
        artefacts.mkdir(parents=True)
        (artefacts / f"{cases[0]}.txt").write_text("code")
        (record,) = [one for one in (passed, broken) if one.case == cases[0]]
        return Judged({record.case: record}, signal.SIGSEGV if record is passed else None)

    resume = left_run(tmp_path)
    resume._gpu, resume._on_cluster, resume._fresh = None, False, SimpleNamespace(judge=judge)
    for record in (passed, broken):
        resume._foreseen = {record.case: replace(record, status=Status.CRASH)}
        resume.parts = (RunPart("", "", 0, (record.case,)),) * (MOST_DEATHS - 1)
        resume.judge_alone(lambda record: None, lambda text: None)
    assert resume.recorded == {"a": Status.PASS}
    assert (tmp_path / "artefacts" / "a.txt").read_text() == "code"
    assert not (tmp_path / "alone").exists()


@pytest.mark.parametrize(
    ("options", "shard", "says"),
    [
        (["--shard", "1/1"], None, "the run was that of a shard, and this is none"),
        (["--conformance-shard=1/1"], None, "the run was that of a shard, and this is none"),
        (["-q"], "1/1", "the run was that of no shard"),
    ],
)
def test_a_shard_goes_on_as_a_shard(tmp_path, options, shard, says):
    resume = left_run(tmp_path, environment={"options": options})
    with pytest.raises(pytest.UsageError, match=f"{says}; the run began so"):
        resume._refuse_another_choice(SimpleNamespace(shard=shard))
    resume._refuse_another_choice(SimpleNamespace(shard=None if shard else "1/1"))


def edited(name, old, new):
    def edit(project):
        file = project.folder / name
        file.write_text(file.read_text().replace(old, new, 1))

    return edit


def another_suite(project):
    (project.path / "suites" / "test_some.py").write_text("import os, time, pytest\n" + CASES.replace("(8)", "(9)"))


#: Words of the command line or a change of the project, and what the refusal says.
WRONG = (
    (("--seed=7",), "seed is 7, and was 0; the run began with: pytest *"),
    (("--tier=full",), "tier is 'full', and was 'quick'; *"),
    (("--repeats=2",), "repeats is 2, and was 1; *"),
    (("-k", "not 4"), "1 selected then and not now: test_some.py::test_it?4?; *"),
    (("--run-dir=other",), "contradicts --run-dir other: leave --run-dir out"),
    (edited("environment.json", '"harness": "', '"harness": "x'), "harness is '*', and was 'x*"),
    (
        edited("environment.json", '"variables": {', '"variables": {"TRITON_X": "1",'),
        "the variable TRITON_X is None, *",
    ),
    (edited("environment.json", "{", "[" * 100_000), "the run cannot be read (*nested too deeply*); begin a new one"),
    (edited(PLAN_FILE, "{", ""), "the run cannot be read (*); begin a new one"),
    (another_suite, "the code of the suites is *, and was *"),
    (lambda project: (project.folder / RUN_FILE).unlink(), "there is no run; give the folder of one *"),
)


def test_what_cannot_go_on_is_refused_and_stays_as_it_was(project):
    killed_run(project)
    before = {file: file.read_bytes() for file in project.path.rglob("*.[jp]*") if file.is_file()}
    for change, says in WRONG:
        words = change if isinstance(change, tuple) else ()
        folder = project.folder
        if not words:
            change(project)
        changed = {file: file.read_bytes() for file in folder.iterdir() if file.suffix in (".jsonl", ".json", ".xml")}
        project.refused(f"ERROR: --resume *{says}", *words, f"--resume={folder}")
        assert {file: file.read_bytes() for file in changed} == changed, says
        for file, content in before.items():
            file.write_bytes(content)


def test_a_run_that_goes_on_elsewhere_is_refused(project):
    killed_run(project)
    unlock = lock_folder(project.folder)
    try:
        project.refused(
            "*a run that uses this folder goes on; wait until it ends, or end it", f"--resume={project.folder}"
        )
    finally:
        unlock()


def test_a_process_that_has_not_ended_is_refused(project, monkeypatch):
    killed_run(project)
    with (project.folder / "held").open("w") as held:
        process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE, stdout=held)
        try:
            (project.folder / "process-gw7.txt").write_text(str(process.pid))
            (project.path / "conftest.py").write_text(
                "from conformance.plugin import resuming\nresuming.ENDING_S = 0.1\n"
            )
            project.refused(
                f"*process {process.pid} of the run has not ended; end it first", f"--resume={project.folder}"
            )
        finally:
            process.communicate()
