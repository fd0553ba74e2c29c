"""One side of a comparison as read from disk: wrong lines are refused, and each refusal is reported."""

from __future__ import annotations

import copy
import json
import time
from pathlib import Path
from typing import Any

import pytest
from made_records import STACK, fail, record, run_of_all, write_run

from conformance.gate.runs import run_reader
from conformance.gate.runs.run_reader import WORST, read_compared_run
from conformance.gate.verdict.compare import compare
from conformance.records import Status, from_line


def written(folder: Path, *lines: Any) -> Path:
    file = folder / "some.jsonl"
    file.write_bytes(b"".join(line if isinstance(line, bytes) else json.dumps(line).encode() + b"\n" for line in lines))
    return file


def with_(path: str, value: Any) -> dict[str, Any]:
    """A record whose field at ``path`` is ``value``."""
    one: Any = record()
    *parents, last = path.split(".")
    part = one
    for name in parents:
        part = part[name]
    part[last] = value
    return dict(one)


def test_what_is_kept(tmp_path):
    folder = write_run(tmp_path / "run", run_of_all())
    side = read_compared_run(folder)
    assert len(side.records) == 48
    assert side.problems == ()
    assert (side.tier, side.seed, side.stack) == ("default", 0, STACK)
    assert side.statuses() == {"pass": 48}
    entry = side.records[record()["case"]]
    assert (entry.kernel, entry.target, entry.executor) == ("mm", "sm_90", "device")
    figures = entry.figures
    assert len(figures.samples) == 15
    assert list(figures.samples) == sorted(figures.samples)
    assert figures.timed == "mm-4096x4096x4096-bf16"
    assert figures.compiled_in == 1.1


def test_file_of_records_alone(tmp_path):
    side = read_compared_run(written(tmp_path, record()))
    assert (side.run, side.tier, side.stack) == (None, "default", STACK)
    comparison = compare(side, side)
    assert comparison.groups == ()
    assert sum("no usable run.json" in warning for warning in comparison.warnings) == 2


def test_workers_files_of_a_run_that_goes_on(tmp_path):
    first, second = record(), record("addmm")
    (tmp_path / "records-gw0.jsonl").write_text(json.dumps(first) + "\n")
    (tmp_path / "records-gw1.jsonl").write_text(json.dumps(second) + "\n")
    assert len(read_compared_run(tmp_path).records) == 2


def test_nothing_to_read(tmp_path):
    for path in (tmp_path, tmp_path / "none.jsonl"):
        with pytest.raises(FileNotFoundError, match="holds no records"):
            read_compared_run(path)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        (b"null\n", "a JSON object is required"),
        (b'{"case": NaN}\n', "not a line of JSON"),
        (b"\xff\xfe\x00\n", "not a line of JSON"),
        (with_("kernel", 3), "kernel: Expected `str | null`, got 3"),
        (with_("observed", []), "observed: Expected `object`, got []"),
        (with_("observed.resources", [1]), "observed.resources: Expected `object | null`, got [1]"),
        (with_("observed.resources.registers", "many"), "observed.resources.registers: Expected `int`, got 'many'"),
        (with_("observed.resources.registers", True), "observed.resources.registers: Expected `int`, got True"),
        (with_("observed.resources.spills", -1), "observed.resources.spills: Expected `int` >= 0, got -1"),
        (with_("observed.resources.spills", None), "Expected `int`, got None"),
        (with_("observed.resources.spills", 10**18), "Expected `int` <= 1000000000000000"),
        (with_("observed.resources.spills", 10**30), "observed.resources.spills: "),
        (with_("observed.resources.spill_unit", 8), "observed.resources.spill_unit: Expected `str | null`, got 8"),
        (with_("observed.code", "text"), "observed.code: Expected `object | null`, got 'text'"),
        (with_("observed.code.features", [["TMA"]]), "observed.code.features[0]: Expected `str`, got ['TMA']"),
        (with_("observed.code.instructions", ["HGMMA"]), "instructions: Expected `object`, got ['HGMMA']"),
        (with_("observed.code.instructions", {"HGMMA": "64"}), "Expected `int`, got {'HGMMA': '64'}"),
        (with_("observed.code.sha256", 5), "observed.code.sha256: Expected `str | null`, got 5"),
        (with_("observed.run.samples_us", 5), "samples_us: Expected `array`, got 5"),
        (with_("observed.run.samples_us", [1.0] * 1001), "of length <= 1000"),
        (with_("observed.run.samples_us", [1.0, "2"]), "samples_us[1]: Expected `float`, got '2'"),
        (with_("observed.run.samples_us", [0.0, 1.0]), "samples_us[0]: Expected `float` >= 1e-09, got 0.0"),
        (with_("observed.run.samples_us", [1.0, 1e308]), "samples_us[1]: Expected `float` <= 1000000000000000"),
        (with_("observed.run", {"problem": "mm", "us": 0}), "observed.run.us: Expected `float` >= 1e-09, got 0"),
        (with_("observed.run", {"us": 1.0}), "observed.run: Object missing required field `problem`"),
        (with_("observed.run.problem", None), "observed.run.problem: Expected `str`, got None"),
        (with_("observed.outputs", {"randn": 1}), "observed.outputs: Expected `str`, got {'randn': 1}"),
        (with_("observed.compile_s", True), "observed.compile_s: Expected `float | null`, got True"),
        (with_("observed.compile_s", 5e-324), "Expected `compile_s` of 0 or >= 1e-09"),
    ],
)
def test_hostile_line_is_a_problem_and_not_a_record(tmp_path, line, message):
    good = record("addmm")
    side = read_compared_run(written(tmp_path, good, line))
    assert list(side.records) == [good["case"]]
    (problem,) = side.problems
    assert problem.startswith("some.jsonl:2: ")
    assert message in problem
    assert len(problem) < 600


def test_fault_in_the_first_of_two_values_of_one_name_is_a_problem(tmp_path):
    line = json.dumps(record())
    for fault in ('"config": 5', '"durations": {"run": "long"}', '"seed": "none"'):
        side = read_compared_run(written(tmp_path, f"{{{fault}, {line[1:]}\n".encode()))
        assert not side.records
        assert "Expected" in side.problems[0]


def test_text_that_is_not_utf8_is_a_problem(tmp_path):
    line = json.dumps(record()).encode().replace(b'"kernel": "mm"', b'"kernel": "\xff"')
    assert "codec can't decode" in read_compared_run(written(tmp_path, line + b"\n")).problems[0]


def test_torn_last_line(tmp_path):
    line = json.dumps(record()).encode()
    side = read_compared_run(written(tmp_path, record("addmm"), line[:-30]))
    assert len(side.records) == 1
    assert "some.jsonl:2: torn last line" in side.problems[0]


def test_line_past_the_limit_is_skipped_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(run_reader.records, "LINE_LIMIT", 10_000)
    side = read_compared_run(written(tmp_path, {"case": "x" * 50_000}, record()))
    assert len(side.records) == 1
    assert "more than 10000 bytes" in side.problems[0]


def failing(one: dict[str, Any]) -> dict[str, Any]:
    other = copy.deepcopy(one)
    fail(other, "numerics/hot", "1 wrong")
    return other


def test_lines_in_any_order_are_the_same_run(tmp_path):
    """Runs of older versions, and workers' files, are not sorted. The worst of several records of a case counts."""
    lines = sorted(run_of_all(), key=lambda one: one["case"])
    bad = failing(lines[3])
    shuffled = [*lines[1:], lines[0], lines[5]]
    assert set(WORST) == set(Status)
    orders = [*lines[:3], bad, *lines[4:]], [*shuffled, bad], [bad, *lines]
    folders = [write_run(tmp_path / str(number), cases) for number, cases in enumerate(orders)]
    ordered, other, first = map(read_compared_run, folders)
    assert first.statuses() == ordered.statuses()
    assert ordered.problems == ()
    assert [problem.split(" is recorded ")[1] for problem in other.problems] == [
        "more than once (pass, fail): fail counts",
        "more than once (pass, pass): pass counts",
    ]
    assert [*other.records] == [*ordered.records] == [one["case"] for one in lines]
    assert [*other.records.in_order()] == [*ordered.records.in_order()]
    assert other.statuses() == ordered.statuses() == {"pass": 47, "fail": 1}
    with pytest.raises(KeyError):
        other.records["test_a.py::another"]
    groups = compare(read_compared_run(write_run(tmp_path / "before", shuffled[:-1])), ordered).groups
    assert [(group.kind.value, [one.case for one in group.findings]) for group in groups] == [
        ("NEW_FAIL", [bad["case"]])
    ]


def test_a_comparison_holds_the_records_of_one_case(tmp_path, monkeypatch):
    """A run may be larger than memory."""
    held, most = 0, 0

    def counted(line):
        nonlocal held, most
        held += 1
        most = max(most, held)
        record = original(line)
        return Held(record)

    class Held:
        def __init__(self, record):
            self._record = record

        def __getattr__(self, name):
            return getattr(self._record, name)

        def __del__(self):
            nonlocal held
            held -= 1

    original = from_line
    monkeypatch.setattr(run_reader.records, "from_line", counted)
    untimed = [{**one, "observed": {}} for one in run_of_all()]
    after = [failing(one) for one in untimed[:-9]]
    sides = [read_compared_run(write_run(tmp_path / name, side)) for name, side in (("a", untimed), ("b", after))]
    assert compare(*sides).groups
    assert 2 <= most <= 6


def test_many_problems_are_counted(tmp_path):
    side = read_compared_run(written(tmp_path, *[b"{}\n"] * 250))
    assert len(side.problems) == 21
    assert side.problems[-1] == "230 more problems are not listed"


def test_a_pass_with_a_failing_check_is_not_believed(tmp_path):
    liar = record()
    fail(liar, "memory", "overwritten")
    side = read_compared_run(written(tmp_path, {**liar, "status": "pass"}))
    assert side.records == {}
    assert "status pass, and the check 'memory' failed" in side.problems[0]


def test_records_of_two_stacks_in_one_side_are_told(tmp_path):
    first = record()
    other = {**record("addmm"), "stack": {**first["stack"], "triton": "3.9.0"}, "seed": 1}
    side = read_compared_run(written(tmp_path, first, other))
    assert side.mixed == ("seed (0, 1)", f"triton ({first['stack']['triton']}, 3.9.0)")
    assert read_compared_run(written(tmp_path, first, record("addmm"))).mixed == ()


def test_what_records_differ_in_is_told_in_short(tmp_path):
    """However many values there are, and whatever somebody wrote into a stack."""
    lines = [record()]
    for number in range(20):
        stack = {**lines[0]["stack"], "triton": f"3.{number}", f"{number}{'x' * 500}": "y" * 500}
        lines.append({**record(f"addmm{number}"), "stack": stack})
    mixed = read_compared_run(written(tmp_path, *lines)).mixed
    assert len(mixed) == 8
    assert all(len(text) < 8 * 90 and text.count(",") <= 8 for text in mixed)
    (triton,) = [text for text in mixed if text.startswith("triton")]
    assert triton.endswith("3.6, ...)")


def test_damaged_run_info_is_a_problem(tmp_path):
    folder = write_run(tmp_path / "run", [record()])
    without_end = folder.joinpath("run.json").read_text().replace('"wall_s": 10.0', f'"wall_s": 1{"0" * 400}')
    for text in ("{", '{"schema": 1}', "[]", "\udcff", without_end):
        (folder / "run.json").write_bytes(text.encode("utf-8", "surrogateescape"))
        side = read_compared_run(folder)
        assert side.run is None
        assert side.problems[0].startswith("run.json: ")


def test_many_records_are_read_and_compared_in_time(tmp_path):
    """The bound is generous: it is there for work that grows faster than the number of records."""
    lines = [json.dumps(record(f"kernel_{number}")) for number in range(1000)]
    for name in ("a", "b"):
        with (tmp_path / f"{name}.jsonl").open("w") as stream:
            for number in range(20):
                stream.writelines(line.replace("test_row[", f"test_row[{number}-", 1) + "\n" for line in lines)
    started = time.process_time()
    comparison = compare(read_compared_run(tmp_path / "a.jsonl"), read_compared_run(tmp_path / "b.jsonl"))
    assert comparison.compared == comparison.unchanged == 20_000
    assert time.process_time() - started < 60
