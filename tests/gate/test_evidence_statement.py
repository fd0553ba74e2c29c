"""What a statement says follows from the records."""

from __future__ import annotations

import hashlib
import json

import pytest

from conformance.gate.evidence.archive import read_archive
from conformance.gate.evidence.contents import ENVELOPE_FILE, parse
from conformance.gate.evidence.statement import EXTENSION, build_statement, result_of
from conformance.records import RunInfo, Status
from tests.gate.sample_bundles import CODE, record, sample

RUN = RunInfo("a", "b", "quick", 0)
PASS = Status.PASS


@pytest.mark.parametrize(
    ("statuses", "result"),
    [
        ([PASS], "PASSED"),
        ([PASS, Status.NOT_APPLICABLE], "PASSED"),
        ([PASS, Status.EXPECTED_FAIL], "WARNED"),
        ([PASS, Status.NOT_RUN], "WARNED"),
        ([Status.NOT_APPLICABLE], "WARNED"),
        ([], "WARNED"),
        *(
            ([PASS, status, Status.EXPECTED_FAIL], "FAILED")
            for status in Status
            if status.value in ("fail", "compile-error", "crash", "timeout", "oom", "flaky", "unexpected-pass")
        ),
    ],
)
def test_the_result_follows_from_the_statuses(statuses, result):
    assert result_of([record(number, status) for number, status in enumerate(statuses)], RUN) == result


def test_a_run_with_a_problem_has_failed():
    assert result_of([record(0, PASS)], RunInfo("a", "b", "quick", 0, problems=("a record is torn",))) == "FAILED"


def test_the_statement_has_the_fields_of_its_type_and_lists_every_member(tmp_path):
    members = read_archive(sample(tmp_path).data)
    del members[ENVELOPE_FILE]
    statement = build_statement(members, parse(members))
    predicate = statement["predicate"]
    assert statement["_type"] == "https://in-toto.io/Statement/v1"
    assert statement["predicateType"] == "https://in-toto.io/attestation/test-result/v0.1"
    assert [subject["name"] for subject in statement["subject"]] == ["pkg:pypi/triton@3.7.1", "ptxas", "records.jsonl"]
    assert all(subject["digest"] for subject in statement["subject"])
    assert (predicate["result"], len(predicate["passedTests"]), len(predicate["failedTests"])) == ("FAILED", 2, 1)
    assert predicate[EXTENSION]["statuses"] == {"pass": 2, "fail": 1, "not-applicable": 1}
    assert predicate[EXTENSION]["code_sha256"] == [CODE]
    listed = {entry["name"]: (entry["sha256"], entry["size"]) for entry in predicate[EXTENSION]["members"]}
    assert listed == {name: (hashlib.sha256(text).hexdigest(), len(text)) for name, text in members.items()}
    named = [entry["name"] for entry in predicate["configuration"]]
    assert {"waivers/waivers.toml", "mustpass/baseline.txt", "environment.json"} <= set(named)
    json.dumps(statement, allow_nan=False)
