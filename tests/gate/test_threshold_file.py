"""Thresholds from a file: what they say holds, and what they cannot say is refused in a sentence."""

from __future__ import annotations

import copy
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from made_records import Record, changed, run_of_all, write_run

from conformance.commands import CommandError
from conformance.commands import compare as command
from conformance.user_files.findings import Kind
from conformance.user_files.thresholds import DEFAULT, FIELDS, moved, parsed
from conformance.user_files.toml_entries import EntryError
from tests.command_runs import call

run_command = partial(call, command)


@pytest.fixture
def runs(tmp_path: Path) -> tuple[Path, Path]:
    """Two runs: in the second a kernel spills 80 bytes, and as many threads leave room for fewer blocks."""

    def worse(one: Record) -> None:
        one["observed"]["resources"].update(spills=80, threads=512)

    base = run_of_all()
    for one in base:
        one["observed"]["resources"].update(registers=64, shared_memory=16_384)
        del one["observed"]["run"]
    return write_run(tmp_path / "a", base), write_run(tmp_path / "b", changed(copy.deepcopy(base), worse, kernel="mm"))


def written(folder: Path, text: str) -> Path:
    file = folder / "thresholds.toml"
    file.write_text(text)
    return file


def test_a_file_moves_the_thresholds_of_the_kinds_that_it_names(runs, tmp_path, capsys):
    assert run_command(*runs, "--json", "-") == 1
    usual = json.loads(capsys.readouterr().out)
    severities = {group["kind"]: group["severity"] for group in usual["groups"]}
    assert severities == {"MORE_SPILLS": "regression", "LESS_OCCUPANCY": "regression"}
    milder = "[MORE_SPILLS]\nregression_bytes = 128\n[LESS_OCCUPANCY]\nregression_share = 1"
    assert run_command(*runs, "--json", "-", "--thresholds", written(tmp_path, milder)) == 0
    mild = json.loads(capsys.readouterr().out)
    assert {group["kind"]: group["severity"] for group in mild["groups"]} == dict.fromkeys(severities, "warning")
    assert usual["thresholds"]["spills as a regression, at least bytes"] == 64
    assert mild["thresholds"]["spills as a regression, at least bytes"] == 128
    assert mild["thresholds"]["time"] == usual["thresholds"]["time"] == 0.05


@pytest.mark.parametrize("kind", FIELDS)
def test_every_threshold_can_be_set_and_is_named(kind):
    usual = getattr(DEFAULT, FIELDS[kind])
    for key in usual.__struct_fields__:
        thresholds = parsed(f"[{kind.value}]\n{key} = 0.5", "t.toml") if getattr(usual, key) != 0.5 else None
        thresholds = thresholds or parsed(f"[{kind.value}]\n{key} = 0.75", "t.toml")
        applied = moved(DEFAULT, thresholds)
        assert getattr(getattr(applied, FIELDS[kind]), key) != getattr(usual, key)
        assert sum(applied.named()[name] != value for name, value in DEFAULT.named().items()) == 1


def test_an_empty_file_says_nothing():
    assert moved(DEFAULT, parsed("", "t.toml")) == DEFAULT


KINDS = ", ".join(kind.value for kind in FIELDS)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[SLOWER]\nshare = -0.1", "[SLOWER]: share = -0.1: a share of 0 or more, such as 0.25, is required"),
        ("[SLOWER]\nshare = '5 %'", "[SLOWER]: share = '5 %': a share of 0 or more, such as 0.25, is required"),
        ("[SLOWER]\nshare = true", "[SLOWER]: share = True: a share of 0 or more, such as 0.25, is required"),
        ("[SLOWER]\nshare = nan", "[SLOWER]: share = nan: a share of 0 or more, such as 0.25, is required"),
        ("[SLOWER]\nshare = inf", "[SLOWER]: share = inf: a share of 0 or more, such as 0.25, is required"),
        ("[MORE_SPILLS]\nregression_bytes = -1", "regression_bytes = -1: a number of 0 or more is required"),
        ("[LESS_OCCUPANCY]\nregression_share = 25", "regression_share = 25: a share from 0 to 1, such as 0.25, is re"),
        ("[LESS_OCCUPANCY]\nshare = 0.2", "[LESS_OCCUPANCY]: unknown key `share`: the keys are regression_share"),
        ("[FASTER]\nshare = 0.2", f"[FASTER] has no threshold of its own: thresholds are those of {KINDS}"),
        ("[SPILLS]\nshare = 0.2", f"[SPILLS] is no kind: thresholds are those of {KINDS}"),
        ("SLOWER = 0.2", "SLOWER must be a table: write [SLOWER] above its thresholds"),
        ("[[SLOWER]]\nshare = 0.2", "SLOWER must be a table: write [SLOWER] above its thresholds"),
        ("SLOWER", "is not TOML"),
    ],
)
def test_what_is_no_threshold_is_refused_in_a_sentence(runs, tmp_path, text, message):
    with pytest.raises(EntryError) as refusal:
        parsed(text, "t.toml")
    assert str(refusal.value).startswith("t.toml")
    assert message in str(refusal.value)
    with pytest.raises(CommandError):
        run_command(*runs, "--thresholds", written(tmp_path, text))


def test_a_file_that_is_not_there_is_refused(runs, tmp_path):
    with pytest.raises(CommandError, match="give a file of thresholds"):
        run_command(*runs, "--thresholds", tmp_path / "none.toml")


def test_every_kind_with_thresholds_is_a_kind():
    assert set(FIELDS) < set(Kind)


MILDER = {"MORE_SPILLS": {"regression_bytes": 128}, "LESS_OCCUPANCY": {"regression_share": 1}}
OF_VENDOR = {"mm": {"by": "entry point 'mine' of vendor 1.0", "thresholds": MILDER}}


def declaring(runs: tuple[Path, Path], candidate: object, baseline: object = None) -> tuple[Path, Path]:
    """``runs`` whose run.json say what kernels declare."""
    for folder, declared in zip(runs, (baseline or candidate, candidate), strict=True):
        file = folder / "run.json"
        file.write_text(json.dumps({**json.loads(file.read_text()), "declared": declared}))
    return runs


def answered(runs: tuple[Path, Path], capsys: pytest.CaptureFixture[str], *words: object) -> dict[str, Any]:
    run_command(*runs, "--json", "-", *words)
    return json.loads(capsys.readouterr().out)


def severities(answer: dict[str, Any]) -> dict[str, str]:
    return {group["kind"]: group["severity"] for group in answer["groups"]}


def test_a_kernel_brings_thresholds_that_its_run_recorded(runs, capsys):
    answer = answered(declaring(runs, OF_VENDOR), capsys)
    assert severities(answer) == {"MORE_SPILLS": "warning", "LESS_OCCUPANCY": "warning"}
    assert answer["thresholds"]["spills as a regression, at least bytes"] == 64
    own = {"spills as a regression, at least bytes": 128, "occupancy as a regression": 1}
    assert answer["own_thresholds"]["mm"]["values"] == own
    spills = next(group for group in answer["groups"] if group["kind"] == "MORE_SPILLS")
    assert "mm declares thresholds of its own for MORE_SPILLS" in spills["notes"]
    run_command(*runs)
    declared = "thresholds of mm, declared by entry point 'mine' of vendor 1.0: spills as a regression, at least bytes"
    assert f"{declared} 128 (not 64), occupancy as a regression 1 (not 0.25)" in capsys.readouterr().out


def test_what_a_kernel_declares_moves_no_threshold_of_another(runs, capsys):
    answer = answered(declaring(runs, {"addmm": OF_VENDOR["mm"]}), capsys)
    assert severities(answer) == {"MORE_SPILLS": "regression", "LESS_OCCUPANCY": "regression"}
    assert not any("thresholds" in note for group in answer["groups"] for note in group["notes"])


def test_the_users_file_has_the_last_word(runs, tmp_path, capsys):
    file = written(tmp_path, "[MORE_SPILLS]\nregression_bytes = 64")
    answer = answered(declaring(runs, OF_VENDOR), capsys, "--thresholds", file)
    assert severities(answer) == {"MORE_SPILLS": "regression", "LESS_OCCUPANCY": "warning"}
    assert set(answer["own_thresholds"]["mm"]["values"]) == {"occupancy as a regression"}
    strict = written(tmp_path, "[MORE_SPILLS]\nregression_bytes = 8")
    run_command(*runs, "--thresholds", strict)
    assert "thresholds of your file: spills as a regression, at least bytes 8 (not 64)" in capsys.readouterr().out


def test_other_thresholds_in_the_baseline_are_a_warning(runs, capsys):
    stricter = {"mm": {"by": "entry point 'mine' of vendor 0.9", "thresholds": {"SLOWER": {"share": 0.1}}}}
    answer = answered(declaring(runs, OF_VENDOR, stricter), capsys)
    assert answer["warnings"] == [
        "in the baseline's run mm declared other thresholds: those of the candidate's run apply"
    ]
    answer = answered(declaring(runs, OF_VENDOR, {"addmm": OF_VENDOR["mm"]}), capsys)
    assert any("mm declared no thresholds of its own" in warning for warning in answer["warnings"])


def test_recorded_thresholds_that_cannot_be_used_do_not_apply(runs, capsys):
    wrong = {"mm": {"by": "entry point", "thresholds": {"MORE_SPILLS": {"regression_bytes": -1}}}}
    answer = answered(declaring(runs, wrong), capsys)
    assert severities(answer)["MORE_SPILLS"] == "regression"
    (warning,) = answer["warnings"]
    assert warning.startswith("run.json: the thresholds of mm: [MORE_SPILLS]: regression_bytes = -1")
    assert warning.endswith("; the usual ones apply")
