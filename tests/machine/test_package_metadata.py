"""A package whose metadata pytest and torch cannot read is named by file, and others are none."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from conformance import cli
from conformance.machine.package_metadata import unreadable_metadata
from conformance.machine.versions import unloadable

PLUGIN = "[pytest11]\nodd = odd\n"


def folder(tmp_path: Path, **texts: str | bytes) -> Path:
    """Returns the folder of the metadata of a package, whose files have these texts by name without ending."""
    place = tmp_path / "odd-1.0.dist-info"
    place.mkdir()
    for name, text in ({"METADATA": "Name: odd\n"} | texts).items():
        file = place / ("entry_points.txt" if name == "entry_points" else name)
        file.write_bytes(text if isinstance(text, bytes) else text.encode())
    return place


UNREADABLE: dict[str, tuple[str, Callable[[Path], object]]] = {
    "not UTF-8": ("entry_points.txt", lambda file: file.write_bytes(b"[x]\nodd\xff = odd:X\n")),
    "a FIFO": ("entry_points.txt", os.mkfifo),
    "a device": ("entry_points.txt", lambda file: file.symlink_to("/dev/zero")),
    "a loop": ("entry_points.txt", lambda file: file.symlink_to(file.name)),
    "METADATA of a plugin": ("METADATA", lambda file: file.write_bytes(b"\xff\xfe")),
    "RECORD of a plugin": ("RECORD", lambda file: file.write_bytes(b"\xff,,\n")),
}


@pytest.mark.parametrize("name", UNREADABLE)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str) -> None:
    file, damage = UNREADABLE[name]
    place = folder(tmp_path, entry_points=PLUGIN)
    assert unreadable_metadata([str(tmp_path)]) == ""
    (place / file).unlink(missing_ok=True)
    damage(place / file)
    text = unreadable_metadata(["/nonexistent", str(tmp_path)])
    assert text.startswith(str(place / file))
    assert text.endswith("install that package again, or remove that folder")


def test_files_that_nothing_reads_may_be_damaged(tmp_path: Path) -> None:
    folder(tmp_path, entry_points="[console_scripts]\nodd = odd:main\n", METADATA=b"\xff", RECORD=b"\xff")
    assert unreadable_metadata([str(tmp_path)]) == ""


@pytest.mark.parametrize("command", [["run", "--no-gpu"], ["list", "--suite", "batching"], ["kernels"]])
def test_commands_name_the_file_before_they_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: list[str]
) -> None:
    place = folder(tmp_path, entry_points=b"\xff")
    monkeypatch.syspath_prepend(tmp_path)
    assert cli.main(command) == 2
    assert capsys.readouterr().err.startswith(f"conformance: {place}/entry_points.txt cannot be read")


def test_a_stack_that_does_not_load_because_of_it_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(name: str) -> None:
        b"\xff".decode()

    place = folder(tmp_path, entry_points=b"\xff")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("importlib.import_module", fail)
    assert str(unloadable()).startswith(f"{place}/entry_points.txt cannot be read")
