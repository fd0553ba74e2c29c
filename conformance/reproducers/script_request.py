"""A request to the process that writes a case's script: a file in the folder for scripts."""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from pathlib import Path

#: The file's name.
NAME = "request.json"


@dataclass(frozen=True)
class ScriptRequest:
    """What the script of a case must show.

    ``dies``: the case may end its process, so the script is written before the case runs. ``features`` and ``spills``
    are what the case's code had in another run: names of features, and the most that it spilled (bytes per thread on
    NVIDIA, registers per lane on AMD). If the case passes, the script looks for those.
    """

    dies: bool = False
    features: tuple[str, ...] = ()
    spills: int | None = None

    def write(self, folder: Path) -> None:
        (folder / NAME).write_text(json.dumps(asdict(self)), encoding="utf-8")

    @classmethod
    def read(cls, folder: Path) -> ScriptRequest:
        """The request in ``folder``; one that asks for nothing if there is none."""
        try:
            data = json.loads((folder / NAME).read_text(encoding="utf-8"))
        except FileNotFoundError:
            return cls()
        return cls(data["dies"], tuple(data["features"]), data["spills"])


def file_name(case: str) -> str:
    """A name for the script of ``case`` that every file system takes and no other case has."""
    readable = re.sub(r"[^A-Za-z0-9]+", "-", case.removeprefix("test_").replace(".py::", "-", 1)).strip("-")[:80]
    return f"{readable}-{hashlib.sha256(case.encode()).hexdigest()[:8]}.py"
