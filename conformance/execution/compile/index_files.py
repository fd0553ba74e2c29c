"""Names of the files by which a run's processes find what the compile stage has compiled, and say what they used."""

from __future__ import annotations

from pathlib import Path

INDEX_FILE = "compiled.sqlite"


def asked_file(folder: Path, worker: str) -> Path:
    """Returns the file into which a process writes what its cases asked for, one line each."""
    return folder / f"asked-{worker}.txt"
