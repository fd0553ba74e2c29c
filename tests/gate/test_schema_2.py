"""Records of schema 2 are still read, compared and verified.

``schema_2/bundle.zip`` was packed and signed by the last version that wrote schema 2; ``key.pub.pem`` is its key.
``records.jsonl`` has lines of a run on an H200.
"""

from __future__ import annotations

import json
from pathlib import Path

from conformance.commands import verify
from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.verdict.compare import compare
from conformance.records import Status, from_line, jsonable, read_records
from tests.command_runs import call, write_run
from tests.gate.sample_bundles import CODE

OLD = Path(__file__).parent / "schema_2"
LINES = (OLD / "records.jsonl").read_text().splitlines()


def test_a_record_is_what_its_line_says():
    assert {from_line(line).status for line in LINES} > {Status.PASS, Status.NOT_APPLICABLE, Status.NOT_RUN}
    for line in LINES:
        data = json.loads(line)
        assert data["schema"] == 2
        assert {**jsonable(from_line(line)), "schema": 2} == {**data, "fault": None}  # a later field


def test_a_record_is_written_in_the_same_shape():
    for line in LINES:
        data = json.loads(line)
        assert json.loads(from_line(line).to_line()) == {**data, "fault": None, "schema": 4}


def test_an_old_run_is_compared_with_a_new_one(tmp_path):
    new = write_run(tmp_path / "new", read_records(OLD / "records.jsonl").records)
    old, now = read_compared_run(OLD / "records.jsonl"), read_compared_run(new / "records.jsonl")
    assert (old.problems, now.problems) == ((), ())
    assert [*old.records.in_order()] == [*now.records.in_order()]
    assert [group.kind.value for group in compare(old, now).groups if group.kind.value != "STILL_FAIL"] == []


def test_a_bundle_is_verified(capsys):
    assert call(verify, OLD / "bundle.zip", "--key", OLD / "key.pub.pem", "--code-digest", CODE) == 0
    assert capsys.readouterr().out.startswith("VERIFIED")
