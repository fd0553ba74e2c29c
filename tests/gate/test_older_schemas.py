"""Records of schemas 1 to 3 are still read, compared and verified.

``schema_N/bundle.zip`` was packed and signed by the last version that wrote schema N; ``key.pub.pem`` is its key.
``records.jsonl`` has lines of a run on an H200; for schema 3 they have every short form, and ``in_full.jsonl`` is what
that version read from them. Schema 1 called an expected failure "waived".
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
from conformance.records import RUN_FILE, RecordError, Status, from_line, jsonable, read_records, read_run
from tests.command_runs import call, write_run
from tests.gate.sample_bundles import CODE

SCHEMA_1, SCHEMA_2, SCHEMA_3 = (Path(__file__).parent / f"schema_{number}" for number in (1, 2, 3))
LINES_2, LINES_3 = ((folder / "records.jsonl").read_text().splitlines() for folder in (SCHEMA_2, SCHEMA_3))
CASE = "test_a.py::test_b[case-00001]"


@pytest.fixture
def members() -> dict[str, bytes]:
    return dict(read_archive((SCHEMA_1 / "bundle.zip").read_bytes()))


@pytest.fixture
def folder(members, tmp_path) -> Path:
    """The folder of the run of schema 1 that the bundle was made of."""
    for name in ("records.jsonl", RUN_FILE):
        (tmp_path / name).write_bytes(members[name])
    return tmp_path


@pytest.mark.parametrize("place", [SCHEMA_1, SCHEMA_2, SCHEMA_3], ids=lambda place: place.name)
def test_a_bundle_is_verified(capsys, place):
    assert call(verify, place / "bundle.zip", "--key", place / "key.pub.pem", "--code-digest", CODE) == 0
    output = capsys.readouterr().out
    assert output.startswith("VERIFIED")
    if place == SCHEMA_1:
        assert "1 expected-fail, 1 not-applicable, 1 pass" in output or "1 waived" in output


def test_records_and_the_run_of_schema_1_are_read(folder):
    lines = (folder / "records.jsonl").read_text().splitlines()
    written = [(data["schema"], data["status"]) for data in map(json.loads, lines)]
    assert written == [(1, "pass"), (1, "waived"), (1, "not-applicable")]
    reading = read_records(folder)
    assert reading.problems == ()
    assert [record.status for record in reading.records] == [Status.PASS, Status.EXPECTED_FAIL, Status.NOT_APPLICABLE]
    assert '"status":"expected-fail"' in reading.records[1].to_line()
    assert from_line(reading.records[1].to_line()) == reading.records[1]
    assert read_run(folder).id == "sample"


def test_a_run_of_schema_1_is_compared_with_a_new_one(folder, tmp_path):
    new = write_run(tmp_path / "new", read_records(folder).records, read_run(folder))
    old, now = read_compared_run(folder), read_compared_run(new)
    assert (old.problems, now.problems) == ((), ())
    assert old.statuses() == now.statuses() == {"pass": 1, "expected-fail": 1, "not-applicable": 1}
    assert compare(old, now).groups == ()


@pytest.mark.parametrize("place", [SCHEMA_2, SCHEMA_3], ids=lambda place: place.name)
def test_old_records_are_compared_with_a_new_run(tmp_path, place):
    new = write_run(tmp_path / "new", read_records(place / "records.jsonl").records)
    old, now = read_compared_run(place / "records.jsonl"), read_compared_run(new)
    assert old.problems == now.problems[1:] == ()
    assert [*old.records.in_order()] == [*now.records.in_order()]
    assert {group.kind.value for group in compare(old, now).groups} <= {"STILL_FAIL"}


def test_a_mustpass_list_may_name_the_outcome_of_schema_1(members):
    text = members["mustpass/baseline.txt"].decode()
    before = mustpass_lists.parsed(text, "baseline.txt")
    lines = [f"waived {case}\n" if case == CASE else f"{owed} {case}\n" for case, owed in before.outcomes.items()]
    text = text.replace(f"pass {CASE}", f"waived {CASE}")
    text = text.replace(text.split("sha256: ")[1].split("\n")[0], mustpass_lists._digest(lines))
    assert mustpass_lists.parsed(text, "baseline.txt").outcomes[CASE] == "expected-fail"


def test_a_statement_uses_the_names_of_its_schema(members):
    del members[ENVELOPE_FILE]
    for schema, name in ((1, "waived"), (SCHEMA, "expected-fail")):
        statuses = build_statement(members, parse(members), schema)["predicate"][EXTENSION]["statuses"]
        assert statuses == {"pass": 1, name: 1, "not-applicable": 1}


def test_a_record_of_schema_2_is_what_its_line_says_and_is_written_in_the_same_shape():
    assert {from_line(line).status for line in LINES_2} > {Status.PASS, Status.NOT_APPLICABLE, Status.NOT_RUN}
    for line in LINES_2:
        data = {**json.loads(line), "fault": None, "reruns": []}  # later fields
        assert data["schema"] == 2
        assert {**jsonable(from_line(line)), "schema": 2} == data
        assert json.loads(from_line(line).to_line()) == {**data, "schema": 4}


def test_a_short_line_is_read_in_full():
    in_full = (SCHEMA_3 / "in_full.jsonl").read_text().splitlines()
    for line, full in zip(LINES_3, in_full, strict=True):
        assert json.loads(line)["schema"] == 3
        assert jsonable(from_line(line)) == json.loads(full)


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"case": None}, "case: Expected `str`, got None"),
        ({"seed": True}, "seed: Expected `int | null`, got True"),
        ({"verdicts": [{"check": "a", "passed": True}]}, "no verdict: "),
        ({"verdicts": [["a"]]}, "no verdict: "),
        ({"verdicts": [["a", 1]]}, "no verdict: "),
        ({"verdicts": [["a", True, "text", {}, 1]]}, "no verdict: "),
        ({"verdicts": [["a", True, 1]]}, "Expected `str`, got `int`"),
        ({"verdicts": [["memory", False, [4, 2]]]}, "Expected `str`, got `array`"),
        ({"verdicts": [["memory", False]], "status": "pass"}, "status pass, and the check 'memory' failed"),
        ({"verdicts": [], "status": "pass"}, "status pass, and nothing was judged"),
        *(
            ({"verdicts": [["memory", True, form]]}, "no standard form of a verdict")
            for form in ([], [4], [4, "2"], [9], ["x"], [[]], [3, 99, "ptx"], [3, -1, "ptx"])
        ),
        *(
            ({"problem": problem}, "not usable: ")
            for problem in (
                {"=": 9},
                {"=": "x"},
                {"=": 0, "id": "row"},
                {"=": 0, "id": 1, "order": 1, "more": 1},
                {"=": -1},
            )
        ),
        ({"artefacts": ["a"]}, "not usable: "),
        ({"artefacts": {"ttir": 3}}, "artefacts: Expected `str`"),
        ({"repro": []}, "not usable: "),
    ],
)
def test_invalid_short_lines_are_refused(fields, message):
    line = {"case": "c", "suite": "a", "status": "fail", **fields, "schema": 3}
    with pytest.raises(RecordError) as error:
        from_line(json.dumps(line))
    assert message in str(error.value)
