"""Environments of stacks: they lie over this one, and each is built once and whole."""

from __future__ import annotations

import os
import subprocess
import zipfile
from pathlib import Path

import pytest

from conformance.gate.stacks import environments
from conformance.gate.stacks.environments import Environment, prepare
from conformance.gate.stacks.stack_file import Stack, StackError, parse

METADATA = "Metadata-Version: 2.1\nName: sample\nVersion: {version}\n"
WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel(folder: Path, version: str) -> Path:
    """A wheel of a package ``sample`` that says its version."""
    folder.mkdir(exist_ok=True)
    file = folder / f"sample-{version}-py3-none-any.whl"
    info = f"sample-{version}.dist-info"
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr("sample.py", f"version = {version!r}\n")
        archive.writestr(f"{info}/METADATA", METADATA.format(version=version))
        archive.writestr(f"{info}/WHEEL", WHEEL)
        archive.writestr(f"{info}/RECORD", f"sample.py,,\n{info}/METADATA,,\n{info}/WHEEL,,\n{info}/RECORD,,\n")
    return file


@pytest.fixture(autouse=True)
def unplanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """No list of packages is resolved before the installation, which would start pip once more;
    test_brought_packages.py is about that."""
    monkeypatch.setattr(environments, "planned", lambda *arguments: [])


def build(stack: Stack, cache: Path) -> Environment:
    return prepare([stack], cache, True, print)[0]


def imported(environment: environments.Environment, code: str, directory: str = ".") -> str:
    command = [environment.command()[0], "-c", code]
    done = subprocess.run(command, env=environment.environ(), cwd=directory, capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_a_wheel_is_laid_over_this_environment_and_changes_nothing_in_it(tmp_path: Path) -> None:
    before = dict(os.environ)
    environment = build(parse(str(wheel(tmp_path, "1.5"))), tmp_path / "cache")
    assert imported(environment, "import sample, pytest, conformance; print(sample.version)") == "1.5"
    assert dict(os.environ) == before
    with pytest.raises(ModuleNotFoundError):
        __import__("sample")


def test_an_environment_is_built_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stack = parse(str(wheel(tmp_path, "1.5")))
    first = build(stack, tmp_path / "cache")
    monkeypatch.setattr(environments, "install", None)
    assert build(stack, tmp_path / "cache") == first


def test_what_describes_an_environment_is_not_read(tmp_path: Path) -> None:
    """It is there when the environment is whole, and its name is a digest of what it holds."""
    first = build(parse("current"), tmp_path)
    (first.folder / "stack.json").write_text("[" * 100_000)
    assert build(parse("current"), tmp_path) == first


def test_another_content_of_a_wheel_is_another_environment(tmp_path: Path) -> None:
    file = wheel(tmp_path, "1.5")
    first = build(parse(str(file)), tmp_path / "cache")
    with zipfile.ZipFile(file, "a") as archive:
        archive.writestr("more.py", "")
    assert build(parse(str(file)), tmp_path / "cache").folder != first.folder


def test_a_folder_of_packages_is_found_first_and_watched(tmp_path: Path) -> None:
    site = tmp_path / "site"
    site.mkdir()
    (site / "sample.py").write_text("version = 'folder'\n")
    text = f"site={site} {wheel(tmp_path / 'wheels', '1.5')}"
    first = build(parse(text), tmp_path / "cache")
    assert imported(first, "import sample; print(sample.version)") == "folder"
    (site / "sample.py").write_text("version = 'another folder'\n")
    assert build(parse(text), tmp_path / "cache").folder != first.folder


def test_places_hold_wherever_its_processes_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "beside").mkdir()
    (tmp_path / "beside" / "other.py").write_text("version = 'beside'\n")
    stack = parse(str(wheel(tmp_path, "1.5")))
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([os.environ.get("PYTHONPATH", ""), "beside"]))
    environment = build(stack, Path("cache"))
    assert imported(environment, "import sample, other; print(sample.version, other.version)", "/") == "1.5 beside"


def test_the_order_of_folders_decides_and_is_another_environment(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "sample.py").write_text(f"version = {name!r}\n")
    sites = [f"site={tmp_path / name}" for name in ("one", "two")]
    first, second = (build(parse(" ".join(order)), tmp_path / "cache") for order in (sites, sites[::-1]))
    assert [imported(environment, "import sample; print(sample.version)") for environment in (first, second)] == [
        "one",
        "two",
    ]
    assert first.folder != second.folder


def test_what_cannot_be_installed_leaves_nothing_behind(tmp_path: Path) -> None:
    broken = tmp_path / "sample-1-py3-none-any.whl"
    broken.write_bytes(b"no zip")
    with pytest.raises(
        StackError, match=r"(?s)could not be installed: the file is no wheel: .*the command was: .*pip install"
    ):
        build(parse(str(broken)), tmp_path / "cache")
    assert list((tmp_path / "cache" / "stacks").iterdir()) == []


def tool(folder: Path, said: str, mode: int = 0o755) -> Path:
    file = folder / "ptxas"
    file.write_text(f"#!/bin/sh\necho '{said}'\n")
    file.chmod(mode)
    return file


def test_ptxas_of_ones_own(tmp_path: Path) -> None:
    file = tool(tmp_path, "ptxas: NVIDIA (R) Ptx optimizing assembler")
    environment = build(parse(f"ptxas={file}"), tmp_path / "cache")
    assert imported(environment, "import os; print(os.environ['TRITON_PTXAS_PATH'])") == str(file)
    file.write_text(file.read_text() + "# changed\n")
    assert build(parse(f"ptxas={file}"), tmp_path / "cache").folder != environment.folder


@pytest.mark.parametrize(
    ("said", "mode", "why"),
    [("cat", 0o755, "is no ptxas"), ("\\0377", 0o755, "is no ptxas"), ("ptxas", 0o644, "cannot be run")],
)
def test_a_file_that_is_no_ptxas_is_refused(tmp_path: Path, said: str, mode: int, why: str) -> None:
    with pytest.raises(StackError, match=why):
        build(parse(f"ptxas={tool(tmp_path, said, mode)}"), tmp_path / "cache")


@pytest.mark.parametrize(
    ("version", "requirement"),
    [
        ("12.9", "nvidia-cuda-nvcc-cu12==12.9.*"),
        ("12.9.86", "nvidia-cuda-nvcc-cu12==12.9.86"),
        ("13.0.88", "nvidia-cuda-nvcc==13.0.88"),
    ],
)
def test_the_wheel_that_holds_a_ptxas(version: str, requirement: str) -> None:
    assert environments.compiler_wheel(version) == requirement
