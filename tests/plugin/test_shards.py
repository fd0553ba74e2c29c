"""Shards of tiny suites: each runs its own cases, and merged they are the whole run."""

from __future__ import annotations

import json

import pytest

from conformance.gate.shards.merge import merge
from conformance.records import FaultKind, Status, read_records, read_run

pytest_plugins = ["pytester"]

SUITES = {
    "a": """
@pytest.mark.parametrize("number", range(7))
def test_numbers(recorder, number):
    recorder.verdict("even", number != 3, "it is 3")
    assert number != 3
""",
    "b": """
@pytest.mark.parametrize("number", range(4))
def test_ends(recorder, number):
    if number == 2:
        os._exit(1)
    recorder.verdict("ended", True)

def test_left_out(recorder):
    recorder.not_applicable(Reason(ReasonCode.DTYPE, "a", "not taken"))
""",
}


@pytest.fixture
def suites(project):
    for name, source in SUITES.items():
        project.suite(name, source)
    return project


def outcomes(folder):
    """Ids with statuses, failed checks and verdicts; not times and workers."""
    return [
        (one.case, one.status, one.outcome, [(verdict.check, verdict.passed) for verdict in one.verdicts])
        for one in read_records(folder).records
    ]


def test_merged_shards_are_the_single_run_whatever_the_number_of_workers(suites):
    """If the cut depended on the number of workers, the plans would differ and merge would refuse them."""
    suites.run("-n", "1", "--run-dir=single")
    for number, workers in ((1, "1"), (2, "2"), (3, "2")):
        suites.run("-n", workers, "--shard", f"{number}/3", f"--run-dir=r{number}")
    run = merge([suites.path / f"r{number}" for number in (1, 2, 3)], suites.path / "whole")
    single = read_run(suites.path / "single")
    assert [status for _, status, *_ in outcomes(suites.path / "single")].count(Status.CRASH) == 1
    assert outcomes(suites.path / "whole") == outcomes(suites.path / "single")
    assert (run.exit_status, run.selected, run.proof) == (single.exit_status, single.selected, single.proof)


def test_a_shard_is_cut_of_what_is_selected(suites, workers):
    options = ("--suite", "a", "-k", "not 5", *workers)
    for number in (1, 2):
        suites.run("--shard", f"{number}/2", f"--run-dir=r{number}", *options)
    merge([suites.path / "r1", suites.path / "r2"], suites.path / "whole")
    cases = [one.case for one in read_records(suites.path / "whole").records]
    assert cases == [f"test_a.py::test_numbers[{number}]" for number in (0, 1, 2, 3, 4, 6)]


def test_a_shard_without_cases_ends_well(suites, workers):
    result = suites.run("--suite", "a", "--shard", "8/8", "--run-dir=empty", *workers)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["NOTHING WAS JUDGED: no case passed or failed in the shard 8/8"])
    run = read_run(suites.path / "empty")
    assert (run.selected, run.exit_status, run.shard.plan.selected) == (0, 0, 7)
    assert (suites.path / "empty" / "selected.txt").read_text() == ""
    assert len(read_records(suites.path / "empty").records) == 0


def test_a_shard_whose_cases_cannot_be_judged_ends_well(suites):
    assert suites.run("-k", "left_out", "--shard", "1/1", "--run-dir=r1").ret == 0
    assert suites.run("-k", "left_out", "--run-dir=r2").ret == pytest.ExitCode.NO_TESTS_COLLECTED
    assert merge([suites.path / "r1"], suites.path / "whole").exit_status == pytest.ExitCode.NO_TESTS_COLLECTED


def test_filters_that_match_nothing_are_refused_in_a_shard_too(suites):
    suites.refused("*-k nosuch: no case of --tier quick has that*", "-k", "nosuch", "--shard", "1/2")


def test_a_file_that_cannot_be_collected_has_its_record_in_one_shard(suites, workers):
    suites.suite("broken", "raise RuntimeError('no')\n")
    for number in (1, 2):
        result = suites.run(
            "--suite", "a", "--suite", "broken", "--shard", f"{number}/2", f"--run-dir=r{number}", *workers
        )
        assert result.ret == 1
    run = merge([suites.path / "r1", suites.path / "r2"], suites.path / "whole")
    records = {one.case: one for one in read_records(suites.path / "whole").records}
    assert records["test_broken.py"].outcome == "failed in collection"
    assert FaultKind.OTHER_TEST in {fault.kind for fault in run.faults}


def test_durations_of_a_run_decide_the_cut(suites):
    suites.run("--suite", "a", "--run-dir=before")
    lines = (json.loads(one.to_line()) for one in read_records(suites.path / "before").records)
    slow = [{**line, "durations": {"total": 60.0 if "[4]" in line["case"] else 1.0}} for line in lines]
    (suites.path / "slow.jsonl").write_text("".join(json.dumps(line) + "\n" for line in slow))
    selected, plans = {}, set()
    for source in ("before", "slow.jsonl"):
        suites.run("--suite", "a", "--shard", "1/2", "--durations-from", source, f"--run-dir=from-{source}")
        selected[source] = (suites.path / f"from-{source}" / "selected.txt").read_text().split()
        plans.add(read_run(suites.path / f"from-{source}").shard.plan.durations)
    assert selected["slow.jsonl"] == ["test_a.py::test_numbers[4]"]
    assert len(plans) == 2


def test_only_the_cases_of_a_shard_are_listed(suites):
    listed = []
    for number in (1, 2):
        result = suites.run("--collect-only", "-q", "--suite", "a", "--shard", f"{number}/2")
        listed += [line for line in result.outlines if "::" in line]
    assert sorted(listed) == [f"suites/test_a.py::test_numbers[{number}]" for number in range(7)]


def test_a_failed_case_of_a_shard_is_judged_again(suites):
    suites.run("-n", "1", "--suite", "a", "--shard", "1/2", "--run-dir=r1", "--conformance-reruns", "1")
    suites.run("-n", "1", "--suite", "a", "--shard", "2/2", "--run-dir=r2", "--conformance-reruns", "1")
    merge([suites.path / "r1", suites.path / "r2"], suites.path / "whole")
    reruns = {one.case: one.reruns for one in read_records(suites.path / "whole").records if one.status is Status.FAIL}
    assert [len(tries) for tries in reruns.values()] == [1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--shard", "4/3"), "*--shard 4/3: a shard from 1/3 to 3/3 is required*"),
        (("--durations-from", "x"), "*--durations-from says how shards are cut: give --shard, too*"),
        (("--shard", "1/3", "--durations-from", "nowhere"), "*--durations-from: *nowhere holds no records: *"),
        (
            ("--shard", "1/3", "--durations-from", "pytest.ini"),
            "*--durations-from: *pytest.ini is damaged: pytest.ini:1*",
        ),
    ],
)
def test_what_cannot_be_used_is_refused(suites, words, message):
    suites.refused(message, *words)
