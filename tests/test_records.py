"""Records survive the way to disk and back, and what is damaged is reported."""

from __future__ import annotations

import dataclasses
import gzip
import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from conformance import records
from conformance.gate.runs.run_reader import read_compared_run
from conformance.plain_json import TEXT_LIMIT
from conformance.records import (
    CaseRecord,
    Check,
    CheckKind,
    CompileFailure,
    ConformanceFailure,
    LineProblems,
    Reason,
    ReasonCode,
    RecordError,
    RunInfo,
    Status,
    Verdict,
    each_record,
    from_line,
    incompleteness,
    jsonable,
    read_records,
    read_run,
)

RECORD = CaseRecord(
    case="test_a.py::test_b[mm]",
    suite="a",
    status=Status.NOT_RUN,
    reason=Reason(ReasonCode.NO_DEVICE, "device", "none here"),
    kernel="mm",
    problem={"id": "mm-2x3x4", "M": 2},
    durations={"run": 0.5, "total": 1},
    verdicts=(Verdict("numerics", True, "bitwise", {"ulp": 0}),),
    artefacts={"ttir": "artefacts/a.ttir"},
    diagnosis="line\nline \u2028 \x1b[2J",
)


def test_round_trip():
    line = RECORD.to_line()
    assert line.count("\n") == 1
    assert from_line(line) == RECORD


def test_jsonable():
    @dataclass(frozen=True)
    class Tile:
        m: int
        inner: object

        @property
        def id(self) -> str:
            return f"tile{self.m}"

    value = {1: Tile(3, (Status.PASS, float("inf"), Path("a/b"))), "s": {"b", "a"}}
    assert jsonable(value) == {"1": {"id": "tile3", "m": 3, "inner": ["pass", "inf", "a/b"]}, "s": ["a", "b"]}
    assert len(jsonable("x" * (TEXT_LIMIT * 2))) < TEXT_LIMIT + 40


def _changed(**fields: object) -> str:
    """The line of the record with other fields."""
    return json.dumps(
        {key: value for key, value in {**json.loads(RECORD.to_line()), **fields}.items() if value != "absent"}
    )


FAILED = {"check": "memory", "passed": False, "text": "", "details": {}}
INVALID_LINES = [
    ("", "not a line of JSON"),
    (RECORD.to_line()[:50], "not a line of JSON"),
    ("[]", "a JSON object is required, got list"),
    ("[" * 100_000, "not a line of JSON"),
    (_changed(schema=5), "schema 5: this version reads the schemas 1, 2, 3 and 4"),
    (_changed(schema="absent"), "schema None"),
    (_changed(case="absent"), "Object missing required field `case`"),
    (_changed(case=7), "case: Expected `str`, got 7"),
    (_changed(seed=True), "seed: Expected `int | null`, got True"),
    (_changed(status="splendid"), "status: Invalid enum value 'splendid'"),
    (_changed(reason={"code": "whim", "subject": "", "detail": ""}), "reason.code: Invalid enum value 'whim'"),
    (_changed(reason={"code": "dtype"}), "reason: Object missing required field `subject`"),
    (_changed(verdicts=[1]), "verdicts[0]: Expected `object`, got 1"),
    (_changed(verdicts=[{**FAILED, "passed": 1}]), "verdicts[0].passed: Expected `bool`, got 1"),
    (_changed(status="pass", verdicts=[FAILED]), "status pass, and the check 'memory' failed"),
    (_changed(status="pass", verdicts=[]), "status pass, and nothing was judged"),
    (_changed(status="pass", verdicts="absent"), "status pass, and nothing was judged"),
    (_changed(durations={"run": "long"}), "durations: Expected `float`, got {'run': 'long'}"),
    (_changed(artefacts={"ttir": 3}), "artefacts: Expected `str`, got {'ttir': 3}"),
    (RECORD.to_line().replace("0.5", "NaN"), "NaN is no JSON number"),
    (RECORD.to_line().replace("0.5", "1e999"), "1e999 is larger than any number"),
    (_changed(observed={"a": 7.5}).replace("7.5", "[-12.5E+0400]"), "-12.5E+0400 is larger than any number"),
    (_changed(observed={"a": 7.5}).replace("7.5", "9" * 310), "9999 is larger than any number"),
    (_changed(unread=7.5).replace("7.5", "9" * 5000), "9999 is larger than any number"),
    (_changed(unread="nan").replace('"nan"', "NaN"), "not a line of JSON"),
    (_changed(unread="inf").replace('"inf"', "-Infinity"), "not a line of JSON"),
]


@pytest.mark.parametrize(("line", "message"), INVALID_LINES)
def test_invalid_lines_are_refused(line, message):
    with pytest.raises(RecordError) as error:
        from_line(line)
    assert message in str(error.value)


def test_unknown_fields_are_ignored():
    assert from_line(_changed(later="x")) == RECORD


def test_many_digits_are_no_huge_integer():
    assert from_line(_changed(diagnosis="9" * 400)).diagnosis == "9" * 400
    assert from_line(_changed(observed={"digits": 10**250})).observed["digits"] == 10**250


def test_a_line_begins_with_its_schema_and_has_every_field_under_its_name():
    line = json.loads(CaseRecord("a", "s", Status.NOT_RUN).to_line())
    assert [*line] == ["schema", *(field.name for field in dataclasses.fields(CaseRecord))]
    assert line["schema"] == 4
    assert json.loads(RECORD.to_line())["verdicts"] == [
        {"check": "numerics", "passed": True, "text": "bitwise", "details": {"ulp": 0}}
    ]


def test_figures_of_another_type_are_refused_when_they_are_used():
    record = from_line(_changed(observed={"resources": {"registers": "many"}}))
    assert record.observed["resources"]["registers"] == "many"
    with pytest.raises(RecordError, match=r"observed\.resources\.registers: Expected `int`, got 'many'"):
        record.figures  # noqa: B018


def test_lone_surrogates_are_written_as_text():
    record = dataclasses.replace(RECORD, diagnosis="caf\u00e9 \udcff")
    assert from_line(record.to_line()).diagnosis == "caf\u00e9 \\udcff"
    old = RECORD.to_line().replace("line\\nline", "\\udcff")
    assert from_line(old).diagnosis.startswith("\\udcff ")


def test_torn_last_line_is_reported(tmp_path):
    file = tmp_path / "records.jsonl"
    file.write_text(RECORD.to_line() + "{}\n" + RECORD.to_line()[:-30])
    reading = read_records(file)
    assert [*reading.records] == [RECORD]
    assert [problem[:40] for problem in reading.problems] == [
        "records.jsonl:2: schema None: this versi",
        "records.jsonl:3: torn last line: not a l",
    ]


def test_merged_file_is_read_before_those_of_workers(tmp_path):
    with pytest.raises(FileNotFoundError, match="holds no records"):
        read_records(tmp_path)
    (tmp_path / "records-gw0.jsonl").write_text(RECORD.to_line())
    (tmp_path / "records-gw1.jsonl").write_text(RECORD.to_line())
    assert len(read_records(tmp_path).records) == 2
    (tmp_path / "records.jsonl").write_text(RECORD.to_line())
    assert len(read_records(tmp_path).records) == 1
    with pytest.raises(FileNotFoundError):
        read_records(tmp_path / "none.jsonl")


def packed(file: Path, content: bytes) -> Path:
    file.write_bytes(gzip.compress(content))
    return file


def test_compressed_lines_are_read_like_plain_ones(tmp_path):
    content = RECORD.to_line().encode() * 3 + b"{}\n" + RECORD.to_line()[:-30].encode()
    (tmp_path / "plain.jsonl").write_bytes(content)
    plain, other = read_records(tmp_path / "plain.jsonl"), read_records(packed(tmp_path / "packed.gz", content))
    assert [*plain.records] == [*other.records] == [RECORD] * 3
    assert [problem.partition(":")[2] for problem in other.problems] == [
        problem.partition(":")[2] for problem in plain.problems
    ]
    problems = LineProblems()
    one, _ = each_record(packed(tmp_path / "packed.gz", b"x" + content), problems, "2x3x4")
    assert (one.start, one.line, problems.count) == (len(RECORD.to_line()) + 1, RECORD.to_line().encode(), 2)


def test_compressed_records_come_before_plain_ones(tmp_path):
    (tmp_path / "records-gw0.jsonl").write_text(RECORD.to_line() * 3)
    (tmp_path / "records.jsonl").write_text(RECORD.to_line() * 2)
    packed(tmp_path / "records.jsonl.gz", RECORD.to_line().encode())
    assert len(read_records(tmp_path).records) == 1
    (tmp_path / "records.jsonl.gz").unlink()
    assert len(read_records(tmp_path).records) == 2


def test_no_reader_unpacks_more_than_the_limit(tmp_path, monkeypatch):
    line = RECORD.to_line().encode()
    file = packed(tmp_path / "records.jsonl.gz", line * 100)
    monkeypatch.setattr(records, "UNPACKED_LIMIT", len(line) * 100)
    assert len(read_records(tmp_path).records) == 100
    monkeypatch.setattr(records, "UNPACKED_LIMIT", len(line) * 100 - 1)
    for read in (read_records, read_compared_run, lambda folder: [*each_record(file, LineProblems())]):
        with pytest.raises(
            OSError, match=rf"{file.stat().st_size} bytes that unpack to more than \d+ bytes, the limit"
        ):
            read(tmp_path)
    monkeypatch.setattr(records, "BLOCK", 64)
    blocks = records.unpacked_blocks(file.open("rb"), file)
    with pytest.raises(OSError, match="unpack the file with gunzip"):
        assert len(max(blocks, key=len)) == 64


def test_damaged_compressed_records_are_an_error(tmp_path):
    file = packed(tmp_path / "records.jsonl.gz", RECORD.to_line().encode())
    data = file.read_bytes()
    for damaged in (data[:-9], data[:3], data[:40] + data[42:], data[:-8] + bytes(8)):
        file.write_bytes(damaged)
        with pytest.raises(OSError, match=r"damaged or cut short .*: copy the file again: .*records\.jsonl\.gz"):
            read_records(tmp_path)


def test_a_run_json_of_more_than_is_read_is_refused(tmp_path, monkeypatch):
    (tmp_path / "run.json").write_text("{}")
    monkeypatch.setattr(records, "RUN_LIMIT", 1)
    with pytest.raises(OSError, match=r"more than 1 bytes, which is all that is read: .*run\.json"):
        read_run(tmp_path)


def test_records_are_read_when_they_are_asked_for(tmp_path):
    lines = [CaseRecord(case, "s", Status.FAIL).to_line() for case in "abcd"]
    (tmp_path / "records-gw0.jsonl").write_text("".join(lines[:2]) + "{}\n")
    (tmp_path / "records-gw1.jsonl").write_text("".join(lines[2:]))
    stored = read_records(tmp_path).records
    assert (len(stored), stored[-1].case, [record.case for record in stored[1:3]]) == (4, "d", ["b", "c"])
    assert stored[0] is not stored[0]
    with pytest.raises(IndexError):
        stored[4]
    for part in tmp_path.iterdir():
        part.unlink()  # as the end of a run does
    assert [record.case for record in stored] == ["a", "b", "c", "d"]


def test_run_info_round_trip(tmp_path):
    info = RunInfo("r", "2026-01-01T00:00:00+00:00", "quick", 0, ("sm_90",), 2, ("0",), {"torch": "2"}, 3, 1.5, ("p",))
    (tmp_path / "run.json").write_text(json.dumps(jsonable(info)))
    assert read_run(tmp_path) == info
    (tmp_path / "run.json").write_text("{")
    with pytest.raises(RecordError):
        read_run(tmp_path)


def test_incompleteness():
    assert incompleteness(["a", "b"], ["b", "a"]) == []
    assert incompleteness(["a", "b"], ["a", "c", "c"]) == [
        "1 selected but not recorded: b",
        "1 recorded but not selected: c",
        "1 recorded more than once: c",
    ]
    many = incompleteness([f"{i:03}" for i in range(100)], [])
    assert many[0].startswith("100 selected but not recorded: 000, 001")
    assert many[0].endswith("and 80 more")


def test_failures_carry_what_the_recorder_needs():
    assert issubclass(ConformanceFailure, AssertionError)
    assert CompileFailure(Status.TIMEOUT, "x").status is Status.TIMEOUT


@pytest.mark.parametrize(
    ("text", "check", "group"),
    [
        ("numerics/randn", Check(CheckKind.NUMERICS, "randn"), "numerics"),
        ("numerics/randn/grad", Check(CheckKind.NUMERICS, "randn/grad"), "numerics"),
        ("numerics/randn@64x64x32-s3-w4", Check(CheckKind.NUMERICS, "randn", "64x64x32-s3-w4"), "numerics"),
        ("memory", Check(CheckKind.MEMORY), "memory"),
        ("grid@64x64x32-s3-w4", Check(CheckKind.GRID, "", "64x64x32-s3-w4"), "grid"),
        ("codegen/requires/TMA_LOAD", Check(CheckKind.REQUIRES, "TMA_LOAD"), "codegen"),
        ("codegen/forbids/SPILL@x", Check(CheckKind.FORBIDS, "SPILL", "x"), "codegen"),
        ("codegen/judged-is-launched", Check(CheckKind.CODEGEN, "judged-is-launched"), "codegen"),
        ("resources/sum_parts", Check(CheckKind.RESOURCES, "sum_parts"), "resources"),
        ("spills", Check(CheckKind.SPILLS), "spills"),
        ("repeatable", Check(CheckKind.OTHER, "repeatable"), "repeatable"),
        ("numbers", Check(CheckKind.OTHER, "numbers"), "numbers"),
        ("0/151/has kernels", Check(CheckKind.OTHER, "0/151/has kernels"), "0"),
    ],
)
def test_checks_are_parsed_and_written(text, check, group):
    assert Check.parse(text) == check
    assert str(check) == text
    assert check.group == group
    assert check.name == text.partition("@")[0]


def test_a_long_line_is_a_problem_and_the_others_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "LINE_LIMIT", 2_000)
    file, ok = tmp_path / "records.jsonl", RECORD.to_line()
    file.write_text(ok.replace(RECORD.case, "x" * 9_000) + ok)
    problems = LineProblems()
    placed = list(each_record(file, problems))
    assert problems.sentences == [
        "records.jsonl:1: the line has more than 2000 bytes, the limit: the file is damaged or not a record file"
    ]
    assert [(file.read_bytes()[p.start :], p.line) for p in placed] == [(ok.encode(), ok.encode())]


def test_only_lines_with_a_text_are_read(tmp_path):
    lines = [CaseRecord(case, "s", Status.FAIL).to_line() for case in ("a", 'b"é', "c")]
    file = tmp_path / "records.jsonl"
    file.write_text(lines[0] + lines[1] + "damaged\n" + lines[2] + '{"torn')
    problems = LineProblems()
    assert [placed.record.case for placed in each_record(file, problems, 'b"é')] == ['b"é']
    assert [problem.partition(": ")[0] for problem in problems.sentences] == ["records.jsonl:5"]
    assert len(list(each_record(file, problems))) == 3
    assert [problem.partition(": ")[0] for problem in problems.sentences[1:]] == ["records.jsonl:3", "records.jsonl:5"]
