"""Finds an installed package whose metadata cannot be read. The errors of pytest and torch, which read the metadata of
all packages as they are imported, name no package."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from pathlib import Path

#: The file that pytest and torch read of each package, and what pytest reads of those with plugins of its own.
_ENTRY_POINTS = "entry_points.txt"
_OF_PLUGINS = ("METADATA", "PKG-INFO", "RECORD")
_PLUGINS = "[pytest11]"
#: Endings of the folders that hold the metadata of one package.
_FOLDERS = (".dist-info", ".egg-info")


def unreadable_metadata(places: Iterable[str] | None = None) -> str:
    """Returns a sentence about the first package in ``places`` with which pytest or torch cannot be imported; empty if
    there is none. The places are those of ``sys.path`` unless given."""
    for place in sys.path if places is None else places:
        try:
            names = sorted(os.listdir(place or "."))
        except OSError:
            continue
        for name in names:
            if name.endswith(_FOLDERS) and (why := _unreadable(Path(place, name))):
                return (
                    f"{why}. It belongs to an installed package, and pytest and torch cannot be imported with it: "
                    "install that package again, or remove that folder"
                )
    return ""


def _unreadable(folder: Path) -> str:
    why, entry_points = _read(folder / _ENTRY_POINTS)
    if why or _PLUGINS not in entry_points:
        return why
    return next((why for name in _OF_PLUGINS if (why := _read(folder / name)[0])), "")


def _read(file: Path) -> tuple[str, str]:
    """Returns why ``file`` cannot be read, and its text. One of both is empty; both are if there is no such file."""
    if not os.path.lexists(file) or file.is_dir():
        return "", ""
    if not file.is_file():
        return f"{file} is no regular file", ""
    try:
        return "", file.read_text(encoding="utf-8")
    except PermissionError:  # those who read metadata pass over it
        return "", ""
    except (OSError, UnicodeDecodeError) as error:
        return f"{file} cannot be read ({error})", ""
