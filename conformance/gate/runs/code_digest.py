"""The digest of the code that judges: this package's own files."""

from __future__ import annotations

import hashlib
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[2]

#: Folder of the lists of what is owed.
LISTS = "data/mustpass/"


def code_digest(package: Path = PACKAGE) -> str:
    """sha256 (hex) over every file of ``package``, in the order of their paths: the path and the content, each led by
    its length in bytes. Hidden files, what Python compiles and the lists of what is owed, which name this digest,
    do not count."""
    digest = hashlib.sha256()
    for name in sorted(path.relative_to(package).as_posix() for path in package.rglob("*") if path.is_file()):
        if name.startswith(LISTS) or any(part == "__pycache__" or part.startswith(".") for part in name.split("/")):
            continue
        for part in (name.encode(), (package / name).read_bytes()):
            digest.update(b"%d:" % len(part))
            digest.update(part)
    return digest.hexdigest()
