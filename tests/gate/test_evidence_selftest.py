"""The result of a self-test in a bundle: signed, shown, and refused if it was changed or is of another stack."""

from __future__ import annotations

import dataclasses
import json

import pytest
from msgspec.structs import replace

from conformance.commands import bundle, verify
from conformance.gate.evidence.archive import Rejected, RejectReason, encode, read_archive, write_archive
from conformance.gate.evidence.contents import ENVELOPE_FILE, parse
from conformance.gate.evidence.selftest_result import (
    SELFTEST_FILE,
    FaultResult,
    SelftestResult,
    read_selftest,
    to_json,
)
from conformance.gate.evidence.signatures import seal
from conformance.gate.evidence.statement import build_statement
from conformance.gate.evidence.verify import verify as verified
from tests.command_runs import call
from tests.gate.sample_bundles import CODE, STACK, STARTED, sample

SEEN = FaultResult("wrong-tile", "a tile", "fail by numerics/", "fail", "numerics/randn", 2, 2)
COSTLY = replace(SEEN, name="host-segfault", passed=1, problems=("the innocent case of innocent_1 ended as crash",))
RESULT = SelftestResult(1, STARTED, 60.5, CODE, dict(STACK), "NVIDIA H200", (SEEN, COSTLY), ("compiler-hang",))


def policy(evidence):
    return dataclasses.replace(evidence.policy, waivers=None, mustpass=None)


@pytest.fixture
def evidence(tmp_path):
    return sample(tmp_path)


@pytest.fixture
def bundled(evidence, tmp_path):
    """Bundles the sample with the result of a self-test, given as bytes, and returns the bundle."""

    def run(content: bytes) -> bytes:
        (tmp_path / "proof.json").write_bytes(content)
        words = ["--key", tmp_path / "ours.pem", "--selftest", tmp_path / "proof.json", "--output", tmp_path / "b.zip"]
        assert call(bundle, evidence.folder, *words) == 0
        return (tmp_path / "b.zip").read_bytes()

    return run


@pytest.mark.parametrize(
    ("result", "line"),
    [
        (RESULT, "1 of 2 faults contained on NVIDIA H200; NOT CONTAINED: host-segfault; 1 left out"),
        (replace(RESULT, faults=(SEEN,), left_out=()), "1 of 1 faults contained on NVIDIA H200,"),
        (None, "no selftest"),
    ],
)
def test_verify_shows_it(evidence, bundled, tmp_path, capsys, result, line):
    (tmp_path / "b.zip").write_bytes(evidence.data if result is None else bundled(to_json(result)))
    words = [tmp_path / "b.zip", "--key", tmp_path / "ours.pub.pem", "--code-digest", CODE]
    capsys.readouterr()
    assert call(verify, *words) == 0
    (row,) = [row for row in capsys.readouterr().out.split("\n") if row.startswith("selftest")]
    assert line in row


def test_the_statement_names_each_fault(evidence, bundled):
    statement = verified(bundled(to_json(RESULT)), policy(evidence)).statement
    selftest = statement["predicate"]["triton-conformance"]["selftest"]
    assert selftest == {
        "started": STARTED,
        "device": "NVIDIA H200",
        "contained": ["wrong-tile"],
        "not_contained": ["host-segfault"],
        "not_run": [],
        "left_out": ["compiler-hang"],
    }


def rejection(data, evidence) -> RejectReason:
    with pytest.raises(Rejected) as caught:
        verified(data, policy(evidence))
    return caught.value.reason


def test_a_changed_result_is_rejected(evidence, bundled):
    members = read_archive(bundled(to_json(RESULT)))
    better = to_json(replace(RESULT, faults=(SEEN,)))
    changed = {**members, SELFTEST_FILE: better}
    assert rejection(write_archive(changed), evidence) is RejectReason.MEMBERS
    removed = {name: content for name, content in members.items() if name != SELFTEST_FILE}
    assert rejection(write_archive(removed), evidence) is RejectReason.MEMBERS


def test_a_claim_that_does_not_follow_is_rejected_whoever_signs_it(evidence, bundled):
    members = read_archive(bundled(to_json(RESULT)))
    del members[ENVELOPE_FILE]
    statement = build_statement(members, parse(members))
    selftest = statement["predicate"]["triton-conformance"]["selftest"]
    selftest["contained"], selftest["not_contained"] = ["host-segfault", "wrong-tile"], []
    forged = write_archive({**members, ENVELOPE_FILE: seal(encode(statement), evidence.key)})
    assert rejection(forged, evidence) is RejectReason.STATEMENT


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"code_sha256": "ab" * 32}, "the self-test is of code"),
        ({"stack": {**STACK, "triton": "3.6.0"}}, "the self-test is of triton '3.6.0'"),
        ({"stack": {}}, "the self-test is of torch None"),
    ],
)
def test_one_of_another_stack_is_no_part_of_the_evidence(bundled, changes, message):
    with pytest.raises(Exception, match=message):
        bundled(to_json(replace(RESULT, **changes)))


def edited(**changes) -> bytes:
    return json.dumps({**json.loads(to_json(RESULT)), **changes}).encode()


ROW = json.loads(to_json(RESULT))["faults"][0]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"[]",
        b'{"schema": 1}',
        to_json(RESULT)[:-20],
        to_json(RESULT).replace(b'"schema":1', b'"schema":1,"schema":1'),
        edited(schema=2),
        edited(schema=True),
        edited(device="\ud800"),
        edited(more=1),
        edited(seconds="60"),
        edited(faults=[{**ROW, "contained": True}]),
        edited(faults=[{**ROW, "passed": 3}]),
        edited(faults=[{**ROW, "observed": ""}]),
        edited(faults=[ROW, ROW]),
        edited(left_out=["wrong-tile"]),
    ],
)
def test_what_a_selftest_does_not_write_is_rejected(content):
    with pytest.raises(Rejected):
        read_selftest(content)
