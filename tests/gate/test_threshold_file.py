"""Thresholds from a file: what they say holds, and what they cannot say is refused in a sentence."""

from __future__ import annotations

import copy
import json
from functools import partial
from pathlib import Path

import pytest
from made_records import Record, changed, run_of_all, write_run

from conformance.commands import CommandError
from conformance.commands import compare as command
from conformance.gate.changes.thresholds import DEFAULT, FIELDS
from conformance.gate.findings import Kind
from conformance.gate.user_files.threshold_file import parsed
from conformance.gate.user_files.toml_entries import EntryError
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
        assert getattr(getattr(thresholds, FIELDS[kind]), key) != getattr(usual, key)
        assert sum(thresholds.named()[name] != value for name, value in DEFAULT.named().items()) == 1


def test_an_empty_file_says_nothing():
    assert parsed("", "t.toml") == DEFAULT


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
