"""Records of schema 3, which had short forms, are still read, compared and verified.

``schema_3/bundle.zip`` was packed and signed by the last version that wrote schema 3; ``key.pub.pem`` is its key.
``records.jsonl`` has every short form in lines of a run on an H200, ``in_full.jsonl`` what that version read from them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conformance.commands import verify
from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.verdict.compare import compare
from conformance.records import RecordError, from_line, jsonable, read_records
from tests.command_runs import call, write_run
from tests.gate.sample_bundles import CODE

OLD = Path(__file__).parent / "schema_3"
LINES = (OLD / "records.jsonl").read_text().splitlines()
IN_FULL = (OLD / "in_full.jsonl").read_text().splitlines()


@pytest.mark.parametrize(("line", "in_full"), [*zip(LINES, IN_FULL, strict=True)])
def test_a_short_line_is_read_in_full(line, in_full):
    assert json.loads(line)["schema"] == 3
    assert jsonable(from_line(line)) == json.loads(in_full)


def test_an_old_run_is_compared_with_a_new_one(tmp_path):
    new = write_run(tmp_path / "new", read_records(OLD / "records.jsonl").records)
    old, now = read_compared_run(OLD / "records.jsonl"), read_compared_run(new)
    assert old.problems == now.problems[1:] == ()
    assert [*old.records.in_order()] == [*now.records.in_order()]
    assert [group.kind.value for group in compare(old, now).groups if group.kind.value != "STILL_FAIL"] == []


def test_a_bundle_is_verified(capsys):
    assert call(verify, OLD / "bundle.zip", "--key", OLD / "key.pub.pem", "--code-digest", CODE) == 0
    assert capsys.readouterr().out.startswith("VERIFIED")


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
