"""The runs of shards become one run, and nothing else does."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from collections import Counter
from dataclasses import fields, replace

import pytest

from conformance import records as record_files
from conformance.case_record import RunPart
from conformance.commands import CommandError, compare, merge, mustpass, records, report, show
from conformance.faults import Fault, FaultKind
from conformance.gate.shards.merge import MergeError
from conformance.gate.shards.merge import merge as merged
from conformance.records import Status, read_records, read_run
from tests.command_runs import call
from tests.gate.sample_bundles import STACK, record
from tests.gate.sample_shards import (
    RECORDS,
    edit_environment,
    edit_lines,
    edit_plan,
    edit_run,
    shard_of,
    write_shards,
)


@pytest.fixture
def shards(tmp_path):
    return write_shards(tmp_path)


def lines_of(folder):
    return gzip.decompress((folder / "records.jsonl.gz").read_bytes()).splitlines()


def test_all_records_in_the_order_of_their_ids(shards, tmp_path):
    run = merged([shards[2], shards[0], shards[1]], tmp_path / "whole")
    reading = read_records(tmp_path / "whole")
    assert [one.case for one in reading.records] == [one.case for one in RECORDS]
    assert [one.status for one in reading.records] == [one.status for one in RECORDS]
    assert not reading.problems
    assert sorted(lines_of(tmp_path / "whole")) == sorted(line for shard in shards for line in lines_of(shard))
    assert run == read_run(tmp_path / "whole")


def test_the_run_names_every_shard_and_takes_over_what_they_say(shards, tmp_path):
    fault = Fault.of(FaultKind.LIMIT, "too many files")
    edit_run(shards[1], lambda info: replace(info, faults=(fault,), problems=("odd",), exit_status=75))
    run = merged(shards, tmp_path / "whole")
    assert run.merged is not None
    assert run.shard is None
    assert [(one.number, one.run, one.wall_s) for one in run.merged.shards] == [
        (1, "shard-1", 1.5),
        (2, "shard-2", 3.0),
        (3, "shard-3", 4.5),
    ]
    own = [read_run(shard).shard for shard in shards]
    assert [one.records for one in run.merged.shards] == [one.records for one in own if one]
    assert (run.id, run.started, run.wall_s) == ("whole", "2026-03-04T05:06:07+00:00", 4.5)
    assert (run.workers, run.gpus, run.selected, run.proof) == (6, ("0",), 11, Counter(TTGIR=9))
    assert run.problems == ("shard 2/3: odd",)
    assert [str(one) for one in run.faults or ()] == ["infrastructure (limit): shard 2/3: too many files"]
    assert run.exit_status == 1  # a regression stays one
    assert run.bill == {"ptxas": "1", "backend hash()": "h"}


def test_the_parts_of_resumed_shards_are_taken_over(shards, tmp_path):
    earlier = RunPart("2026-03-04T05:00:00+00:00", "2026-03-04T05:06:08+00:00", 2, ("test_a.py::test_b[case-00004]",))
    edit_run(shards[1], lambda info: replace(info, parts=(earlier,)))
    edit_environment(shards[1], options=["-q", "--tier", "quick", "--shard=2/3", "--resume", "shard-2"])
    assert merged(shards, tmp_path / "whole").parts == (earlier,)


def test_the_digest_of_a_plan_is_that_of_all_its_facts(shards):
    plan = shard_of(shards[0]).plan
    others = {
        "cases": (1,),
        "case_lists": ("1",),
        "durations": "1",
        "harness": ("1",),
        "stack": {"triton": "1"},
        "tier": "full",
        "seed": 1,
        "targets": ("sm_90",),
        "options": {"repeats": 2},
    }
    assert {*others} == {field.name for field in fields(plan)}
    digests = {replace(plan, **{name: value}).digest for name, value in others.items()}
    assert len(digests | {plan.digest}) == len(others) + 1


@pytest.mark.parametrize(
    ("statuses", "status"),
    [((0, 0, 0), 0), ((0, 75, 0), 75), ((1, 75, 0), 1), ((1, 2, 75), 2), ((1, 7, 2), 7)],
)
def test_the_worst_exit_status_counts(tmp_path, statuses, status):
    shards = write_shards(tmp_path, [record(number, Status.PASS) for number in range(6)])
    for shard, own in zip(shards, statuses, strict=True):
        edit_run(shard, lambda info, own=own: replace(info, exit_status=own))
    assert merged(shards, tmp_path / "whole").exit_status == status


def test_a_run_that_judged_nothing_says_so(tmp_path):
    skipped = [record(number, Status.NOT_APPLICABLE, verdicts=()) for number in range(4)]
    assert merged(write_shards(tmp_path, skipped), tmp_path / "whole").exit_status == 5


def test_empty_shards_are_merged(tmp_path):
    shards = write_shards(tmp_path, RECORDS[:2], 5)
    run = merged(shards, tmp_path / "whole")
    assert run.selected == 2
    assert len(read_records(tmp_path / "whole").records) == 2


def test_artefacts_come_along(shards, tmp_path):
    for number, shard in enumerate(shards):
        (shard / "artefacts" / f"case{number}").mkdir(parents=True)
        (shard / "artefacts" / f"case{number}" / "a.ttgir").write_text("code")
    merged(shards, tmp_path / "whole")
    assert sorted(path.name for path in (tmp_path / "whole" / "artefacts").iterdir()) == ["case0", "case1", "case2"]


def test_a_large_run_stays_plain(shards, tmp_path, monkeypatch):
    sizes = [sum(map(len, lines_of(shard))) + 100 for shard in shards]
    monkeypatch.setattr(record_files, "UNPACKED_LIMIT", max(sizes))  # of each shard; together they have more
    merged(shards, tmp_path / "whole")
    assert len((tmp_path / "whole" / "records.jsonl").read_text().splitlines()) == 11


def test_what_reads_a_run_takes_a_merged_one(shards, tmp_path, capsys, monkeypatch):
    assert call(merge, *shards, "--output", tmp_path / "whole") == 0
    assert (
        "merged from 3 shards: the longest took 4.5 s, 1.50 times the mean\nFAILED: 1 of 10" in capsys.readouterr().out
    )
    whole = tmp_path / "whole"
    assert "FAILED: 1 of 10 judged cases failed" in (whole / "summary.md").read_text()
    assert call(compare, whole, whole) == 0
    assert call(records, whole) == 0
    assert call(report, whole) == 0
    assert call(show, RECORDS[3].case, "--run", whole) == 0
    monkeypatch.chdir(tmp_path)
    assert call(mustpass, "write", whole, "--to", tmp_path / "lists") == 0
    assert "11 cases" in capsys.readouterr().out


# What is refused: how three good shards are spoilt, and the sentence about it. {n} is the folder of a shard.


def without_shard(info):
    return replace(info, shard=None)


def doubled(lines):
    return [lines[0], *lines]


def failing_passes(lines):
    return [line.replace(b'"status":"pass"', b'"status":"fail"', 1) for line in lines]


def moved(shards):
    """A case that another shard has recorded, too, with its lines and digest."""
    theirs = lines_of(shards[1])[0] + b"\n"
    edit_lines(shards[0], lambda lines: sorted([*lines, theirs]), own_digest=True)


def cut_off(shards):
    edit_run(shards[1], lambda info: replace(info, wall_s=None))
    (shards[1] / "inflight-gw0.jsonl").write_text(RECORDS[1].to_line())


def truncated(shards):
    file = shards[2] / "records.jsonl.gz"
    file.write_bytes(file.read_bytes()[:-20])


def with_field(**fields):
    return lambda lines: [json.dumps({**json.loads(line), **fields}).encode() + b"\n" for line in lines]


def fifo_artefact(shards):
    (shards[1] / "artefacts").mkdir()
    os.mkfifo(shards[1] / "artefacts" / "pipe")


def unmerged(shards):
    (shards[2] / "records.jsonl.gz").rename(shards[2] / "records-gw0.jsonl")


def exchanged_environment(shards):
    shutil.copy(shards[0] / "environment.json", shards[1] / "environment.json")


WRONG = {
    "another seed": (
        lambda shards: edit_plan(shards[1], seed=1),
        "{2}: its plan differs from the first shard's in seed: 1",
    ),
    "another tier": (lambda shards: edit_plan(shards[1], tier="full"), "{2}: its plan differs .* in tier: 'full'"),
    "other targets": (lambda shards: edit_plan(shards[1], targets=("sm_90",)), r"{2}: .* in targets: \('sm_90',\)"),
    "another stack": (
        lambda shards: edit_plan(shards[2], stack={**STACK, "triton": "3.9.0"}),
        "{3}: its plan differs .* in the stack: triton '3.9.0', and '3.7.1' there",
    ),
    "another harness": (
        lambda shards: edit_plan(shards[2], harness=("e" * 64,)),
        "{3}: .* in the code of the harness or of the suites",
    ),
    "other options": (
        lambda shards: edit_plan(shards[2], options={"repeats": 2, "compile_only": False}),
        "{3}: .* in options: repeats 2, and 1 there",
    ),
    "other durations": (
        lambda shards: edit_plan(shards[1], durations="e" * 64),
        "{2}: .* the durations by which it was cut",
    ),
    "another selection": (
        lambda shards: edit_plan(shards[1], cases=(4, 4, 4)),
        "{2}: .* selected cases: 12, and 11 there",
    ),
    "another number of shards": (
        lambda shards: edit_plan(shards[1], cases=(5, 6), case_lists=("0" * 64,) * 2),
        "{2}: .* number of shards: 2, and 3",
    ),
    "another assembler, by the bill": (
        lambda shards: edit_run(shards[1], lambda info: replace(info, bill={"ptxas": "2"})),
        "{2}: it ran with another stack: ptxas is 2, and 1 in the first shard",
    ),
    "a variable that changes code in one shard": (
        lambda shards: edit_run(shards[1], lambda info: replace(info, bill={**info.bill, "env TRITON_X": "0"})),
        "{2}: it ran with another stack: env TRITON_X is 0, and None in the first shard",
    ),
    "other cases chosen": (
        lambda shards: edit_environment(shards[1], options=["-q", "-k", "case", "--shard=2/3"]),
        "{2}: its cases were chosen by -k case",
    ),
    "a plan that was changed": (
        lambda shards: edit_run(
            shards[1], lambda info: replace(info, shard=replace(info.shard, plan=replace(info.shard.plan, seed=1)))
        ),
        "{2}: run.json was changed: its plan has another digest",
    ),
    "a plan without the cases of a shard": (
        lambda shards: [edit_plan(shard, case_lists=("0" * 64,)) for shard in shards],
        "{1}: run.json was changed: its plan does not have the cases of each shard",
    ),
    "a seed that was changed": (
        lambda shards: edit_run(shards[1], lambda info: replace(info, seed=1)),
        "{2}: run.json was changed: it has another tier, seed or target than its plan",
    ),
    "a shard that is missing": (lambda shards: shards.pop(1), "{1}: the other shards of its run are missing: 2/3"),
    "a shard that comes twice": (
        lambda shards: shards.append(shutil.copytree(shards[1], shards[1].with_name("again"))),
        "again: the shard 2/3 comes twice",
    ),
    "the same folder twice": (
        lambda shards: shards.append(shards[0] / ".." / "shard-1"),
        r"shard-1/\.\./shard-1: the same folder as {1}; give each once",
    ),
    "a number that there is not": (
        lambda shards: edit_run(shards[2], lambda info: replace(info, shard=replace(info.shard, number=4))),
        "{3}: it is the shard 4 of a plan of 3 shards",
    ),
    "a case in two shards": (moved, "{1}: 1 cases are in {2}, too: test_a.py::test_b"),
    "a case that none has": (
        lambda shards: edit_lines(shards[1], lambda lines: lines[1:], own_digest=True),
        "{2}: its plan has 1 cases that no shard recorded: test_a.py::test_b",
    ),
    "a case that is not of the plan": (
        lambda shards: edit_lines(
            shards[1], lambda lines: [*lines, record(99, Status.PASS).to_line().encode()], own_digest=True
        ),
        "{2}: it recorded 1 cases that are not in its plan: test_a.py::test_b.case-00099",
    ),
    "cases and a list of another shard": (
        lambda shards: [
            shutil.copy(shards[0] / name, shards[1] / name) for name in ("records.jsonl.gz", "selected.txt")
        ],
        "{2}: selected.txt and the records are not of the cases that its plan has for the shard 2/3",
    ),
    "a case recorded twice": (
        lambda shards: edit_lines(shards[0], doubled),
        "{1}: its records were changed: .* comes after",
    ),
    "a status that was changed": (
        lambda shards: edit_lines(shards[0], failing_passes),
        "{1}: records.jsonl.gz was changed: its digest is",
    ),
    "a digest of the records that is missing": (
        lambda shards: edit_run(shards[1], lambda info: replace(info, shard=replace(info.shard, records=""))),
        "{2}: records.jsonl.gz was changed: its digest is [0-9a-f]{64}, and its run wrote none",
    ),
    "a shard that did not end": (cut_off, "{2}: the run did not end: it was cut off while it ran test_a.py"),
    "a run without an exit status": (
        lambda shards: edit_run(shards[1], lambda info: replace(info, exit_status=None)),
        "{2}: the run did not end",
    ),
    "an exit status that was changed": (
        lambda shards: edit_run(shards[0], lambda info: replace(info, exit_status=0)),
        r"{1}: run.json was changed: its exit status is 0, and test_a.py::test_b\[case-00003\] failed",
    ),
    "a number of selected cases that was changed": (
        lambda shards: edit_run(shards[1], lambda info: replace(info, selected=99)),
        "{2}: run.json was changed: it selected 99 cases, and its plan has 4",
    ),
    "a stack of the run that was changed": (
        lambda shards: edit_run(shards[1], lambda info: replace(info, stack={**info.stack, "ptxas": "1"})),
        "{2}: run.json was changed: its stack is not that of its records",
    ),
    "a proof that was changed": (
        lambda shards: edit_run(shards[1], lambda info: replace(info, proof={"device": 4})),
        "{2}: run.json was changed: its counts of what proves the cases are not those of its records",
    ),
    "a stack of the environment that was changed": (
        lambda shards: edit_environment(shards[1], stack={**STACK, "device": None, "triton": "3.9.0"}),
        "{2}: environment.json was changed: its stack is not that of its plan",
    ),
    "code of the environment that was changed": (
        lambda shards: edit_environment(shards[1], code={"sha256": "e" * 64, "suites": []}),
        "{2}: it was judged by other code than its plan says",
    ),
    "a variable that one shard had": (
        lambda shards: edit_environment(shards[1], variables={"TORCHINDUCTOR_MAX_AUTOTUNE": "1"}),
        "{2}: it ran in another environment: the variable TORCHINDUCTOR_MAX_AUTOTUNE is '1', and None for the first",
    ),
    "records of another seed": (
        lambda shards: edit_lines(shards[1], with_field(seed=5), own_digest=True),
        r"{2}: its records were changed: test_a.py::test_b\[case-\d+\] is of seed 5, and the run of 0",
    ),
    "records of another tier": (
        lambda shards: edit_lines(shards[1], with_field(tier="full"), own_digest=True),
        "{2}: its records were changed: .* is of tier full, and the run of quick",
    ),
    "records of another stack": (
        lambda shards: edit_lines(shards[1], with_field(stack={"triton": "3.9.0"}), own_digest=True),
        "{2}: its records were changed: .* is of triton '3.9.0', and the run of '3.7.1'",
    ),
    "artefacts in another place": (
        lambda shards: os.symlink("/etc", shards[1] / "artefacts"),
        "{2}/artefacts is a link: the folder of the run itself is required",
    ),
    "artefacts that cannot be copied": (fifo_artefact, "{2}: its artefacts cannot be copied: .*is a named pipe"),
    "a file cut short": (truncated, "{3}: records.jsonl.gz is cut off or damaged: "),
    "a line cut short": (
        lambda shards: edit_lines(shards[2], lambda lines: [*lines[:-1], lines[-1][:-9]]),
        r"{3}: records.jsonl.gz:3 is cut off or damaged: the last line is cut short",
    ),
    "a line that is no record": (
        lambda shards: edit_lines(shards[2], lambda lines: [b"{}\n", *lines]),
        "{3}: records.jsonl.gz:1 is cut off or damaged: schema None",
    ),
    "records that were not merged": (unmerged, "{3}: there is no records.jsonl.gz"),
    "a run of no shard": (lambda shards: edit_run(shards[1], without_shard), "{2}: this is the run of no shard"),
    "a folder that is no run": (
        lambda shards: (shards[1] / "run.json").unlink(),
        "{2} is no run of a shard that ended: .*No such file",
    ),
    "an environment of another run": (exchanged_environment, "{2}: environment.json is of another run than run.json"),
    "no environment": (
        lambda shards: (shards[1] / "environment.json").unlink(),
        "{2} is no run of a shard that ended: .*environment.json",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_merges_are_refused_by_a_sentence_that_names_the_folder(shards, tmp_path, name):
    spoil, sentence = WRONG[name]
    folders = {str(number): str(shard) for number, shard in enumerate(shards, 1)}
    spoil(shards)
    for number, folder in folders.items():
        sentence = sentence.replace(f"{{{number}}}", folder)
    with pytest.raises(MergeError, match=sentence) as refused:
        merged(shards, tmp_path / "whole")
    assert "\n" not in str(refused.value)
    assert not (tmp_path / "whole").exists()
    assert not [path for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_merged_run_is_no_shard(shards, tmp_path):
    merged(shards, tmp_path / "whole")
    with pytest.raises(MergeError, match="whole: this run was merged already: give the folders of its shards"):
        merged([tmp_path / "whole"], tmp_path / "more")


def test_an_output_that_is_there_is_refused(shards, tmp_path):
    (tmp_path / "whole").mkdir()
    (tmp_path / "whole" / "notes.txt").write_text("mine")
    with pytest.raises(CommandError, match=r"--output .*whole: exists and is not an empty folder"):
        call(merge, *shards, "--output", tmp_path / "whole")
    (tmp_path / "whole" / "notes.txt").unlink()
    assert call(merge, *shards, "--output", tmp_path / "whole") == 0


@pytest.mark.parametrize(
    ("output", "sentence"),
    [
        (".", r"--output \.: the name of a new folder is required"),
        ("{base}/file/whole", "cannot be written: .*Not a directory|cannot be used: .*Not a directory"),
        ("{base}/" + "x" * 250, "cannot be written: .*File name too long"),
        ("{base}/" + "x" * 300, "cannot be used: .*File name too long"),
        ("{base}/shard-1/whole", "shard-1/whole: lies in the folder of the shard .*shard-1; give another one"),
    ],
)
def test_an_output_that_cannot_be_made_is_refused(shards, tmp_path, output, sentence):
    (tmp_path / "file").write_text("")
    with pytest.raises(CommandError, match=sentence):
        call(merge, *shards, "--output", output.format(base=tmp_path))
    assert not (shards[0] / "whole").exists()


def test_variables_that_choose_devices_and_places_may_differ(shards, tmp_path):
    for number, shard in enumerate(shards):
        variables = {"CUDA_VISIBLE_DEVICES": f"{number}", "TRITON_CACHE_DIR": f"/tmp/{number}", "OMP_NUM_THREADS": "2"}
        edit_environment(shard, variables=variables)
    assert merged(shards, tmp_path / "whole").selected == 11


# Several devices


def test_other_devices_are_refused(tmp_path):
    shards = write_shards(tmp_path, devices={1: "NVIDIA H100", 2: "NVIDIA H100", 3: "NVIDIA H200"})
    with pytest.raises(MergeError, match=r"shard-3: it ran on NVIDIA H200, and the first on NVIDIA H100: give --mixed"):
        merged(shards, tmp_path / "whole")
    shards = write_shards(tmp_path / "some", devices={1: "NVIDIA H100", 2: "NVIDIA H100"})
    with pytest.raises(MergeError, match=r"shard-3: it ran on no device, and the first on NVIDIA H100"):
        merged(shards, tmp_path / "whole")


def test_mixed_devices_are_recorded_and_said(tmp_path, capsys):
    shards = write_shards(tmp_path, devices={1: "NVIDIA H100", 2: "NVIDIA H100", 3: "NVIDIA H200"})
    assert call(merge, *shards, "--output", tmp_path / "whole", "--mixed-devices") == 0
    assert "the shards ran on several devices: NVIDIA H100, NVIDIA H200" in capsys.readouterr().out
    run = read_run(tmp_path / "whole")
    assert run.merged is not None
    assert run.merged.mixed_devices
    assert run.stack["device"] == "NVIDIA H100, NVIDIA H200"
    assert {one.stack["device"] for one in read_records(tmp_path / "whole").records} == {"NVIDIA H100", "NVIDIA H200"}
    call(compare, tmp_path / "whole", tmp_path / "whole")
    said = capsys.readouterr().out
    assert "the candidate's run was merged from shards on several devices (NVIDIA H100, NVIDIA H200)" in said
    assert "records are of several runs" not in said


def test_one_device_is_not_mixed(shards, tmp_path):
    run = merged(shards, tmp_path / "whole", mixed_devices=True)
    assert run.merged is not None
    assert not run.merged.mixed_devices


def test_times_of_other_devices_are_not_compared(tmp_path, capsys):
    def timed(us):
        figures = {"problem": "mm-64", "us": us, "samples_us": [us + step / 100 for step in range(20)]}
        return [
            record(number, Status.PASS, observed={"run": figures}, kernel="mm", target="sm_90") for number in range(6)
        ]

    def whole(name, us, last):
        devices = {1: "NVIDIA H100", 2: "NVIDIA H100", 3: last}
        shards = write_shards(tmp_path / name, timed(us), devices=devices)
        merged(shards, tmp_path / name / "whole", mixed_devices=True)
        return tmp_path / name / "whole"

    fast, slow = whole("fast", 10.0, "NVIDIA H200"), whole("slow", 20.0, "NVIDIA H20")
    call(compare, fast, slow, "--json", tmp_path / "found.json")
    slower = [one for group in json.loads((tmp_path / "found.json").read_text())["groups"] for one in group["findings"]]
    cases = {one["case"] for one in slower if one["kind"] == "SLOWER"}
    of_h100 = {one.case for one in read_records(slow).records if one.stack["device"] == "NVIDIA H100"}
    assert cases == of_h100
    assert len(of_h100) == 4
