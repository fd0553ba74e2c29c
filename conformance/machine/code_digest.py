"""The digest of the code that judges: this package's own files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]

#: Folder of the lists of what is owed.
LISTS = "data/mustpass/"


def code_digest(package: Path = PACKAGE) -> str:
    """sha256 (hex) over every file of ``package``, in the order of their paths: the path and the content, each led by
    its length in bytes. Hidden files, what Python compiles and the lists of what is owed, which name this digest,
    do not count."""
    digest = hashlib.sha256()
    for name in sorted(_names(package)):
        for part in (name.encode(), (package / name).read_bytes()):
            digest.update(b"%d:" % len(part))
            digest.update(part)
    return digest.hexdigest()


def _names(package: Path) -> Iterator[str]:
    for folder, folders, files in os.walk(package):
        folders[:] = [name for name in folders if name != "__pycache__" and not name.startswith(".")]
        for file in files:
            name = Path(folder, file).relative_to(package).as_posix()
            if not (file.startswith(".") or name.startswith(LISTS)):
                yield name
