"""``conformance mutants`` on one kernel: faults are planted, killed, kept, and survivors decide the exit status."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from tests.forked_python import executable

ROOT = Path(__file__).resolve().parents[2]

#: Of tiles.accumulate: a k-block too few, and a mask that lets every lane through.
KILLED = ("tiles.accumulate:body4.iter:loop:2", "tiles.accumulate:body4.body4.orelse1.value:mask:1")
#: Where the last k-blocks of B are masked, the value there of A alone multiplies zeros of B.
SURVIVOR = "tiles.accumulate:body4.body4.orelse2.value:other:2"


def mutants(folder, *options):
    """The result of the command about int_mm."""
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "-1", "HIP_VISIBLE_DEVICES": "-1"}
    command = [executable(), "-m", "conformance", "mutants", "--kernel", "int_mm", "--no-gpu", f"--folder={folder}"]
    return subprocess.run([*command, *options], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def first(tmp_path_factory):
    folder = tmp_path_factory.mktemp("mutants")
    options = [word for name in (*KILLED, SURVIVOR) for word in ("--mutant", name)]
    (folder / "known.txt").write_text("")
    return (
        folder,
        options,
        mutants(folder, *options, f"--known={folder / 'known.txt'}", "--causes", "--no-compile", "--workers=1"),
    )


def test_faults_are_killed_and_an_unknown_survivor_fails_the_command(first):
    folder, _, ran = first
    results = {line["mutant"]: line for line in map(json.loads, (folder / "results.jsonl").read_text().splitlines())}
    assert ran.returncode == 1, ran.stderr
    assert "1 survivors are not known" in ran.stdout
    assert [results[name]["outcome"] for name in KILLED] == ["killed", "killed"]
    assert results[KILLED[0]]["check"].startswith("numerics/")
    assert results[KILLED[1]]["check"].startswith("memory/")
    assert results[SURVIVOR]["outcome"] == "survived"
    assert results[SURVIVOR]["diff"][1].endswith("other=1)")


def test_what_was_judged_is_kept_and_a_known_survivor_is_none(first, tmp_path):
    folder, options, _ = first
    survivors = tmp_path / "known.txt"
    survivors.write_text(f"{SURVIVOR} masked rows of B are 0\n")
    before = (folder / "results.jsonl").read_text()
    ran = mutants(folder, *options, "--no-compile", f"--known={survivors}")
    assert ran.returncode == 0, ran.stderr
    assert (folder / "results.jsonl").read_text() == before


def test_mutants_are_listed_and_wrong_names_refused(tmp_path):
    listed = mutants(tmp_path, "--list", "--function=tiles.", "--class=loop")
    assert KILLED[0] in listed.stdout.split("\n")
    for wrong, message in (
        ("--mutant=tiles.accumulate:body4:loop:1", "there is no such mutant"),
        ("--function=nothing", "no device function has such a fault"),
    ):
        refused = mutants(tmp_path, wrong)
        assert refused.returncode == 2
        assert message in refused.stderr


def test_a_statement_that_no_case_runs_fails_the_command_unless_it_is_known(first, tmp_path):
    """The kept baselines say that no case runs the function that orders tiles."""
    baselines = [json.loads(line) for line in (first[0] / "baselines.jsonl").read_text().splitlines()]
    assert all(baseline["lines"].pop("tiles.swizzle") for baseline in baselines)
    (tmp_path / "baselines.jsonl").write_text("".join(f"{json.dumps(baseline)}\n" for baseline in baselines))
    listed = tmp_path / "known.txt"
    listed.write_text("tiles.swizzle:body1:unreached:1 a reason\n")
    ran = mutants(tmp_path, "--unreached", f"--known={listed}")
    statements = [line.partition(" ")[0] for line in ran.stdout.splitlines()]
    assert ran.returncode == 1, ran.stderr
    assert "tiles.swizzle:body2:unreached:1" in statements
    assert "tiles.swizzle:body1:unreached:1" not in statements
    listed.write_text("".join(f"{name} a reason\n" for name in [*statements, "tiles.swizzle:body1:unreached:1"]))
    assert mutants(tmp_path, "--unreached", f"--known={listed}").returncode == 0
