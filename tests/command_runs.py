"""Folders of runs, and commands that are called on them as a user calls them."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType

from conformance.records import RECORDS_FILE, RUN_FILE, CaseRecord, RunInfo, Verdict, jsonable

#: What a record needs to pass.
JUDGED = (Verdict("memory", True),)


def write_run(folder: Path, records: Iterable[CaseRecord], info: RunInfo | None = None) -> Path:
    """The new ``folder`` of a run, without a run.json unless there is its ``info``."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / RECORDS_FILE).write_text("".join(record.to_line() for record in records))
    if info is not None:
        (folder / RUN_FILE).write_text(json.dumps(jsonable(info)))
    return folder


def call(command: ModuleType, *words: object) -> int:
    """The exit status of a module of ``conformance.commands``."""
    parser = argparse.ArgumentParser(allow_abbrev=False)
    command.configure(parser)
    return int(command.run(parser.parse_args([str(word) for word in words])))
