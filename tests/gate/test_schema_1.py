"""Records of schema 1, which called an expected failure "waived", are still read and verified.

``schema_1/bundle.zip`` was packed and signed by the last version that wrote schema 1; ``key.pub.pem`` is its key.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.commands import verify
from conformance.gate.evidence.archive import read_archive
from conformance.gate.evidence.contents import ENVELOPE_FILE, parse
from conformance.gate.evidence.statement import EXTENSION, SCHEMA, build_statement
from conformance.gate.mustpass import mustpass_lists
from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.verdict.compare import compare
from conformance.records import RUN_FILE, Status, from_line, read_records, read_run
from tests.command_runs import call, write_run
from tests.gate.sample_bundles import CODE

OLD = Path(__file__).parent / "schema_1"
CASE = "test_a.py::test_b[case-00001]"


@pytest.fixture
def members() -> dict[str, bytes]:
    return dict(read_archive((OLD / "bundle.zip").read_bytes()))


@pytest.fixture
def folder(members, tmp_path) -> Path:
    """The run's folder that the bundle was made of."""
    for name in ("records.jsonl", RUN_FILE):
        (tmp_path / name).write_bytes(members[name])
    return tmp_path


def test_the_files_are_old(members):
    lines = members["records.jsonl"].decode().splitlines()
    assert [(json.loads(line)["schema"], json.loads(line)["status"]) for line in lines] == [
        (1, "pass"),
        (1, "waived"),
        (1, "not-applicable"),
    ]


def test_records_and_the_run_are_read(folder):
    reading = read_records(folder)
    assert reading.problems == ()
    assert [record.status for record in reading.records] == [Status.PASS, Status.EXPECTED_FAIL, Status.NOT_APPLICABLE]
    assert '"status":"expected-fail"' in reading.records[1].to_line()
    assert from_line(reading.records[1].to_line()) == reading.records[1]
    assert read_run(folder).id == "sample"


def test_an_old_run_is_compared_with_a_new_one(folder, tmp_path):
    new = write_run(tmp_path / "new", read_records(folder).records, read_run(folder))
    old, now = read_compared_run(folder), read_compared_run(new)
    assert (old.problems, now.problems) == ((), ())
    assert old.statuses() == now.statuses() == {"pass": 1, "expected-fail": 1, "not-applicable": 1}
    assert compare(old, now).groups == ()


def test_a_mustpass_list_may_name_the_old_outcome(members):
    text = members["mustpass/baseline.txt"].decode()
    before = mustpass_lists.parsed(text, "baseline.txt")
    lines = [f"waived {case}\n" if case == CASE else f"{owed} {case}\n" for case, owed in before.outcomes.items()]
    text = text.replace(f"pass {CASE}", f"waived {CASE}")
    text = text.replace(text.split("sha256: ")[1].split("\n")[0], mustpass_lists._digest(lines))
    assert mustpass_lists.parsed(text, "baseline.txt").outcomes[CASE] == "expected-fail"


def test_a_bundle_is_verified(capsys):
    assert call(verify, OLD / "bundle.zip", "--key", OLD / "key.pub.pem", "--code-digest", CODE) == 0
    output = capsys.readouterr().out
    assert output.startswith("VERIFIED")
    assert "1 expected-fail, 1 not-applicable, 1 pass" in output or "1 waived" in output


def test_a_statement_uses_the_names_of_its_schema(members):
    del members[ENVELOPE_FILE]
    contents = parse(members)

    def statuses(schema: int) -> dict[str, int]:
        return dict(build_statement(members, contents, schema)["predicate"][EXTENSION]["statuses"])

    assert statuses(1) == {"pass": 1, "waived": 1, "not-applicable": 1}
    assert statuses(SCHEMA) == {"pass": 1, "expected-fail": 1, "not-applicable": 1}
