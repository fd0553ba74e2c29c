"""The durations by which shards are cut: of a run, of a file, and what stands for a missing figure."""

from __future__ import annotations

import json
import os
from dataclasses import replace

import pytest

from conformance.commands import CommandError, durations
from conformance.records import CaseRecord, Status
from conformance.shards.durations import (
    EQUAL_MS,
    Durations,
    DurationsError,
    file_text,
    package_durations,
    read_durations,
    weights_digest,
)
from tests.command_runs import JUDGED, call, write_run


def record(case, seconds, gpu=None):
    return CaseRecord(case, "a", Status.PASS, verdicts=JUDGED, durations={"total": seconds}, gpu=gpu)


RECORDS = [record(f"test_a.py::test_x[mm-{number}]", number / 10) for number in (1, 2, 9)]
RECORDS += [record("test_b.py::test_y[mm-1]", 5.0), record("test_b.py::test_y[addmm-1]", 7.0, gpu="0")]


def test_a_run_has_a_figure_for_each_case(tmp_path):
    read = read_durations(write_run(tmp_path / "run", RECORDS), has_gpu=False)
    cases = ["test_a.py::test_x[mm-9]", "test_a.py::test_x[new]", "test_b.py::test_z[mm]", "test_c.py::test_n"]
    assert list(read.weights(cases).values()) == [900, 200, 5000, 900]


def test_a_case_without_a_figure_has_the_median_of_its_suite():
    figures = Durations({"test_a.py::test_x[mm": 3, "test_a.py::test_x[addmm": 5, "test_b.py::test_y[mm": 40})
    cases = ["test_a.py::test_x[mm-bf16]", "test_a.py::test_other[int_mm-1]", "test_c.py::test_z[mm]"]
    assert list(figures.weights(cases).values()) == [3, 3, 5]


def test_without_figures_all_cases_are_equal():
    assert Durations({}).weights(["a", "b"]) == {"a": EQUAL_MS, "b": EQUAL_MS}
    assert Durations({"a": 0}).weights(["a"]) == {"a": 1}


def test_the_digest_is_that_of_all_figures_in_any_order():
    assert weights_digest({"a": 1, "b": 2}) == weights_digest({"b": 2, "a": 1})
    assert weights_digest({"a": 1, "b": 2}) != weights_digest({"a": 2, "b": 1})
    assert weights_digest({"a": 1, "b": 2}) != weights_digest({"a": 1, "c": 2})


def test_a_file_has_medians_by_test_and_kernel(tmp_path, capsys):
    run = write_run(tmp_path / "run", RECORDS)
    assert call(durations, run, "--output", tmp_path / "d.json") == 0
    content = json.loads((tmp_path / "d.json").read_text())
    assert content["without_gpu"] == {"test_a.py::test_x[mm": 200, "test_b.py::test_y[mm": 5000}
    assert content["with_gpu"] == {"test_b.py::test_y[addmm": 7000}
    cases = ["test_a.py::test_x[mm-any]"]
    assert read_durations(tmp_path / "d.json", has_gpu=False).weights(cases) == {cases[0]: 200}
    assert read_durations(tmp_path / "d.json", has_gpu=True).weights(cases) == {cases[0]: 7000}


def test_figures_that_are_there_stay_where_the_runs_have_none(tmp_path):
    earlier = tmp_path / "d.json"
    earlier.write_text(file_text(RECORDS))
    later = json.loads(file_text([replace(RECORDS[0], durations={"total": 1.0})], earlier))
    assert later["without_gpu"] == {"test_a.py::test_x[mm": 1000, "test_b.py::test_y[mm": 5000}


@pytest.mark.parametrize("has_gpu", [False, True])
def test_the_package_has_figures_of_its_own(has_gpu):
    weights = package_durations(has_gpu).weights(["test_transposition.py::test_transposed_operands[mm-x]"])
    assert weights != {"test_transposition.py::test_transposed_operands[mm-x]": EQUAL_MS}


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("run.jsonl", '{"schema": 4}\n', "is damaged: run.jsonl:1"),
        ("run.jsonl", record("test_a.py::a", 0).to_line().replace('"total":0', '"run":0'), "has no durations"),
        ("d.json", b"\xff", "is no file that 'conformance durations' wrote"),
        ("d.json", "{}", "is no file that 'conformance durations' wrote"),
        ("d.json", '{"schema": 2, "with_gpu": {}, "without_gpu": {}}', "has schema 2: this version reads schema 1"),
        ("d.json", '{"schema": 1, "with_gpu": {}, "without_gpu": {"a": "b"}}', "Expected `int`, got `str`"),
        ("d.json", None, "cannot be read"),
        ("d.json", '{"schema": 1, "with_gpu": {"a": 1}, "without_gpu": {}}', "has no figures of runs without a GPU"),
        ("d.json", '{"schema": 1, "with_gpu": {}, "without_gpu": {"a": -5}}', ": a took -5 ms: from 0 to"),
        ("d.json", '{"schema": 1, "with_gpu": {}, "without_gpu": {"a": 1e400}}', "is no file that"),
        ("d.json", '{"schema": 1, "with_gpu": {}, "without_gpu": {"a": 5, "a": 7}}', "it has a name twice"),
        ("d.json", "[" * 100_000, "is no file that"),
        ("run.jsonl", record("test_a.py::a", -3.0).to_line(), ": test_a.py::a took -3000 ms: from 0 to"),
        ("run.jsonl", record("test_a.py::a", 1e300).to_line(), "test_a.py::a took 1e+303 ms"),
    ],
)
def test_what_cannot_be_used_gets_one_sentence(tmp_path, name, content, sentence):
    if content is not None:
        (tmp_path / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(DurationsError) as refused:
        read_durations(tmp_path / name, has_gpu=False)
    assert str(tmp_path / name) in str(refused.value)
    assert sentence in str(refused.value)


def test_a_file_that_is_none_is_not_written_over(tmp_path):
    (tmp_path / "d.json").write_text("[]")
    run = write_run(tmp_path / "run", RECORDS)
    with pytest.raises(CommandError, match=r"d\.json is no file that 'conformance durations' wrote"):
        call(durations, run, "--output", tmp_path / "d.json")
    assert (tmp_path / "d.json").read_text() == "[]"
    os.mkfifo(tmp_path / "fifo.json")
    with pytest.raises(CommandError, match="a file is required, and this is a fifo"):
        call(durations, run, "--output", tmp_path / "fifo.json")


@pytest.mark.parametrize(
    ("name", "content", "sentence"),
    [
        ("a.json", "{}", "a run's folder or a file of records is required"),
        ("a.jsonl", record("test_a.py::a", -3.0).to_line(), "a took -3000 ms: from 0"),
    ],
)
def test_runs_without_usable_figures_leave_no_file(tmp_path, name, content, sentence):
    (tmp_path / name).write_text(content)
    with pytest.raises(CommandError, match=sentence):
        call(durations, tmp_path / name, "--output", tmp_path / "d.json")
    assert not (tmp_path / "d.json").exists()
