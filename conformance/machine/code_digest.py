"""Digests of files, and of the code that judges: this package's own files."""

from __future__ import annotations

import functools
import hashlib
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

Fact = TypeVar("Fact")

PACKAGE = Path(__file__).resolve().parents[1]

#: Folder of the lists of what is owed.
LISTS = "data/mustpass/"


def kept_while_unchanged(read: Callable[[Path], Fact]) -> Callable[[str | Path], Fact]:
    """Returns ``read`` for large files: it reads a file again only if the size or the time of its last change differs.
    Raises OSError if there is no such file."""

    @functools.cache
    def kept(path: str, size: int, changed_ns: int, inode: int) -> Fact:
        return read(Path(path))

    @functools.wraps(read)
    def current(path: str | Path) -> Fact:
        state = os.stat(path)
        return kept(str(path), state.st_size, state.st_mtime_ns, state.st_ino)

    return current


@kept_while_unchanged
def file_digest(path: Path) -> str:
    """Returns the SHA-256 of the file, in hexadecimal. Raises OSError."""
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while chunk := file.read(1 << 22):
            digest.update(chunk)
        return digest.hexdigest()


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
