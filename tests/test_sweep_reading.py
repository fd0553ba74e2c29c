"""The facts that are read from the records of a sweep."""

from __future__ import annotations

import dataclasses

import pytest

from conformance import cli
from conformance.records import CaseRecord, RunInfo, Status, from_line
from conformance.reporting.sweep import estimates, fastest, outcomes, rows, spilling, verdict
from tests.command_runs import JUDGED, write_run

SMALL, LARGE = "64x64x32-s2-w4", "128x128x64-s3-w8"


def record(row=SMALL, shape="ragged", status=Status.PASS, *, us=None, spills=0, shared=1000, **fields):
    observed = {"compile_s": 1.5, "shared_memory_estimate": {"heuristics": 1500, "kernel": 800}}
    if shared is not None:
        observed["resources"] = {"registers": 40, "spills": spills, "shared_memory": shared}
    if us is not None:
        observed["run"] = {"problem": "mm-2056x2056x2056", "us": us}
    case = CaseRecord(
        f"test_config_space.py::test_config_space[mm-fp16-{row}-{shape}-sm_90]",
        "config_space",
        status,
        kernel="mm",
        config={"id": row},
        options={"dtype": "fp16"},
        target="sm_90",
        observed=observed,
        verdicts=JUDGED,
    )
    return from_line(dataclasses.replace(case, **fields).to_line())


def cells(table):
    """The lines below a table's header."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def test_records_of_one_config_become_one_row():
    sweep_rows = rows(
        [
            record(us=12.0, shared=900),
            record(shape="several-tiles", status=Status.FAIL, spills=16),
            record(LARGE, status=Status.NOT_RUN, shared=None),
            record(options={"dtype": "bf16"}),
            record(target="gfx942"),
            record(kernel="bmm"),
        ]
    )
    keys = [row.key for row in sweep_rows]
    assert keys == sorted(
        [
            f"mm fp16 {SMALL} sm_90",
            f"mm fp16 {LARGE} sm_90",
            f"mm bf16 {SMALL} sm_90",
            f"mm fp16 {SMALL} gfx942",
            f"bmm fp16 {SMALL} sm_90",
        ]
    )
    (row,) = (row for row in sweep_rows if row.key == f"mm fp16 {SMALL} sm_90")
    assert row.statuses == {Status.PASS, Status.FAIL}
    assert (row.registers, row.spills, row.shared, row.compile_s, row.us) == (40, 16, 1000, 1.5, 12.0)
    assert row.estimates == (("heuristics", 1500), ("kernel", 800))
    (bare,) = (row for row in sweep_rows if row.config == LARGE)
    assert (bare.registers, bare.spills, bare.shared, bare.us) == (None, 0, None, None)


def test_a_config_that_problems_select_has_a_row_for_each_size():
    selected = [record(options={"dtype": "fp16", "size": size}, spills=8) for size in ("d96", "d128")]
    sweep_rows = rows([record(), *selected])
    assert [row.config for row in sweep_rows] == [SMALL, f"{SMALL}@d128", f"{SMALL}@d96"]
    assert spilling(sweep_rows) == [f"mm fp16 {SMALL}@d128 sm_90", f"mm fp16 {SMALL}@d96 sm_90"]


@pytest.mark.parametrize(
    "other",
    [{"suite": "scaling"}, {"kernel": None}, {"config": None}, {"config": {}}, {"target": None}, {"options": {}}],
)
def test_other_records_are_no_rows(other):
    assert rows([record()])
    assert rows([record(**other)]) == []


@pytest.mark.parametrize("damage", ["fast", None, [1], float("inf"), 10**400, True])
def test_figures_that_are_no_numbers_are_left_out(damage):
    broken = record(
        observed={
            "compile_s": damage,
            "run": {"us": damage},
            "resources": {"registers": damage, "spills": damage, "shared_memory": damage},
            "shared_memory_estimate": {"kernel": damage},
        }
    )
    (row,) = rows([broken])
    assert (row.us, row.registers, row.spills, row.shared, row.estimates) == (None, None, 0, None, ())
    (row,) = rows([broken, record(us=3.0)])
    assert (row.us, row.registers) == (3.0, 40)
    for table in (fastest, estimates, outcomes):
        table(rows([broken]))
    assert rows([record(observed={"resources": 1, "run": "x", "shared_memory_estimate": []})])


def test_the_fastest_row_and_its_margin():
    sweep_rows = rows(
        [record(us=20.0), record(LARGE, us=10.0), record("16x16x16-s2-w2", us=30.0), record("8x8x8-s1-w1")]
    )
    assert cells(fastest(sweep_rows)) == [["mm", "fp16", "sm_90", LARGE, "10.0", SMALL, "2.000"]]
    assert cells(fastest(rows([record(us=20.0)]))) == [["mm", "fp16", "sm_90", SMALL, "20.0", "", ""]]
    assert cells(fastest(rows([record()]))) == [], "nothing was timed"


def test_a_flip_of_the_fastest_row_is_visible():
    before = fastest(rows([record(us=20.0), record(LARGE, us=10.0)]))
    again = fastest(rows([record(LARGE, us=10.0), record(us=20.0)]))
    after = fastest(rows([record(us=9.0), record(LARGE, us=10.0)]))
    assert before == again, "the order of records says nothing"
    assert (cells(before)[0][3], cells(after)[0][3]) == (LARGE, SMALL)


def test_estimates_against_the_compiler():
    sweep_rows = rows([record(shared=1000), record(LARGE, shared=2000), record("16x16x16-s2-w2", shared=None)])
    assert cells(estimates(sweep_rows)) == [
        ["heuristics", "mm", "sm_90", "2", "1.12", "0.75", "1.50", "1"],
        ["kernel", "mm", "sm_90", "2", "0.60", "0.40", "0.80", "2"],
    ]
    assert cells(estimates(rows([record(shared=800)])))[1][-1] == "0", "an estimate that is exact is not too small"


def test_spilling_rows_declare_themselves():
    sweep_rows = rows([record(), record(LARGE, spills=8), record(LARGE, "several-tiles", spills=0)])
    assert spilling(sweep_rows) == [f"mm fp16 {LARGE} sm_90"]
    assert spilling(rows([record()])) == []
    assert "\x1b" not in spilling(rows([record(config={"id": "a\x1b[2J"}, spills=1)]))[0]
    past_the_limit = record("256x256x128-s4-w8", spills=8, status=Status.NOT_APPLICABLE)
    assert spilling(rows([past_the_limit])) == []


def test_outcomes_count_each_row_once():
    refused, passed, compiled, failed = Status.NOT_APPLICABLE, Status.PASS, Status.NOT_RUN, Status.COMPILE_ERROR
    statuses_by_config = {
        "a": [passed, passed],
        "b": [passed, refused],
        "c": [compiled, refused],
        "d": [compiled, passed],
        "e": [refused, refused],
        "f": [passed, failed],
        "g": [compiled, Status.TIMEOUT],
        "h": [Status.FAIL],
        "i": [refused, Status.CRASH],
        "j": [passed, Status.EXPECTED_FAIL],
        "k": [Status.EXPECTED_FAIL, failed],
    }
    records = [
        record(name, str(number), status)
        for name, statuses in statuses_by_config.items()
        for number, status in enumerate(statuses)
    ]
    swept = rows(records)
    assert cells(outcomes(swept)) == [["mm", "sm_90", "11", "2", "2", "1", "1", "5"]]
    counts = "2 passed, 2 compiled only, 1 refused, 1 failed as expected, 5 failed"
    assert verdict(swept) == f"FAILED: 5 of 11 rows failed: {counts}"


def test_a_sweep_ends_with_its_verdict(tmp_path, capsys):
    write_run(tmp_path, [record(), record(LARGE, status=Status.EXPECTED_FAIL)])
    assert cli.main(["sweep", str(tmp_path)]) == 0
    last, page = capsys.readouterr().out.splitlines()[-2:]
    assert last == "PASSED: no row failed: 1 passed, 1 failed as expected"
    assert page == f"all cases as a page: conformance report {tmp_path}"
    assert verdict(rows([record(status=Status.NOT_APPLICABLE)])) == "NOTHING WAS JUDGED: 1 refused"


# The command


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Writes records as a run's under ./reports and gives its folder."""
    monkeypatch.chdir(tmp_path)

    def write(name, started, records):
        return write_run(tmp_path / "reports" / name, records, RunInfo(name, started, "full", 0, wall_s=1.0))

    return write


def test_sweep_prints_the_tables_of_the_newest_run(run, capsys):
    older = run("b", "2026-01-01", [record(us=20.0), record(LARGE, us=10.0)])
    run("a", "2026-02-02", [record(us=9.0), record(LARGE, us=10.0, spills=8)])
    assert cli.main(["sweep"]) == 0
    new = capsys.readouterr().out
    assert [line for line in new.splitlines() if line.startswith("## ")] == [
        "## Rows",
        "## Fastest",
        "## Shared memory: estimate / compiler",
    ]
    assert f"| mm | fp16 | sm_90 | {SMALL} | 9.0 | {LARGE} | 1.111 |" in new
    assert "| mm | sm_90 | 2 | 2 | 0 | 0 | 0 |" in new
    assert "| kernel | mm | sm_90 | 2 | 0.80 | 0.80 | 0.80 | 2 |" in new
    assert cli.main(["sweep", str(older)]) == 0
    assert f"| mm | fp16 | sm_90 | {LARGE} | 10.0 | {SMALL} | 2.000 |" in capsys.readouterr().out


def test_sweep_prints_the_declarations_alone(run, capsys):
    run("a", "2026-02-02", [record(), record(LARGE, spills=8)])
    assert cli.main(["sweep", "--spills"]) == 0
    assert capsys.readouterr().out == f"mm fp16 {LARGE} sm_90\n"


def test_sweep_without_spills_prints_no_empty_line(run, capsys):
    run("a", "2026-02-02", [record()])
    assert cli.main(["sweep", "--spills"]) == 0
    assert capsys.readouterr().out == ""


def test_sweep_of_a_run_without_the_suite(run, capsys):
    folder = run("a", "2026-02-02", [record(suite="scaling")])
    assert cli.main(["sweep"]) == cli.USAGE
    error = capsys.readouterr().err
    assert f"{folder.relative_to(folder.parents[1])} has no record of the suite config_space" in error
    assert "run it with --suite config_space" in error
    assert cli.main(["sweep", "nowhere"]) == cli.USAGE
    assert "nowhere holds no records" in capsys.readouterr().err


def test_sweep_reports_damaged_lines(run, capsys):
    folder = run("a", "2026-02-02", [record()])
    with open(folder / "records.jsonl", "a") as file:
        file.write('{"torn')
    assert cli.main(["sweep"]) == 0
    assert "torn last line" in capsys.readouterr().err
