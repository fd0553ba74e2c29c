"""Answers about files that take long to work out: each is kept in a file next to them, for every process that asks.

The folder in which commands keep runs and verdicts, and the digest of this package, are here too.
"""

from __future__ import annotations

import functools
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any, TypeVar


def kept_answer(
    about: Sequence[Path], name: str, code: str, work_out: Callable[[], Any], *, folder: Path | None = None
) -> Any:
    """Returns the result of ``work_out`` about the files ``about``, as JSON gives it back.

    The answer is in the file "<stem>.<name>.json" next to the first of them. It counts as long as ``code``, the digest
    of what works it out, and the name, size and time of every file are the same. With ``folder``, it is a file there
    whose name has the digest of all these, so that each of two stacks keeps its answer. A folder that cannot be written
    keeps none.
    """
    stamp = [code, *(_stamp(path) for path in about)]
    if folder is None:
        place = about[0].with_name(f"{about[0].stem}.{name}.json")
    else:
        place = folder / f"{name}-{hashlib.sha256(json.dumps(stamp).encode()).hexdigest()[:16]}.json"
    try:
        kept = json.loads(place.read_text())
        if kept["about"] == stamp:
            return kept["answer"]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # not there yet, or written by another version
    text = json.dumps({"about": stamp, "answer": work_out()})
    write_whole(place, text)
    return json.loads(text)["answer"]


def _stamp(path: Path) -> list[str | int]:
    try:
        seen = path.stat()
    except FileNotFoundError:
        return [path.name]  # whoever works out the answer says that it is missing
    return [path.name, seen.st_size, seen.st_mtime_ns]


@functools.cache
def source_digest(*modules: ModuleType) -> str:
    """sha256 (hex) of the source files of ``modules``."""
    sources = (Path(str(module.__file__)).read_bytes() for module in modules)
    return hashlib.sha256(b"".join(sources)).hexdigest()


@functools.cache
def package_digest(package: ModuleType) -> str:
    """sha256 (hex) of the source files of all modules of ``package``."""
    folder = Path(str(package.__file__)).parent
    return hashlib.sha256(b"".join(path.read_bytes() for path in sorted(folder.rglob("*.py")))).hexdigest()


def write_whole(path: Path, text: str) -> None:
    """Writes ``path`` so that another process sees all of it or nothing; a folder that cannot be written stays as it
    is."""
    try:
        with tempfile.NamedTemporaryFile("w", dir=path.parent, prefix=path.name, delete=False) as file:
            file.write(text)
        os.replace(file.name, path)
    except OSError:  # a read-only cache, or no space
        return


def default_cache() -> Path:
    """Returns the folder for kept files: below XDG_CACHE_HOME, or ``~/.cache``."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "triton-conformance"


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
    do not count. Nor does what cannot be imported: a FIFO, a device or a link that leads nowhere. A file is read again
    only if its size, its inode or the time of its last change differs."""
    return _digest_of_files(str(package), tuple(sorted(_files(str(package), ""))))


@functools.lru_cache(maxsize=8)
def _digest_of_files(folder: str, files: tuple[tuple[str, int, int, int], ...]) -> str:
    digest = hashlib.sha256()
    for name, *_ in files:
        with open(os.path.join(folder, name), "rb") as file:
            content = file.read()
        for part in (os.fsencode(name), content):  # a name may be no UTF-8
            digest.update(b"%d:" % len(part))
            digest.update(part)
    return digest.hexdigest()


def _files(folder: str, below: str) -> Iterator[tuple[str, int, int, int]]:
    """Yields the path below the package of each file that counts, its size, its time and its inode."""
    try:
        entries = list(os.scandir(folder))
    except OSError:  # whoever imports from it says so
        return
    for entry in entries:
        name = below + entry.name
        if entry.name.startswith(".") or f"{name}/" == LISTS:
            continue
        if entry.is_file():
            state = entry.stat()
            yield name, state.st_size, state.st_mtime_ns, state.st_ino
        elif entry.is_dir() and entry.name != "__pycache__" and not entry.is_symlink():
            yield from _files(entry.path, f"{name}/")
