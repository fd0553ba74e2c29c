"""Reads the options of a run: the words of its command line, which ``environment.json`` holds."""

from __future__ import annotations

import json
from pathlib import Path

from conformance.gate.runs.run_environment import ENVIRONMENT_FILE
from conformance.records import plain_file


def recorded_options(folder: Path) -> tuple[str, ...] | None:
    """The words of the command line of the run in ``folder``; None if they are not there or cannot be read."""
    try:
        words = json.loads(plain_file(folder / ENVIRONMENT_FILE).read_text(encoding="utf-8"))["options"]
    except (OSError, ValueError, RecursionError, LookupError, TypeError):
        return None
    return tuple(map(str, words)) if isinstance(words, list) else None
