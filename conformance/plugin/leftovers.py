"""The files by which processes of a run tell one another something. A run that ended leaves none of them."""

from __future__ import annotations

from pathlib import Path

from conformance.execution.compile.index_files import INDEX_FILE, asked_file
from conformance.plugin.collection_watch import MARKED_FILE
from conformance.plugin.shared_collection import LOCK_FILE, NODE_IDS_FILE
from conformance.plugin.shared_teardown import FAULT_FILES

_PATTERNS = ("process-*.txt", "broken-*.txt", "collecting-*.txt", "died-*.txt", MARKED_FILE, LOCK_FILE, NODE_IDS_FILE)
#: Those of the compile stage, which removes them when it ends.
_OF_STAGE = (INDEX_FILE, asked_file(Path(), "*").name)
#: What the next part of a run needs until it goes on.
_OF_CASES = ("inflight-*.jsonl", FAULT_FILES)
#: The stacks of processes that ran past a deadline stay as evidence.
_STACKS = "stacks-*.txt"


def remove_leftovers(folder: Path) -> None:
    """Removes the files from ``folder`` after the last case."""
    for pattern in (*_PATTERNS, *_OF_CASES):
        for file in folder.glob(pattern):
            file.unlink()
    for file in folder.glob(_STACKS):
        if file.stat().st_size == 0:
            file.unlink()


def remove_before_next_part(folder: Path) -> None:
    """Removes the files from ``folder`` before other processes go on there, which have the same names."""
    for pattern in (*_PATTERNS, *_OF_STAGE, _STACKS, "refusal-*.txt"):
        for file in folder.glob(pattern):
            file.unlink()
