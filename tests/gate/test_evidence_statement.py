"""Every claim of a statement follows from the records."""

from __future__ import annotations

import hashlib
import json
import re

import pytest

from conformance.commands import verify as command
from conformance.faults import Fault, FaultKind
from conformance.gate.evidence.archive import read_archive
from conformance.gate.evidence.contents import ENVELOPE_FILE, parse
from conformance.gate.evidence.statement import EXTENSION, build_statement, result_of
from conformance.gate.evidence.verify import verify
from conformance.proof_level import ProofCount
from conformance.records import RunInfo, Status, Verdict
from tests.command_runs import call
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


SOURCE = {"executor": "interpreter"}
DEVICE = {"executor": "device", "verdicts": (Verdict("memory", True),)}
EXECUTED: dict[str, object] = {}  # the sample's own
CODE_ONLY = {"executor": None, "verdicts": (Verdict("codegen/requires/MMA", True), Verdict("resources", True))}
PROOFS = {
    "on a device": ([DEVICE, DEVICE], "PASSED", "device 2, TTGIR 0, interpreter 0"),
    "by TTGIR": ([EXECUTED], "PASSED", "device 0, TTGIR 1, interpreter 0"),
    "by the source": (
        [SOURCE, SOURCE],
        "PASSED (source only)",
        "device 0, TTGIR 0, interpreter 2 (source only: no compiled code was run)",
    ),
    "by code that was not run": (
        [CODE_ONLY],
        "PASSED (compiled only)",
        "device 0, TTGIR 0, interpreter 0, compiled only 1",
    ),
    "TTGIR by name only": (
        [{"executor": "ttgir", "verdicts": (Verdict("memory", True),)}],
        "PASSED (source only)",
        "device 0, TTGIR 0, interpreter 1 (source only: no compiled code was run)",
    ),
    "mixed": (
        [EXECUTED, EXECUTED, SOURCE],
        "PASSED (1 of 3 cases source only)",
        "device 0, TTGIR 2, interpreter 1 (source only: no compiled code was run)",
    ),
}


@pytest.mark.parametrize("name", PROOFS)
def test_the_statement_and_verify_say_what_proves_the_cases(name, tmp_path, capsys):
    fields, result, proven_by = PROOFS[name]
    records = [record(number, PASS, **changes) for number, changes in enumerate(fields)]
    bundle = sample(tmp_path, records=records)
    predicate = verify(bundle.data, bundle.policy).statement["predicate"]
    assert predicate["result"] == ("PASSED" if result == "PASSED" else "WARNED")
    assert predicate[EXTENSION]["result"] == result
    assert sum(predicate[EXTENSION]["proven_by"].values()) == len(records)
    (tmp_path / "run.zip").write_bytes(bundle.data)
    assert call(command, tmp_path / "run.zip", "--key", tmp_path / "ours.pub.pem", "--code-digest", CODE) == 0
    lines = dict(re.split(r" {2,}", line, maxsplit=1) for line in capsys.readouterr().out.splitlines())
    assert (lines["result"], lines["proven by"]) == (result, proven_by)


def test_a_failing_run_claims_no_proof_of_what_failed():
    records = [record(0, PASS, **SOURCE), record(1, Status.FAIL)]
    assert result_of(records, RUN) == "FAILED"
    assert ProofCount(records).by_name() == {
        "device": 0,
        "TTGIR": 0,
        "interpreter": 1,
        "compiled only": 0,
        "no kernel": 0,
    }


def test_a_run_with_a_problem_has_failed():
    assert result_of([record(0, PASS)], RunInfo("a", "b", "quick", 0, problems=("a record is torn",))) == "FAILED"


def test_a_run_whose_machine_broke_or_that_proves_too_little_has_failed():
    for kind in (FaultKind.INTERRUPTED, FaultKind.LESS_PROVEN):
        run = RunInfo("a", "b", "quick", 0, faults=(Fault.of(kind, "why"),))
        assert result_of([record(0, PASS)], run) == "FAILED"


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
