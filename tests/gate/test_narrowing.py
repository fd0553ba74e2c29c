"""The first line of a comparison that is of a part of a tier: by which options, and of how many cases."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from made_records import BASE, Record, write_run

from conformance.commands.shared.comparison_output import to_json
from conformance.gate.mustpass.mustpass_lists import Level, MustpassList
from conformance.gate.runs.run_reader import read_compared_run
from conformance.gate.verdict.compare import compare
from conformance.gate.verdict.scope import narrowed, tier_size
from conformance.reporting.comparison import render_markdown, render_terminal
from conformance.reporting.first_line import answer
from conformance.user_files.findings import Comparison, Narrowing

#: A stack that the lists of the package are for, of a machine without a device.
STACK = {"torch": "2.13.0", "triton": "3.9.0", "python": "3.12.3"}
RUN = {"stack": STACK, "tier": "quick", "gpus": []}
WHOLE = tier_size("quick", (), STACK)


def without_device() -> list[Record]:
    return [{**one, "stack": STACK, "tier": "quick", "gpu": None} for one in BASE]


def compared(
    folder: Path, *options: list[str] | None, records: list[Record] | None = None, **run: object
) -> Comparison:
    """The comparison of two runs with these ``options``, None for a run that did not record them."""
    sides = []
    for name, words in zip(("a", "b"), options, strict=True):
        side = write_run(folder / name, without_device() if records is None else records, **{**RUN, **run})
        if words is not None:
            (side / "environment.json").write_text(json.dumps({"options": words}))
        sides.append(read_compared_run(side))
    return compare(*sides)


def test_the_package_knows_how_many_cases_the_quick_tier_has() -> None:
    assert WHOLE is not None
    assert WHOLE > 1000


NONE: list[str] = []


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            (["--kernel", "mm"], ["--kernel", "mm"]),
            f"SAFE for 48 of {WHOLE:,} cases (--kernel mm): no regression in 48",
        ),
        ((NONE, ["--conformance-kernel=mm"]), f"SAFE for 48 of {WHOLE:,} cases (--kernel mm): "),
        ((["-k", "fp16 and ragged"], NONE), f"SAFE for 48 of {WHOLE:,} cases (-k fp16 and ragged): "),
        ((["--cases=/cache/cases/0f.txt"], NONE), f"SAFE for 48 of {WHOLE:,} cases (--cases): "),
        ((["--suite", "tf32", "-x"], NONE), f"SAFE for 48 of {WHOLE:,} cases (--suite tf32 -x): "),
        ((["--config", "a", "--lf"], NONE), f"SAFE for 48 of {WHOLE:,} cases (--config a --lf): "),
        ((["tests/mine.py"], NONE), f"SAFE for 48 of {WHOLE:,} cases (only tests/mine.py): "),
        ((None, NONE), f"SAFE for 48 of {WHOLE:,} cases (options not recorded): "),
        ((["--slice=1/4"], NONE), f"SAFE for 48 of {WHOLE:,} cases (options not recorded): "),
        ((["-n", "2", "--tier", "quick"], NONE), "SAFE: no regression in 48 of 48 cases "),
    ],
)
def test_each_option_that_leaves_cases_out_is_said_first(
    tmp_path: Path, options: tuple[list[str] | None, list[str] | None], says: str
) -> None:
    comparison = compared(tmp_path, *options)
    assert answer(comparison).startswith(says)
    assert render_terminal(comparison).startswith(says)
    title = render_markdown(comparison).splitlines()[0]
    assert title.startswith("## SAFE for 48 of" if comparison.narrowing else "## SAFE: no")


def test_a_narrowed_answer_that_is_not_safe_says_so_too(tmp_path: Path) -> None:
    comparison = compared(tmp_path, ["--kernel", "mm"], ["--kernel", "mm"])
    text = answer(replace(comparison, objections=("something",)))
    assert text == f"NOT SAFE for 48 of {WHOLE:,} cases (--kernel mm): 1 objection"


@pytest.mark.parametrize(
    "run",
    [
        {"tier": "full"},
        {"targets": ["sm_90"]},
        {"stack": {**STACK, "triton": "3.2.0"}},
        {"stack": {**STACK, "device": "NVIDIA H200"}},
    ],
    ids=["tier", "targets", "stack", "device"],
)
def test_where_no_list_is_known_the_options_stand_alone(tmp_path: Path, run: dict[str, object]) -> None:
    comparison = compared(tmp_path, ["--kernel", "mm"], ["--kernel", "mm"], **run)
    assert comparison.narrowing is not None
    assert comparison.narrowing.whole is None
    assert answer(comparison).startswith("SAFE for 48 cases (--kernel mm")


def test_a_target_narrows(tmp_path: Path) -> None:
    assert answer(compared(tmp_path, [], [], targets=["sm_90"])).startswith("SAFE for 48 cases (--target sm_90): ")


def test_long_and_strange_options_are_cut(tmp_path: Path) -> None:
    words = [word for number in range(9) for word in ("--kernel", f"kernel{number}\x1b[2J\n" + "x" * 500)]
    line = answer(compared(tmp_path, words, []))
    assert "and 3 more options" in line
    assert len(line) < 800
    assert "\x1b" not in line
    assert "\n" not in line


def test_json_holds_the_narrowing_as_fields(tmp_path: Path) -> None:
    comparison = compared(tmp_path, ["--kernel", "mm"], ["--kernel", "mm"])
    data = json.loads(to_json(comparison))
    assert data["narrowing"] == {"options": ["--kernel mm"], "cases": 48, "whole": WHOLE}
    assert (data["newly_failing"], data["newly_failing_by_known_defects"], data["waived"]) == (0, 0, 0)
    assert json.loads(to_json(replace(comparison, narrowing=None)))["narrowing"] is None


def test_of_several_levels_the_highest_counts() -> None:
    def of(level: Level, cases: int, target: str = "any", triton: str = ">=3") -> MustpassList:
        outcomes = {f"case{number}": "pass" for number in range(cases)}
        return MustpassList("quick", target, level, (), {"triton": triton}, "", outcomes)

    lists = [of(Level.EXECUTED, 3), of(Level.EXECUTED, 4, "sm_90"), of(Level.INTERPRETED, 90), of(Level.DEVICE, 50)]
    assert tier_size("quick", (), STACK, lists) == 7
    assert tier_size("quick", (), {**STACK, "device": "NVIDIA H200"}, lists) == 50
    assert tier_size("quick", ("sm_90",), STACK, lists) is None
    assert tier_size("quick", (), STACK, [of(Level.EXECUTED, 3, triton="<3")]) is None


def test_more_cases_than_listed_are_not_of_them(tmp_path: Path) -> None:
    run = read_compared_run(write_run(tmp_path / "a", without_device(), **{**RUN, "targets": []}))
    run = replace(run, options=("--kernel", "mm"))
    assert narrowed(run, run, 5000) == Narrowing(("--kernel mm",), 5000)
    assert narrowed(run, run, 24) == Narrowing(("--kernel mm",), 24, WHOLE)
