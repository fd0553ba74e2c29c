"""``conformance records``: the plain lines of a run, whatever form its files have."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path

import pytest

from conformance import cli
from conformance.records import CaseRecord, RunInfo, Status, from_line, jsonable
from tests.gate.test_older_schemas import SCHEMA_3

RECORDS = [CaseRecord(f"test_a.py::test_x[{case}]", "a", Status.FAIL, diagnosis="\u00e9" * 9) for case in "abc"]
LINES = "".join(record.to_line() for record in RECORDS)


def in_parts(folder: Path) -> Path:
    first, *others = LINES.splitlines(keepends=True)
    (folder / "records-gw0.jsonl").write_text(first)
    (folder / "records-gw1.jsonl").write_text("".join(others))
    return folder


def as_file(name: str, content: bytes, within: bool):
    def write(folder: Path) -> Path:
        (folder / name).write_bytes(content)
        return folder if within else folder / name

    return write


FORMS = {
    "a run": as_file("records.jsonl.gz", gzip.compress(LINES.encode()), within=True),
    "its file": as_file("records.jsonl.gz", gzip.compress(LINES.encode()), within=False),
    "an older run": as_file("records.jsonl", LINES.encode(), within=True),
    "its plain file": as_file("any.name", LINES.encode(), within=False),
    "other ends of lines": as_file("records.jsonl", LINES.replace("\n", "\r\n").rstrip().encode(), within=True),
    "parts": in_parts,
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_of_a_run_gives_its_plain_lines(tmp_path, capsys, form):
    assert cli.main(["records", str(FORMS[form](tmp_path))]) == 0
    assert capsys.readouterr() == (LINES, "")


def test_a_lone_surrogate_is_replaced(tmp_path, capsys):
    (tmp_path / "records.jsonl").write_text(LINES.replace("\u00e9", "\\ud800"))
    assert cli.main(["records", str(tmp_path)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [from_line(line).case for line in lines] == [record.case for record in RECORDS]


def test_records_of_an_older_version_have_the_names_of_this_one(capsys):
    assert cli.main(["records", str(SCHEMA_3 / "records.jsonl")]) == 0
    lines = capsys.readouterr().out.splitlines()
    for line, in_full in zip(lines, (SCHEMA_3 / "in_full.jsonl").read_text().splitlines(), strict=True):
        assert json.loads(line) == {"schema": 4, **json.loads(in_full)}
        assert from_line(line).to_line() == line + "\n"


def test_lines_that_cannot_be_used_are_counted_and_the_others_printed(tmp_path, capsys):
    (tmp_path / "records.jsonl").write_text("{}\n" + LINES + '{"torn')
    assert cli.main(["records", str(tmp_path)]) == 1
    out, err = capsys.readouterr()
    assert out == LINES
    assert err.startswith("conformance: records.jsonl:1: schema None")
    assert err.endswith("; 1 more problems\n")


def test_a_run_that_was_cut_off_says_so(tmp_path, capsys):
    in_parts(tmp_path)
    info = RunInfo("r", "2026-01-01T00:00:00+00:00", "quick", 0, selected=9)
    (tmp_path / "run.json").write_text(json.dumps(jsonable(info)))
    (tmp_path / "selected.txt").write_text("case\n" * 9)
    assert cli.main(["records", str(tmp_path)]) == 0
    out, err = capsys.readouterr()
    assert out == LINES
    assert "the run did not end: it was cut off; selected cases without a record: 6" in err


@pytest.mark.parametrize("name", ["run.zip", "run.json", "cut.gz", "folder"])
def test_what_is_no_run_is_an_error_in_a_line(tmp_path, capsys, name):
    path = tmp_path / name
    if name == "folder":
        path.mkdir()
    else:
        data = {"run.zip": (SCHEMA_3 / "bundle.zip").read_bytes(), "run.json": b'{\n"id": 1\n}\n'}
        path.write_bytes(data.get(name, gzip.compress(LINES.encode())[:-9]))
    assert cli.main(["records", str(path)]) == 2
    out, err = capsys.readouterr()
    assert (out, err.count("\n"), name in err) == ("", 1, True)


def test_a_reader_that_has_enough_ends_the_command_quietly(tmp_path):
    (tmp_path / "records.jsonl").write_text(LINES * 2000)
    words = [sys.executable, "-m", "conformance", "records", str(tmp_path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as command:
        assert command.stdout is not None
        assert command.stderr is not None
        assert command.stdout.readline().decode() == LINES.splitlines(keepends=True)[0]
        command.stdout.close()
        assert command.stderr.read() == b""
        assert command.wait(60) == 0
