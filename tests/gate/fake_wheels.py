"""Wheels of made-up packages in a folder, from which alone pip takes packages."""

from __future__ import annotations

import zipfile
from collections.abc import Sequence
from pathlib import Path

import pytest

from conformance.gate.stacks import pip_commands

WHEEL = "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"


def wheel(folder: Path, name: str, version: str, requires: Sequence[str] = (), padding: int = 0) -> Path:
    """A wheel of ``name`` that needs what ``requires`` says, with ``padding`` bytes in addition to its code."""
    folder.mkdir(exist_ok=True)
    module = name.replace("-", "_")
    file = folder / f"{module}-{version}-py3-none-any.whl"
    info = f"{module}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    metadata += "".join(f"Requires-Dist: {text}\n" for text in requires)
    with zipfile.ZipFile(file, "w") as archive:
        archive.writestr(f"{module}/__init__.py", f"version = {version!r}\n")
        archive.writestr(f"{module}/padding", b"\0" * padding)
        archive.writestr(f"{info}/METADATA", metadata)
        archive.writestr(f"{info}/WHEEL", WHEEL)
        archive.writestr(f"{info}/RECORD", "")
    return file


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder that is the only place from which pip takes packages."""
    folder = tmp_path / "index"
    folder.mkdir()
    for name, value in {"CONFIG_FILE": "/dev/null", "NO_INDEX": "1", "FIND_LINKS": str(folder)}.items():
        monkeypatch.setenv(f"PIP_{name}", value)
    for name in ("CONSTRAINT", "EXTRA_INDEX_URL", "INDEX_URL"):
        monkeypatch.delenv(f"PIP_{name}", raising=False)
    monkeypatch.setattr(pip_commands, "_reports_first", lambda package: True)  # files of a folder are not fetched
    return folder
